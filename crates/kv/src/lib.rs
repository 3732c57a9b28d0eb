//! kv: small shared state. A write is answered when it is durable, applied in order, and a key's revision only grows.
//!
//! - [`write`](mod@write) is what is asked for: keys, values, conditions, and the name by which a write can be asked after.
//! - [`fold`](mod@fold) is what writes make of entries: a pure function, in order, of hundreds at a time.
//! - [`point`] is a moment of the whole: one revision for each shard. Lists and watchers go by it.
//!
//! All of that is pure. Around it:
//!
//! - [`store`] keeps entries, their history and who has been heard; [`applier`] applies what comes, a batch at a time, for
//!   each shard that this process owns.
//! - [`intake`] is where writes are handed in; [`outbox`] sends them through a queue of each shard, as parcels that look like
//!   [`wire`] says, so that any manager takes any write.
//! - [`service`] is the capability: what is asked of it by people, over [`routes`]; [`view`] is how entries look there.
//!   `legacy` has the routes of the store that this one takes the place of.
//! - [`cache`] keeps values at hand, in this process or in Redis; what is found there is what the store would say.

pub mod applier;
mod awaiting;
pub mod cache;
pub mod fold;
pub mod intake;
mod legacy;
pub mod meters;
pub mod outbox;
mod pace;
pub mod point;
pub mod problems;
pub mod routes;
pub mod service;
#[cfg(test)]
mod simulation;
pub mod store;
mod swift;
pub mod view;
mod watch;
pub mod wire;
pub mod write;

pub use fold::{Entry, Event, Fate, Kind, fold};
pub use intake::Until;
pub use point::Point;
pub use service::{AtHand, Kv, KvParts, Legacy, Path};
pub use store::postgres::MIGRATIONS as POSTGRES_MIGRATIONS;
pub use store::sqlite::MIGRATIONS;
pub use write::{Change, Condition, Key, Place, Value, Write, WriteId};

/// The group of shards that keys fall into.
pub const GROUP: &str = "kv";
/// Into how many. Part of the data: it never changes.
pub const SHARDS: u32 = 16;
