//! What the store promises of entries on either engine, and what the capability makes of it.

mod aside;
mod cache;
mod clocks_apart;
mod doubt;
mod engine;
mod faulty;
mod given_up;
mod ill_cache;
mod lasting;
mod meanwhile;
mod patience;
mod queued;
mod running;
mod size;
mod store;
mod swift;
mod tidying;
mod watching;
