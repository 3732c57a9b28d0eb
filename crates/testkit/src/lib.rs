//! Real things for tests: an installation of the real binary, private PostgreSQL, RabbitMQ and Redis servers that can
//! be killed and started again, certificates, a proxy that can be cut, network namespaces with cables that can be (and that lose
//! what they carry), a small disk that can be filled, and waiting with a limit.
//!
//! What it starts it ends: by pid on drop, by the kernel when the test process dies under it (see [`launch`]), and by
//! a mark in the environment for whatever slipped away (see [`sweep`]).
//!
//! And, behind the feature `sim`, a world that is all simulation, for what real things do too seldom: [`sim`].
//!
//! What is *not* here: fakes. A test that can do with a fake uses `core`'s manual clock and seeded dice.
//!
//! Everything blocks its thread: from an async test call it under the multi-thread runtime or on a thread of its own.

#![allow(clippy::disallowed_methods, reason = "waits for real processes in real time")]

pub mod certificates;
pub mod disk;
pub mod engines;
pub mod hosts;
pub mod http;
pub mod installation;
pub mod launch;
pub mod network;
pub mod ports;
pub mod proxy;
pub mod services;
#[cfg(feature = "sim")]
pub mod sim;
pub mod sweep;
pub mod wait;

pub use installation::Installation;
pub use proxy::Proxy;
