//! Flows: graphs of steps, each an action that some node runs. What a flow may say and whether it could work
//! ([`definition`]), what its steps are given ([`plan`]), and how runs of it go on and come to an end, whatever fails
//! ([`foreman`]).
//!
//! Nothing here does I/O or reads a clock: a shell drives a foreman with sockets and a store, a simulation drives the same
//! one with models of them. Only tests drive it so far.
//!
//! Not here: which node runs a step (`nodes::routing`), and how anything is sent or written.

pub mod answer;
pub mod definition;
pub mod foreman;
pub mod plan;
pub mod start;
pub mod wire;

pub use definition::FlowSpec;
pub use plan::Plan;
