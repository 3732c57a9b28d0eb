//! The manager's side of streams: which are deployed, and which host runs which part.
//!
//! - [`placing`] decides who runs what, and [`keeping`] which snapshots and how much of a log are kept: functions without I/O.
//!   [`silence`] tells which hosts can be heard, by the clock of whoever looks. [`needs`] says what a definition asks of hosts.
//! - [`store`] keeps streams, where their parts are, what hosts said last, snapshots, and what was done by whom.
//! - [`owner`] is the loop of whoever owns a shard: it looks, decides, writes fenced, and clears away.
//! - [`service`] is the capability: what people ask of it, and what hosts say to it, over [`routes`].
//! - [`outside`] is what it asks of others, whom it does not know: keys, flows, and who was let in.
//!
//! Not here: what a part does (`streams`), and running one (`hosts`).

pub mod graphs;
pub mod keeping;
pub mod meters;
pub mod moving;
pub mod needs;
pub mod outside;
pub mod owner;
pub mod placing;
pub mod routes;
pub mod service;
pub mod silence;
pub mod store;
pub mod view;

pub use service::{Streams, StreamsParts};
pub use store::postgres::MIGRATIONS as POSTGRES_MIGRATIONS;
pub use store::sqlite::MIGRATIONS;

/// The group of shards that streams fall into.
pub const GROUP: &str = "streams";
/// Into how many. Part of the data: it never changes.
pub const SHARDS: u32 = 16;
