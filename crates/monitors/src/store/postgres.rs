//! Monitors in PostgreSQL. Every change of a definition first takes the next revision, whose row stays locked until the
//! change is written: so changes are made one after the other, and seen in the order of their revisions.

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::postgres::{Ask, Row, Transaction};
use mutirao_store::{Migration, Postgres, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    By, Expected, Incident, MonitorRow, MonitorStore, Newcomer, Outcome, Put, Recalled, Settlement, Settling,
    is_excused, verdict_of,
};
use crate::grid::MonitorKey;
use crate::health::Health;

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "monitors", version: 1, sql: include_str!("001_monitors.postgres.sql") },
    super::alerts::postgres::MIGRATION,
    super::rolls::postgres::MIGRATION,
    super::pushes::postgres::MIGRATION,
];

const COLUMNS: &str =
    "key, uuid, shard, definition, revision, owner, created_at, changed_at, changed_by, removed_at, namespace";

pub struct PostgresMonitors(pub Postgres);

type Answer<T> = Result<T, StoreError>;

#[async_trait]
impl MonitorStore for PostgresMonitors {
    async fn put(&self, monitor: Newcomer, expected: Expected, by: By) -> Answer<Put> {
        let mut written = self.put_all(vec![(monitor, expected)], by).await?;
        written.pop().ok_or_else(|| unreadable("a monitor that was written is gone"))
    }

