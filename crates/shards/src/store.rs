//! Where leases are kept. The store judges nothing by time: it compares what a member has seen with what is there, and
//! swaps. That makes it the same on every engine, and no step of a database's clock can make two owners.
//!
//! Every call may fail with its effect done or not done, and may take effect after its caller has given up.

pub mod memory;
pub mod postgres;
pub mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_store::{Database, FolderLock, StoreError};

use mutirao_core::shard::{MemberId, ShardId};

pub use postgres::PostgresShards;
pub use sqlite::SqliteShards;

pub type Shared = Arc<dyn ShardStore>;

/// The installation's shards, for all groups. Opened once in each process, before anything is owned: with the lock of the
/// data folder in hand, what a dead predecessor left in SQLite is free at once.
pub async fn open(database: &Database, folder: Option<&FolderLock>) -> Result<Shared, StoreError> {
    Ok(match (database, folder) {
        (Database::Sqlite(db), Some(held)) => Arc::new(SqliteShards::alone(db.clone(), held).await?),
        (Database::Sqlite(db), None) => Arc::new(SqliteShards::shared(db.clone())),
        (Database::Postgres(db), _) => Arc::new(PostgresShards(db.clone())),
    })
}

/// Frees what a member left behind of whom it is certain that it is dead, as the holder of a data folder is of the one
/// who held it before. What it had sent to the store and what had not arrived yet is stopped by the fence.
pub async fn bury(store: &Shared, group: &str, dead: &MemberId) -> Result<(), StoreError> {
    let leases = store.leases(group).await?;
    for row in leases.into_iter().filter(|row| row.owner.as_ref() == Some(dead)) {
        store.release(group, dead, row.shard, row.mark.generation).await?;
    }
    store.forget(group, dead, None).await
}

/// A point in the life of a lease. It never comes back: while it stays the same, nobody has claimed or renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Claims so far.
    pub generation: u64,
    /// Renewals since the last claim.
    pub beats: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    pub member: MemberId,
    /// Where it answers.
    pub address: String,
    pub beats: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    pub shard: ShardId,
    /// None when released.
    pub owner: Option<MemberId>,
    pub mark: Mark,
    /// How long its owner is to be left alone after its last beat.
    pub lease: Duration,
}

#[async_trait]
pub trait ShardStore: Send + Sync + 'static {
    /// Cuts a group into shards, if nobody has, and says into how many it is cut.
    async fn found(&self, group: &str, count: u32) -> Result<u32, StoreError>;

    /// The member lives, and answers at this address.
    async fn beat(&self, group: &str, member: &MemberId, address: &str) -> Result<(), StoreError>;

    /// Strikes a member off. With `beats`, only if it has not beaten since.
    async fn forget(&self, group: &str, member: &MemberId, beats: Option<u64>) -> Result<(), StoreError>;

    async fn members(&self, group: &str) -> Result<Vec<MemberRow>, StoreError>;

    /// Leases that were ever claimed, in the order of their shards.
    async fn leases(&self, group: &str) -> Result<Vec<LeaseRow>, StoreError>;

    /// Makes the member the owner if the lease is as it was seen (the default mark: never claimed). The new generation,
    /// one more than before; none when somebody was there in between.
    async fn claim(
        &self,
        group: &str,
        shard: ShardId,
        seen: Mark,
        member: &MemberId,
        lease: Duration,
    ) -> Result<Option<u64>, StoreError>;

    /// Renews leases that the member holds in these generations. Those that it does are returned.
    async fn renew(&self, group: &str, member: &MemberId, held: &[(ShardId, u64)]) -> Result<Vec<ShardId>, StoreError>;

    /// Gives a lease back, if the member holds it in this generation.
    async fn release(&self, group: &str, member: &MemberId, shard: ShardId, generation: u64) -> Result<(), StoreError>;
}
