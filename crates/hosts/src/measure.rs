//! What is measured each second: the machine ([`node`]), what work costs ([`cpu`]), how long events take ([`latency`]), and of a
//! part everything that it counts ([`Meter`]).

pub mod cpu;
pub mod latency;
mod meter;
pub mod node;

pub use meter::Meter;
