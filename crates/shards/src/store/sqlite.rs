//! Leases in SQLite: for one process that has the data folder to itself, and for several on one machine.

use std::time::Duration;

use async_trait::async_trait;
use mutirao_store::{FolderLock, Migration, Sqlite, StoreError};
use rusqlite::{OptionalExtension, Row, params};

use super::{LeaseRow, Mark, MemberRow, ShardStore};
use mutirao_core::shard::{MemberId, ShardId};

pub const MIGRATIONS: &[Migration] =
    &[Migration { component: "shards", version: 1, sql: include_str!("sqlite/001_shards.sql") }];

pub struct SqliteShards(Sqlite);

impl SqliteShards {
    /// Among several processes.
    pub fn shared(db: Sqlite) -> Self {
        Self(db)
    }

    /// For the one process that holds the data folder. All who owned anything before it are dead, so their leases are
    /// free at once: a restart waits for nobody.
    pub async fn alone(db: Sqlite, _held: &FolderLock) -> Result<Self, StoreError> {
        db.write(|sql| {
            sql.execute("DELETE FROM shard_members", [])?;
            sql.execute("UPDATE shard_leases SET owner = NULL WHERE owner IS NOT NULL", [])
        })
        .await?;
        Ok(Self(db))
    }
}

#[async_trait]
impl ShardStore for SqliteShards {
    async fn found(&self, group: &str, count: u32) -> Result<u32, StoreError> {
        let group = group.to_owned();
        self.0
            .write(move |sql| {
                sql.execute(
                    "INSERT INTO shard_groups (name, shards) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    (&group, count),
                )?;
                sql.query_row("SELECT shards FROM shard_groups WHERE name = ?1", [&group], |row| row.get(0))
            })
            .await
    }

    async fn beat(&self, group: &str, member: &MemberId, address: &str) -> Result<(), StoreError> {
        let (group, member, address) = (group.to_owned(), member.0.clone(), address.to_owned());
        self.0
            .write(move |sql| {
                sql.prepare_cached(
                    "INSERT INTO shard_members (group_name, member, address, beats) VALUES (?1, ?2, ?3, 1)
                     ON CONFLICT DO UPDATE SET address = excluded.address, beats = beats + 1",
                )?
                .execute((group, member, address))
            })
            .await
            .map(|_| ())
    }

    async fn forget(&self, group: &str, member: &MemberId, beats: Option<u64>) -> Result<(), StoreError> {
        let (group, member) = (group.to_owned(), member.0.clone());
        self.0
            .write(move |sql| {
                sql.prepare_cached(
                    "DELETE FROM shard_members WHERE group_name = ?1 AND member = ?2 AND (?3 IS NULL OR beats = ?3)",
                )?
                .execute((group, member, beats.map(|beats| beats as i64)))
            })
            .await
            .map(|_| ())
    }

    async fn members(&self, group: &str) -> Result<Vec<MemberRow>, StoreError> {
        let group = group.to_owned();
        self.0
            .read(move |sql| {
                let mut select = sql.prepare_cached(
                    "SELECT member, address, beats FROM shard_members WHERE group_name = ?1 ORDER BY member",
                )?;
                select.query_map([group], member_row)?.collect()
            })
            .await
    }

    async fn leases(&self, group: &str) -> Result<Vec<LeaseRow>, StoreError> {
        let group = group.to_owned();
        self.0
            .read(move |sql| {
                let mut select = sql.prepare_cached(
                    "SELECT shard, owner, generation, beats, lease_ms FROM shard_leases
                     WHERE group_name = ?1 ORDER BY shard",
                )?;
                select.query_map([group], lease_row)?.collect()
            })
            .await
    }

    async fn claim(
        &self,
        group: &str,
        shard: ShardId,
        seen: Mark,
        member: &MemberId,
        lease: Duration,
    ) -> Result<Option<u64>, StoreError> {
        let (group, member, lease_ms) = (group.to_owned(), member.0.clone(), lease.as_millis() as i64);
        self.0
            .write(move |sql| {
                let generation = |row: &Row<'_>| row.get::<_, i64>(0).map(|generation| generation as u64);
                let claimed = if seen == Mark::default() {
                    sql.prepare_cached(
                        "INSERT INTO shard_leases (group_name, shard, owner, generation, beats, lease_ms)
                         VALUES (?1, ?2, ?3, 1, 0, ?4) ON CONFLICT DO NOTHING RETURNING generation",
                    )?
                    .query_row(params![group, shard.0, member, lease_ms], generation)
                } else {
                    sql.prepare_cached(
                        "UPDATE shard_leases SET owner = ?3, generation = generation + 1, beats = 0, lease_ms = ?4
                         WHERE group_name = ?1 AND shard = ?2 AND generation = ?5 AND beats = ?6 RETURNING generation",
                    )?
                    .query_row(
                        params![group, shard.0, member, lease_ms, seen.generation as i64, seen.beats as i64],
                        generation,
                    )
                };
                claimed.optional()
            })
            .await
    }

    async fn renew(&self, group: &str, member: &MemberId, held: &[(ShardId, u64)]) -> Result<Vec<ShardId>, StoreError> {
        let (group, member, held) = (group.to_owned(), member.0.clone(), held.to_vec());
        self.0
            .write(move |sql| {
                let mut update = sql.prepare_cached(
                    "UPDATE shard_leases SET beats = beats + 1
                     WHERE group_name = ?1 AND shard = ?2 AND generation = ?3 AND owner = ?4",
                )?;
                let mut kept = Vec::with_capacity(held.len());
                for (shard, generation) in held {
                    if update.execute(params![group, shard.0, generation as i64, member])? == 1 {
                        kept.push(shard);
                    }
                }
                Ok(kept)
            })
            .await
    }

    async fn release(&self, group: &str, member: &MemberId, shard: ShardId, generation: u64) -> Result<(), StoreError> {
        let (group, member) = (group.to_owned(), member.0.clone());
        self.0
            .write(move |sql| {
                sql.prepare_cached(
                    "UPDATE shard_leases SET owner = NULL
                     WHERE group_name = ?1 AND shard = ?2 AND generation = ?3 AND owner = ?4",
                )?
                .execute(params![group, shard.0, generation as i64, member])
            })
            .await
            .map(|_| ())
    }
}

fn member_row(row: &Row<'_>) -> rusqlite::Result<MemberRow> {
    Ok(MemberRow { member: MemberId(row.get(0)?), address: row.get(1)?, beats: row.get::<_, i64>(2)? as u64 })
}

fn lease_row(row: &Row<'_>) -> rusqlite::Result<LeaseRow> {
    Ok(LeaseRow {
        shard: ShardId(row.get(0)?),
        owner: row.get::<_, Option<String>>(1)?.map(MemberId),
        mark: Mark { generation: row.get::<_, i64>(2)? as u64, beats: row.get::<_, i64>(3)? as u64 },
        lease: Duration::from_millis(row.get::<_, i64>(4)? as u64),
    })
}
