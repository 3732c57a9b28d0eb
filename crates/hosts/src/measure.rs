//! What is measured each second: the machine ([`node`]) or the share of it that this process has (`group`), what work costs ([`cpu`]), how long events take ([`latency`]), and of a
//! part everything that it counts ([`Meter`]).

pub mod cpu;
mod group;
pub mod latency;
mod meter;
pub mod node;

pub use meter::Meter;
