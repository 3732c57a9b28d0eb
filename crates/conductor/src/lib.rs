//! The manager's side of streams: which are deployed, and which host runs which part.

pub mod keeping;
pub mod needs;
pub mod placing;
pub mod silence;
pub mod store;

pub use store::postgres::MIGRATIONS as POSTGRES_MIGRATIONS;
pub use store::sqlite::MIGRATIONS;

/// The group of shards that streams fall into.
pub const GROUP: &str = "streams";
/// Into how many. Part of the data: it never changes.
pub const SHARDS: u32 = 16;
