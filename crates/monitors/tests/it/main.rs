//! What the store promises of monitors on either engine, and what the capability makes of it, against real services of our
//! own on the loopback.

mod alert_store;
mod alerts;
mod checkers;
mod engine;
mod following;
mod pushes;
mod rolls;
mod running;
mod store;
