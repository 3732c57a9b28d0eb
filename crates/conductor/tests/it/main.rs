//! What the store promises of streams on either engine, and what the capability makes of it.

mod engine;
mod store;