    async fn put_all(&self, all: Vec<(Newcomer, Expected)>, by: By) -> Answer<Vec<Put>> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let mut written = Vec::with_capacity(all.len());
        for (monitor, expected) in &all {
            match put(&tx, monitor, *expected, &by).await? {
                // Nothing is committed.
                unexpected @ Put::Unexpected(_) => return Ok(vec![unexpected]),
                put => written.push(put),
            }
        }
        tx.commit().await?;
        Ok(written)
    }

    async fn remove(&self, name: String, by: By) -> Answer<bool> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let revision = next_revision(&tx).await?;
        let Some(row) = locked(&tx, &by.namespace, &name).await? else { return Ok(false) };
        tx.run(
            "UPDATE monitors SET removed_at = $2, revision = $3, changed_at = $2, changed_by = $4 WHERE key = $1",
            &[&(row.key.0 as i64), &by.at.0, &(revision as i64), &by.who],
        )
        .await?;
        note(&tx, revision, &by, "remove", row.key, None).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn monitor(&self, namespace: String, name: String) -> Answer<Option<MonitorRow>> {
        let sql = format!("SELECT {COLUMNS} FROM monitors WHERE namespace = $1 AND name = $2 AND removed_at IS NULL");
        self.0.connection().await?.row(&sql, &[&namespace, &name]).await?.as_ref().map(row).transpose()
    }

    async fn named(&self, namespace: String, names: Vec<String>) -> Answer<Vec<MonitorRow>> {
        let sql =
            format!("SELECT {COLUMNS} FROM monitors WHERE namespace = $1 AND name = ANY($2) AND removed_at IS NULL");
        self.0.connection().await?.rows(&sql, &[&namespace, &names]).await?.iter().map(row).collect()
    }

    async fn page(&self, namespace: String, after: String, rows: u32) -> Answer<Vec<MonitorRow>> {
        // By bytes, as SQLite does it.
        let sql = format!(
            "SELECT {COLUMNS} FROM monitors WHERE namespace = $1 AND name COLLATE \"C\" > $2 AND removed_at IS NULL
             ORDER BY name COLLATE \"C\" LIMIT $3"
        );
        let found = self.0.connection().await?.rows(&sql, &[&namespace, &after, &i64::from(rows)]).await?;
        found.iter().map(row).collect()
    }

    async fn changed(&self, after: u64, rows: u32) -> Answer<Vec<MonitorRow>> {
        let sql = format!("SELECT {COLUMNS} FROM monitors WHERE revision > $1 ORDER BY revision LIMIT $2");
        let found = self.0.connection().await?.rows(&sql, &[&(after as i64), &i64::from(rows)]).await?;
        found.iter().map(row).collect()
    }

    async fn recall(&self, shard: ShardId) -> Answer<Recalled> {
        let shard = i64::from(shard.0);
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let sql = format!("SELECT {COLUMNS} FROM monitors WHERE shard = $1 AND removed_at IS NULL");
        let monitors = tx.rows(&sql, &[&shard]).await?.iter().map(row).collect::<Answer<_>>()?;
        let health = tx
            .rows(
                "SELECT h.monitor, h.health FROM monitor_health h JOIN monitors m ON m.key = h.monitor
                 WHERE m.shard = $1 AND m.removed_at IS NULL",
                &[&shard],
            )
            .await?;
        let fired = tx.row("SELECT fired_until FROM monitor_rounds WHERE shard = $1", &[&shard]).await?;
        tx.commit().await?;
        let fired_until = fired.map(|row| row.try_get(0).map(Timestamp)).transpose()?;
        Ok(Recalled { monitors, health: health.iter().map(known).collect::<Answer<_>>()?, fired_until })
    }

    async fn settle(&self, fence: Fence, settlement: Settlement) -> Answer<Settling> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Settling::Fenced);
        }
        let new = outcomes(&tx, &settlement.outcomes).await?;
        beliefs(&tx, &settlement).await?;
        super::alerts::postgres::raise(&tx, fence.shard, &settlement.alerts).await?;
        if let Some(until) = settlement.fired_until {
            tx.run(
                "INSERT INTO monitor_rounds (shard, fired_until) VALUES ($1, $2)
                 ON CONFLICT (shard) DO UPDATE SET fired_until = greatest(monitor_rounds.fired_until, $2)",
                &[&i64::from(fence.shard.0), &until.0],
            )
            .await?;
        }
        tx.commit().await?;
        Ok(Settling::Written { new })
    }

    async fn health(&self, monitors: Vec<MonitorKey>) -> Answer<Vec<(MonitorKey, Health)>> {
        let keys: Vec<i64> = monitors.iter().map(|key| key.0 as i64).collect();
        let sql = "SELECT monitor, health FROM monitor_health WHERE monitor = ANY($1)";
        self.0.connection().await?.rows(sql, &[&keys]).await?.iter().map(known).collect()
    }

    async fn outcomes(&self, monitor: MonitorKey, before: Timestamp, rows: u32) -> Answer<Vec<Outcome>> {
        let sql = "SELECT at, verdict, took_us, detail FROM monitor_outcomes
                   WHERE monitor = $1 AND at < $2 ORDER BY at DESC LIMIT $3";
        let found = self.0.connection().await?.rows(sql, &[&(monitor.0 as i64), &before.0, &i64::from(rows)]).await?;
        let outcome = |row: &Row| {
            let number = row.try_get(1)?;
            Ok(Outcome {
                monitor,
                at: Timestamp(row.try_get(0)?),
                verdict: verdict_of(number),
                excused: is_excused(number),
                took_us: row.try_get::<_, Option<i64>>(2)?.map(|took| took as u64),
                detail: row.try_get(3)?,
            })
        };
        found.iter().map(outcome).collect()
    }

    async fn counts(&self, monitor: MonitorKey, since: Timestamp) -> Answer<(u64, u64)> {
        let sql = "SELECT count(*) FILTER (WHERE verdict = 0), count(*) FILTER (WHERE verdict = 1)
                   FROM monitor_outcomes WHERE monitor = $1 AND at >= $2";
        let found = self.0.connection().await?.row(sql, &[&(monitor.0 as i64), &since.0]).await?;
        let Some(row) = found else { return Ok((0, 0)) };
        Ok((row.try_get::<_, i64>(0)? as u64, row.try_get::<_, i64>(1)? as u64))
    }

    async fn incidents(&self, monitor: MonitorKey, rows: u32) -> Answer<Vec<Incident>> {
        let sql = "SELECT opened_at, since, closed_at, evidence FROM monitor_incidents
                   WHERE monitor = $1 ORDER BY opened_at DESC LIMIT $2";
        let found = self.0.connection().await?.rows(sql, &[&(monitor.0 as i64), &i64::from(rows)]).await?;
        let incident = |row: &Row| {
            Ok(Incident {
                monitor,
                opened_at: Timestamp(row.try_get(0)?),
                since: Timestamp(row.try_get(1)?),
                closed_at: row.try_get::<_, Option<i64>>(2)?.map(Timestamp),
                evidence: row.try_get(3)?,
            })
        };
        found.iter().map(incident).collect()
    }

    async fn sweep(&self, before: Timestamp, rows: u32) -> Answer<u64> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let old = tx
            .run(
                "DELETE FROM monitor_outcomes WHERE ctid = ANY(ARRAY(
                     SELECT ctid FROM monitor_outcomes WHERE at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))",
                &[&before.0, &i64::from(rows)],
            )
            .await?;
        for sql in [
            "DELETE FROM monitor_health WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < $1)",
            "DELETE FROM monitor_incidents WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < $1)",
            "DELETE FROM monitor_alerts WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < $1)",
            "DELETE FROM monitor_attention WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < $1)",
            "DELETE FROM monitor_pushes WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < $1)",
            "DELETE FROM monitor_rolls WHERE step IN (0, 1, 2) AND monitor IN (SELECT key FROM monitors WHERE removed_at < $1)",
            "DELETE FROM monitors WHERE removed_at < $1",
        ] {
            tx.run(sql, &[&before.0]).await?;
        }
        tx.commit().await?;
        Ok(old)
    }
}

