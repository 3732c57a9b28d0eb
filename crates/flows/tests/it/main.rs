//! What the store promises of flows on either engine, and what the capability makes of it.

mod beside;
mod engine;
mod running;
mod store;
mod unfit;
mod workshop;
