//! Flows: graphs of steps, each an action that some node runs. What a flow may say and whether it could work
//! ([`definition`]), what its steps are given ([`plan`]), and how runs of it go on and come to an end, whatever fails
//! ([`foreman`]). Nothing of that does I/O or reads a clock: a shell drives a foreman with sockets and a store, a simulation
//! drives the same one with models of them.
//!
//! Around it:
//!
//! - [`store`] keeps flows and their runs;
//! - [`post`] drives the foreman of each shard that this process owns: what is to be sent goes to nodes by
//!   `nodes::errand::Reach`, what comes back comes by [`returns`], whichever manager a node reached;
//! - [`catalogue`] says which actions there are, and who offers them;
//! - [`service`] is the capability: what is asked of it by people, over [`routes`], and by clients of the wire.
//!
//! Not here: which node runs a step (`nodes::routing`), and how anything is sent to one.

pub mod answer;
pub mod asking;
pub mod catalogue;
pub mod definition;
pub mod foreman;
pub mod given;
pub mod meters;
pub mod plan;
pub mod plans;
pub mod post;
pub mod returns;
mod room;
pub mod routes;
pub mod service;
pub mod start;
pub mod store;
pub mod view;
pub mod wire;

pub use definition::FlowSpec;
pub use plan::Plan;
pub use service::{Flows, FlowsParts};
pub use store::postgres::MIGRATIONS as POSTGRES_MIGRATIONS;
pub use store::sqlite::MIGRATIONS;

/// The group of shards that runs fall into.
pub const GROUP: &str = "flows";
/// Into how many. Part of the data: it never changes.
pub const SHARDS: u32 = 16;

/// The shard of a run.
pub fn shard_of(run: foreman::words::RunKey) -> mutirao_core::ShardId {
    mutirao_core::ShardId((run.0 % u64::from(SHARDS)) as u32)
}