async fn outcomes(tx: &Transaction<'_>, outcomes: &[Outcome]) -> Answer<u64> {
    if outcomes.is_empty() {
        return Ok(0);
    }
    let monitors: Vec<i64> = outcomes.iter().map(|outcome| outcome.monitor.0 as i64).collect();
    let instants: Vec<i64> = outcomes.iter().map(|outcome| outcome.at.0).collect();
    let verdicts: Vec<i64> = outcomes.iter().map(Outcome::number).collect();
    let took = |outcome: &Outcome| outcome.took_us.map(|took| i64::try_from(took).unwrap_or(i64::MAX));
    let took: Vec<Option<i64>> = outcomes.iter().map(took).collect();
    let clean = |outcome: &Outcome| outcome.detail.as_deref().map(|d| mutirao_store::postgres::text(d).into_owned());
    let details: Vec<Option<String>> = outcomes.iter().map(clean).collect();
    tx.run(
        "INSERT INTO monitor_outcomes (monitor, at, verdict, took_us, detail)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])
         ON CONFLICT DO NOTHING",
        &[&monitors, &instants, &verdicts, &took, &details],
    )
    .await
}

async fn beliefs(tx: &Transaction<'_>, settlement: &Settlement) -> Answer<()> {
    if !settlement.health.is_empty() {
        let keys: Vec<i64> = settlement.health.iter().map(|(key, _)| key.0 as i64).collect();
        let states = settlement.health.iter().map(|(_, health)| text(health)).collect::<Answer<Vec<String>>>()?;
        tx.run(
            "INSERT INTO monitor_health (monitor, health) SELECT * FROM unnest($1::bigint[], $2::text[])
             ON CONFLICT (monitor) DO UPDATE SET health = EXCLUDED.health",
            &[&keys, &states],
        )
        .await?;
    }
    if !settlement.opened.is_empty() {
        let keys: Vec<i64> = settlement.opened.iter().map(|incident| incident.monitor.0 as i64).collect();
        let opened: Vec<i64> = settlement.opened.iter().map(|incident| incident.opened_at.0).collect();
        let since: Vec<i64> = settlement.opened.iter().map(|incident| incident.since.0).collect();
        let evidence: Vec<String> = settlement
            .opened
            .iter()
            .map(|incident| mutirao_store::postgres::text(&incident.evidence).into_owned())
            .collect();
        tx.run(
            "INSERT INTO monitor_incidents (monitor, opened_at, since, evidence)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) ON CONFLICT DO NOTHING",
            &[&keys, &opened, &since, &evidence],
        )
        .await?;
    }
    if !settlement.closed.is_empty() {
        let keys: Vec<i64> = settlement.closed.iter().map(|(key, _)| key.0 as i64).collect();
        let at: Vec<i64> = settlement.closed.iter().map(|(_, at)| at.0).collect();
        tx.run(
            "UPDATE monitor_incidents i SET closed_at = c.at FROM unnest($1::bigint[], $2::bigint[]) AS c (monitor, at)
             WHERE i.monitor = c.monitor AND i.closed_at IS NULL",
            &[&keys, &at],
        )
        .await?;
    }
    Ok(())
}

