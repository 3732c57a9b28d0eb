//! The last word on ownership: a check inside the transaction that writes. A process may freeze between asking whether
//! its tenure holds and the arrival of what it wrote; the store then says that the shard has had another owner since.
//!
//! A lease that was released and not yet claimed again still passes: nobody else can have read what is being written.

use mutirao_store::StoreError;
use mutirao_store::postgres::{Ask, Transaction};
use rusqlite::{Connection, OptionalExtension, params};

use mutirao_core::shard::ShardId;

/// What a write claims to speak for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub group: &'static str,
    pub shard: ShardId,
    pub generation: u64,
}

impl Fence {
    /// Gives one row if the generation is current. To be asked on the connection that writes, before it writes: SQLite
    /// has one writer at a time, so nobody can claim the shard before the transaction ends.
    pub const SQLITE: &str = "SELECT 1 FROM shard_leases WHERE group_name = ?1 AND shard = ?2 AND generation = ?3";

    /// Gives one row if the generation is current, and keeps it so until the transaction ends: whoever wants to claim the
    /// shard waits for that. Renewals do not: they leave the key (group, shard, generation) alone, and `KEY SHARE` only
    /// keeps away those who change it.
    pub const POSTGRES: &str =
        "SELECT 1 FROM shard_leases WHERE group_name = $1 AND shard = $2 AND generation = $3 FOR KEY SHARE";

    pub fn holds_in_sqlite(&self, sql: &Connection) -> rusqlite::Result<bool> {
        let mut select = sql.prepare_cached(Self::SQLITE)?;
        let found = select.query_row(params![self.group, self.shard.0, self.generation as i64], |_| Ok(()));
        found.optional().map(|found| found.is_some())
    }

    pub async fn holds_in_postgres(&self, tx: &Transaction<'_>) -> Result<bool, StoreError> {
        let (shard, generation) = (i64::from(self.shard.0), self.generation as i64);
        tx.row(Self::POSTGRES, &[&self.group, &shard, &generation]).await.map(|found| found.is_some())
    }
}
