//! Values kept at hand, so that reading costs the store nothing. What is found here is what the store would say at that
//! moment, or it is not found: a cache that cannot be reached, restarts empty or throws things away makes reading slower, and
//! never wrong.
//!
//! How that is so, for one shard (see [`slots`], which is all of it, as a machine without I/O):
//!
//! - Whoever applies a shard's writes *vouches* for its cached values, for a short while at a time, under a name that is never
//!   used again (its [`Reign`]). Values count only while somebody vouches, and only those of this very reign.
//! - Before it commits, it marks the keys that change: what is cached of them is gone, and stays so until the commit is done and
//!   the new values of those that were cached are offered. What nobody has read takes no room. If marking fails, it waits until
//!   nobody can believe in its word any more ([`warden`]).
//! - Whoever finds nothing takes a lease on the key, reads the store and fills the key in; a mark takes the lease away, so what
//!   was read before a commit cannot be filled in after it.
//!
//! [`memory`] keeps values in this process, for an installation of one manager; [`redis`] for many, with [`near`] before it.

pub mod flights;
pub mod memory;
pub mod near;
pub mod redis;
pub mod slots;
pub mod warden;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::{Mono, ShardId};

use crate::fold::Entry;
use crate::write::Place;

/// For how long somebody's word counts.
pub const VOUCHED_FOR: Duration = Duration::from_secs(2);
/// After this long without a new word, by whoever gave the last, nobody counts on it: the clocks of two machines, and the time
/// that a word was on its way, are in it.
pub const LAPSED_AFTER: Duration = Duration::from_secs(3);
/// How long whoever found nothing may take to fill it in; then the next may. One that was given up keeps nobody from it for longer.
pub const LEASE: Duration = Duration::from_secs(5);

pub type Shared = Arc<dyn Cache>;

/// One stretch of vouching by one applier. The epoch is random: it never comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    /// Of the applier's lease.
    pub generation: u64,
    pub epoch: u64,
}

/// Permission to fill a key in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// What is found under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// This is what the store would say. Revision 0 without a value: that there is nothing.
    Hit(Entry),
    /// Nothing; whoever reads the store may fill it in.
    Miss(Token),
    /// Nothing, and what the store says is not to be filled in now.
    Past,
}

/// Why the word could not be given or kept.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CacheError {
    /// It lapsed, was thrown away, or another applier vouches now.
    #[error("nobody counts on this word any more")]
    Lapsed,
    /// Whether it was done is not known.
    #[error("the cache cannot be reached: {0}")]
    Unreachable(String),
    /// It answers, and has not done it.
    #[error("the cache refuses: {0}")]
    Refused(String),
}

#[async_trait]
pub trait Cache: Send + Sync + 'static {
    /// `token`: what is to be the permission, if there is nothing; one that nobody has used.
    async fn look(&self, place: &Place, token: Token) -> Looked;

    /// What the store said after a miss.
    async fn fill(&self, place: &Place, token: Token, entry: &Entry);

    /// How often the word must be given anew; none where it lasts as long as whoever gave it.
    fn renew_every(&self) -> Option<Duration>;

    /// Whether it answers; says nothing to anybody.
    async fn reach(&self) -> Result<(), CacheError>;

    /// Vouches from now on; nothing that was cached before counts. `said`: when this was decided, so that a word that is late
    /// says no more than it would have then.
    async fn begin(&self, shard: ShardId, reign: Reign, said: Mono) -> Result<(), CacheError>;

    /// Vouches on.
    async fn renew(&self, shard: ShardId, reign: Reign, said: Mono) -> Result<(), CacheError>;

    /// These are about to change: nothing is found of them until they are offered. Says of which of them, by their place in
    /// this row, something was kept: somebody reads those, so they are worth being offered anew.
    async fn mark(&self, shard: ShardId, reign: Reign, places: &[Place]) -> Result<Vec<usize>, CacheError>;

    /// What they are now; kept if nothing newer is. None: that is not known or not worth keeping, only that they do not
    /// change any more.
    async fn offer(&self, shard: ShardId, reign: Reign, entries: &[(Place, Option<Entry>)]) -> Result<(), CacheError>;
}

/// That there is nothing, as it is cached.
pub fn nothing() -> Entry {
    Entry { revision: 0, changed_at: mutirao_core::Timestamp(0), value: None, expires_at: None }
}