async fn put(tx: &Transaction<'_>, monitor: &Newcomer, expected: Expected, by: &By) -> Answer<Put> {
    let revision = next_revision(tx).await?;
    let before = locked(tx, &by.namespace, &monitor.spec.name).await?;
    if !expected.fits(before.as_ref().map(|row| row.revision)) {
        return Ok(Put::Unexpected(before));
    }
    let definition = text(&monitor.spec)?;
    let written = match &before {
        Some(row) => {
            tx.row(
                &format!(
                    "UPDATE monitors SET definition = $2, revision = $3, changed_at = $4, changed_by = $5
                     WHERE key = $1 RETURNING {COLUMNS}"
                ),
                &[&(row.key.0 as i64), &definition, &(revision as i64), &by.at.0, &by.who],
            )
            .await?
        }
        None => {
            let shard = i64::from(monitor.shard.0);
            tx.row(
                &format!(
                    "INSERT INTO monitors (uuid, namespace, name, shard, definition, revision, owner, created_at,
                                           changed_at, changed_by)
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $7) RETURNING {COLUMNS}"
                ),
                &[
                    &monitor.uuid,
                    &by.namespace,
                    &monitor.spec.name,
                    &shard,
                    &definition,
                    &(revision as i64),
                    &by.who,
                    &by.at.0,
                ],
            )
            .await?
        }
    };
    let now = row(&written.ok_or_else(|| unreadable("a monitor that was written is gone"))?)?;
    let what = if before.is_some() { "change" } else { "create" };
    note(tx, revision, by, what, now.key, Some(&definition)).await?;
    Ok(if before.is_some() { Put::Changed(now) } else { Put::Created(now) })
}

pub(super) async fn next_revision(tx: &Transaction<'_>) -> Answer<u64> {
    let row = tx.row("UPDATE monitor_revisions SET n = n + 1 RETURNING n", &[]).await?;
    let row = row.ok_or_else(|| unreadable("the count of changes to monitors is gone"))?;
    Ok(row.try_get::<_, i64>(0)? as u64)
}

async fn locked(tx: &Transaction<'_>, namespace: &str, name: &str) -> Answer<Option<MonitorRow>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM monitors WHERE namespace = $1 AND name = $2 AND removed_at IS NULL FOR NO KEY UPDATE"
    );
    tx.row(&sql, &[&namespace, &name]).await?.as_ref().map(row).transpose()
}

pub(super) async fn note(
    tx: &Transaction<'_>,
    revision: u64,
    by: &By,
    what: &str,
    monitor: MonitorKey,
    definition: Option<&str>,
) -> Answer<()> {
    let line =
        "INSERT INTO monitor_changes (revision, at, who, what, monitor, definition) VALUES ($1, $2, $3, $4, $5, $6)";
    tx.run(line, &[&(revision as i64), &by.at.0, &by.who, &what, &(monitor.0 as i64), &definition]).await.map(drop)
}

fn row(row: &Row) -> Answer<MonitorRow> {
    Ok(MonitorRow {
        key: MonitorKey(row.try_get::<_, i64>(0)? as u64),
        uuid: row.try_get(1)?,
        shard: ShardId(row.try_get::<_, i64>(2)? as u32),
        spec: json(row, 3)?,
        revision: row.try_get::<_, i64>(4)? as u64,
        owner: row.try_get(5)?,
        created_at: Timestamp(row.try_get(6)?),
        changed_at: Timestamp(row.try_get(7)?),
        changed_by: row.try_get(8)?,
        removed_at: row.try_get::<_, Option<i64>>(9)?.map(Timestamp),
        namespace: row.try_get(10)?,
    })
}

fn known(row: &Row) -> Answer<(MonitorKey, Health)> {
    Ok((MonitorKey(row.try_get::<_, i64>(0)? as u64), json(row, 1)?))
}

pub(super) fn json<T: DeserializeOwned>(row: &Row, column: usize) -> Answer<T> {
    serde_json::from_str(row.try_get(column)?).map_err(unreadable)
}

pub(super) fn text<T: Serialize>(value: &T) -> Answer<String> {
    serde_json::to_string(value).map_err(unreadable)
}

pub(super) fn unreadable(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unusable { path: "the monitors in PostgreSQL".into(), why: why.to_string() }
}
