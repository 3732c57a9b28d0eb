//! Leases in PostgreSQL, for processes on many machines.
//!
//! Give it a [`Postgres`] of its own: where renewals wait for a connection behind long transactions, a busy process loses
//! its shards.
//!
//! Its promises rest on what the server has answered being there afterwards. A failover to a replica that lags behind may
//! take a claim back and give its generation out twice; replicate synchronously, or let the leases run out in between.

use std::time::Duration;

use async_trait::async_trait;
use mutirao_store::postgres::{Ask, Row, text};
use mutirao_store::{Migration, Postgres, StoreError};

use super::{LeaseRow, Mark, MemberRow, ShardStore};
use mutirao_core::shard::{MemberId, ShardId};

/// Connections that are enough: two for the rounds, which beat and renew at once, and two for shards that are released
/// meanwhile.
pub const CONNECTIONS_MAX: usize = 4;

pub const MIGRATIONS: &[Migration] =
    &[Migration { component: "shards", version: 1, sql: include_str!("postgres/001_shards.sql") }];

/// Everything of theirs ends with the statement, so a call that is given up leaves nothing open.
pub struct PostgresShards(pub Postgres);

#[async_trait]
impl ShardStore for PostgresShards {
    async fn found(&self, group: &str, count: u32) -> Result<u32, StoreError> {
        let connection = self.0.connection().await?;
        let insert = "INSERT INTO shard_groups (name, shards) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        connection.run(insert, &[&group, &i64::from(count)]).await?;
        let found = connection.row("SELECT shards FROM shard_groups WHERE name = $1", &[&group]).await?;
        found.map_or(Ok(count), |row| number(&row, 0).map(|shards| shards as u32))
    }

    async fn beat(&self, group: &str, member: &MemberId, address: &str) -> Result<(), StoreError> {
        let beat = "INSERT INTO shard_members AS m (group_name, member, address, beats) VALUES ($1, $2, $3, 1)
                    ON CONFLICT (group_name, member) DO UPDATE SET address = excluded.address, beats = m.beats + 1";
        self.0.connection().await?.run(beat, &[&group, &member.0, &text(address)]).await.map(|_| ())
    }

    async fn forget(&self, group: &str, member: &MemberId, beats: Option<u64>) -> Result<(), StoreError> {
        let beats = beats.map(|beats| beats as i64);
        let forget =
            "DELETE FROM shard_members WHERE group_name = $1 AND member = $2 AND ($3::bigint IS NULL OR beats = $3)";
        self.0.connection().await?.run(forget, &[&group, &member.0, &beats]).await.map(|_| ())
    }

    async fn members(&self, group: &str) -> Result<Vec<MemberRow>, StoreError> {
        let members = "SELECT member, address, beats FROM shard_members WHERE group_name = $1 ORDER BY member";
        let rows = self.0.connection().await?.rows(members, &[&group]).await?;
        rows.iter().map(member_row).collect()
    }

    async fn leases(&self, group: &str) -> Result<Vec<LeaseRow>, StoreError> {
        let leases = "SELECT shard, owner, generation, beats, lease_ms FROM shard_leases
                      WHERE group_name = $1 ORDER BY shard";
        let rows = self.0.connection().await?.rows(leases, &[&group]).await?;
        rows.iter().map(lease_row).collect()
    }

    async fn claim(
        &self,
        group: &str,
        shard: ShardId,
        seen: Mark,
        member: &MemberId,
        lease: Duration,
    ) -> Result<Option<u64>, StoreError> {
        let connection = self.0.connection().await?;
        let (shard, lease_ms) = (i64::from(shard.0), lease.as_millis() as i64);
        let claimed = if seen == Mark::default() {
            let first = "INSERT INTO shard_leases (group_name, shard, owner, generation, beats, lease_ms)
                         VALUES ($1, $2, $3, 1, 0, $4) ON CONFLICT (group_name, shard) DO NOTHING RETURNING generation";
            connection.row(first, &[&group, &shard, &member.0, &lease_ms]).await?
        } else {
            let next = "UPDATE shard_leases SET owner = $3, generation = generation + 1, beats = 0, lease_ms = $4
                        WHERE group_name = $1 AND shard = $2 AND generation = $5 AND beats = $6 RETURNING generation";
            let (generation, beats) = (seen.generation as i64, seen.beats as i64);
            connection.row(next, &[&group, &shard, &member.0, &lease_ms, &generation, &beats]).await?
        };
        claimed.map(|row| number(&row, 0)).transpose()
    }

    async fn renew(&self, group: &str, member: &MemberId, held: &[(ShardId, u64)]) -> Result<Vec<ShardId>, StoreError> {
        let renew = "UPDATE shard_leases l SET beats = l.beats + 1
                     FROM unnest($3::bigint[], $4::bigint[]) AS held (shard, generation)
                     WHERE l.group_name = $1 AND l.owner = $2 AND l.shard = held.shard
                       AND l.generation = held.generation
                     RETURNING l.shard";
        let shards: Vec<i64> = held.iter().map(|(shard, _)| i64::from(shard.0)).collect();
        let generations: Vec<i64> = held.iter().map(|(_, generation)| *generation as i64).collect();
        let rows = self.0.connection().await?.rows(renew, &[&group, &member.0, &shards, &generations]).await?;
        rows.iter().map(|row| number(row, 0).map(|shard| ShardId(shard as u32))).collect()
    }

    async fn release(&self, group: &str, member: &MemberId, shard: ShardId, generation: u64) -> Result<(), StoreError> {
        let release = "UPDATE shard_leases SET owner = NULL
                       WHERE group_name = $1 AND shard = $2 AND generation = $3 AND owner = $4";
        let (shard, generation) = (i64::from(shard.0), generation as i64);
        self.0.connection().await?.run(release, &[&group, &shard, &generation, &member.0]).await.map(|_| ())
    }
}

fn member_row(row: &Row) -> Result<MemberRow, StoreError> {
    Ok(MemberRow { member: MemberId(row.try_get(0)?), address: row.try_get(1)?, beats: number(row, 2)? })
}

fn lease_row(row: &Row) -> Result<LeaseRow, StoreError> {
    Ok(LeaseRow {
        shard: ShardId(number(row, 0)? as u32),
        owner: row.try_get::<_, Option<String>>(1)?.map(MemberId),
        mark: Mark { generation: number(row, 2)?, beats: number(row, 3)? },
        lease: Duration::from_millis(number(row, 4)?),
    })
}

fn number(row: &Row, column: usize) -> Result<u64, StoreError> {
    Ok(row.try_get::<_, i64>(column)? as u64)
}
