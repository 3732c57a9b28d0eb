//! The manager's side of elasticity: what it keeps for the resource manager, the three protocols as routes, and workers and
//! nodes as people see them.
//!
//! - [`store`]: records of workers, decisions, history, nodes, who is drained; on both engines.
//! - [`service`]: [`Fleets`], which the routes and the rest of the program use. [`balance`] puts the answer to a balance check
//!   together, without I/O; [`lease`] passes a resource manager's lease on to the store of shards.
//! - [`floor`] and [`identities`]: what it asks of those who hand out tasks and of those who let workers in. They are given to
//!   it, so that it knows neither.
//! - [`standing`]: why a queue has as many workers as it has, in words.
//! - [`draining`]: keeps telling the owners of queues who is to be handed nothing.
//! - [`routes`]: `/v1/elastic/…`, `/v1/nodes/…`, `/v1/workers/…`.
//!
//! **Two never act at once.** Whatever a resource manager changes names the generation of its lease, and is written only if
//! that is still the current one, in the same transaction (`shards::fence`).
//!
//! Not here: how many are wanted and what to do about it (`elastic`, run by the resource manager), who may come in (`api`),
//! handing out tasks (`jobs`).

pub mod balance;
mod draining;
pub mod floor;
mod host;
pub mod identities;
mod lease;
pub mod planner;
pub mod routes;
pub mod runners;
pub mod service;
pub mod standing;
pub mod store;

pub use floor::Floor;
pub use identities::Identities;
pub use planner::Planner;
pub use runners::Runners;
pub use service::{Fleets, FleetsParts};
pub use store::postgres::MIGRATIONS as POSTGRES_MIGRATIONS;
pub use store::sqlite::MIGRATIONS;
