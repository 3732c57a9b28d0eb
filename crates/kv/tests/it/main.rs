//! What the store promises of entries on either engine, and what the capability makes of it.

mod cache;
mod engine;
mod queued;
mod running;
mod store;
