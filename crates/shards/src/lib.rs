//! Who owns what, fenced. Work of one kind (a *group*: "jobs", "monitors", …) is cut once and for all into a fixed number
//! of shards; every shard is owned by at most one process at a time, and by one as soon as possible.
//!
//! - [`rendezvous`] says who should own a shard, given who is alive: one process more or less moves only its own shards.
//! - [`silence`] tells, by this process's own monotonic clock alone, how long others have given no sign of life. No two
//!   clocks are ever compared, not even with the database's.
//! - [`plan`] is the decision: what to claim, keep, hand over, release. No I/O.
//! - [`tenancy`] is the state of one member, as a machine without I/O: rounds go out, answers come in.
//! - [`store`] is where leases are kept: SQLite, PostgreSQL, or memory for simulations.
//! - [`office`] runs it all: [`Shards`].
//! - [`fence`] lets a capability check, inside its own transaction, that it still owns what it writes.
//!
//! **Why it is safe.** A lease carries a generation, which grows with every claim, and a count of beats, which grows with
//! every renewal. Its owner believes in it for `lease - margin` from *before* the last renewal left. Another member claims
//! it only when it is released, or when it has seen the same generation and beat for the whole `lease` on its own clock,
//! and the claim succeeds only if they are still the same: so the last renewal left more than a lease ago, and the owner
//! has stopped believing. This asks one thing of the world: that the rates of two machines' clocks differ by less than
//! `margin / lease` (a fifth, by default). Frozen and suspended processes are covered, since the clock is
//! `CLOCK_BOOTTIME`. What was already on its way to the store when its owner froze is stopped by the [`fence`].
//!
//! **How a capability uses it.**
//!
//! 1. Everything it keeps belongs to a shard, by [`shard_of`] of a key that never changes (a queue's name, a monitor's
//!    id). The number of shards is part of the data: the store refuses a process that comes with another.
//! 2. It follows [`Shards::owned`]. A shard that appears, or appears with another generation: load its state from the
//!    store and go to work, marking attempts and writes with the generation. A shard that disappears: drop its state.
//! 3. Before acting on a shard (handing out, firing, answering) it asks [`Shards::tenure`] whether the tenure of *its*
//!    generation [`holds`](Tenure::holds) now. After a freeze it does not, at once.
//! 4. Each transaction that writes a shard's state begins with the [`fence`], and is rolled back when that says no.
//! 5. A tenure that is [`asked`](Tenure::asked) to leave: take nothing new, settle what is in hand, then call
//!    [`Shards::release`] with its generation. Until then the shard stays, and others wait; after
//!    [`Terms::settle_max`] they wait no longer.
//! 6. Requests for a shard that is not here go to [`Shards::owner_of`]. On the way out: [`Shards::leave`].
//!
//! `jobs` does all of this in its `posts`, and asks the owner by the broker, so that it need not know who that is.
//!
//! Not here: what is in a shard, and sending requests or results to their owner.

pub mod fence;
pub mod meters;
pub mod office;
pub mod plan;
pub mod rendezvous;
pub mod silence;
pub mod store;
pub mod tenancy;
pub mod terms;

pub use fence::Fence;
pub use meters::METERS;
pub use mutirao_core::shard::{MemberId, ShardId, ShardView, shard_of};
pub use office::{Shards, ShardsParts};
pub use store::{ShardStore, Shared};
pub use tenancy::{Asked, Tenure};
pub use terms::{Company, Terms};

/// Why shards cannot be owned here.
#[derive(Debug, thiserror::Error)]
pub enum ShardsError {
    #[error(transparent)]
    Store(#[from] mutirao_store::StoreError),
    /// Keys would fall into other shards than they did before.
    #[error("{group} was cut into {found} shards and cannot be run with {asked}; set it back to {found}")]
    OtherCount { group: String, found: u32, asked: u32 },
    #[error("{group} cannot be cut into {asked} shards: choose 1 to {max}")]
    BadCount { group: String, asked: u32, max: u32 },
    #[error("these lease terms cannot work: {why}")]
    BadTerms { why: String },
}
