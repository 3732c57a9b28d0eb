//! Monitors in SQLite.

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Migration, Sqlite, StoreError};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    By, Expected, Incident, MonitorRow, MonitorStore, Newcomer, Outcome, Put, Recalled, Settlement, Settling,
    is_excused, verdict_of,
};
use crate::grid::MonitorKey;
use crate::health::Health;

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "monitors", version: 1, sql: include_str!("001_monitors.sql") },
    super::alerts::sqlite::MIGRATION,
    super::rolls::sqlite::MIGRATION,
    super::pushes::sqlite::MIGRATION,
];

const COLUMNS: &str =
    "key, uuid, shard, definition, revision, owner, created_at, changed_at, changed_by, removed_at, namespace";

pub struct SqliteMonitors(pub Sqlite);

type Answer<T> = std::result::Result<T, StoreError>;

#[async_trait]
impl MonitorStore for SqliteMonitors {
    async fn put(&self, monitor: Newcomer, expected: Expected, by: By) -> Answer<Put> {
        self.0.write(move |db| put(db, &monitor, expected, &by)).await
    }

    async fn put_all(&self, all: Vec<(Newcomer, Expected)>, by: By) -> Answer<Vec<Put>> {
        self.0
            .write(move |db| {
                for (monitor, expected) in &all {
                    let before = find(db, &by.namespace, &monitor.spec.name)?;
                    if !expected.fits(before.as_ref().map(|row| row.revision)) {
                        return Ok(vec![Put::Unexpected(before)]);
                    }
                }
                all.iter().map(|(monitor, expected)| put(db, monitor, *expected, &by)).collect()
            })
            .await
    }

    async fn remove(&self, name: String, by: By) -> Answer<bool> {
        self.0.write(move |db| remove(db, &name, &by)).await
    }

    async fn monitor(&self, namespace: String, name: String) -> Answer<Option<MonitorRow>> {
        self.0.read(move |db| find(db, &namespace, &name)).await
    }

    async fn named(&self, namespace: String, names: Vec<String>) -> Answer<Vec<MonitorRow>> {
        let one =
            move |db: &Connection| names.iter().filter_map(|name| find(db, &namespace, name).transpose()).collect();
        self.0.read(one).await
    }

    async fn page(&self, namespace: String, after: String, rows: u32) -> Answer<Vec<MonitorRow>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM monitors WHERE namespace = ?1 AND name > ?2 AND removed_at IS NULL ORDER BY name LIMIT ?3"
        );
        self.0.read(move |db| db.prepare_cached(&sql)?.query_map(params![namespace, after, rows], row)?.collect()).await
    }

    async fn changed(&self, after: u64, rows: u32) -> Answer<Vec<MonitorRow>> {
        let sql = format!("SELECT {COLUMNS} FROM monitors WHERE revision > ?1 ORDER BY revision LIMIT ?2");
        self.0.read(move |db| db.prepare_cached(&sql)?.query_map(params![after as i64, rows], row)?.collect()).await
    }

    async fn recall(&self, shard: ShardId) -> Answer<Recalled> {
        self.0.read(move |db| recall(db, shard)).await
    }

    async fn settle(&self, fence: Fence, settlement: Settlement) -> Answer<Settling> {
        self.0.write(move |db| settle(db, &fence, &settlement)).await
    }

    async fn health(&self, monitors: Vec<MonitorKey>) -> Answer<Vec<(MonitorKey, Health)>> {
        self.0
            .read(move |db| {
                let mut select = db.prepare_cached("SELECT health FROM monitor_health WHERE monitor = ?1")?;
                let one = |key: MonitorKey| {
                    let found = select.query_row([key.0 as i64], |row| json(row, 0)).optional();
                    found.map(|health| health.map(|health| (key, health))).transpose()
                };
                monitors.into_iter().filter_map(one).collect()
            })
            .await
    }

    async fn outcomes(&self, monitor: MonitorKey, before: Timestamp, rows: u32) -> Answer<Vec<Outcome>> {
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT at, verdict, took_us, detail FROM monitor_outcomes
                     WHERE monitor = ?1 AND at < ?2 ORDER BY at DESC LIMIT ?3",
                )?
                .query_map(params![monitor.0 as i64, before.0, rows], |row| outcome(monitor, row))?
                .collect()
            })
            .await
    }

    async fn counts(&self, monitor: MonitorKey, since: Timestamp) -> Answer<(u64, u64)> {
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT count(*) FILTER (WHERE verdict = 0), count(*) FILTER (WHERE verdict = 1)
                     FROM monitor_outcomes WHERE monitor = ?1 AND at >= ?2",
                )?
                .query_row(params![monitor.0 as i64, since.0], |row| {
                    Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64))
                })
            })
            .await
    }

    async fn incidents(&self, monitor: MonitorKey, rows: u32) -> Answer<Vec<Incident>> {
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT opened_at, since, closed_at, evidence FROM monitor_incidents
                     WHERE monitor = ?1 ORDER BY opened_at DESC LIMIT ?2",
                )?
                .query_map(params![monitor.0 as i64, rows], |row| {
                    Ok(Incident {
                        monitor,
                        opened_at: Timestamp(row.get(0)?),
                        since: Timestamp(row.get(1)?),
                        closed_at: row.get::<_, Option<i64>>(2)?.map(Timestamp),
                        evidence: row.get(3)?,
                    })
                })?
                .collect()
            })
            .await
    }

    async fn sweep(&self, before: Timestamp, rows: u32) -> Answer<u64> {
        self.0.write(move |db| sweep(db, before, rows)).await
    }
}

fn put(db: &Connection, monitor: &Newcomer, expected: Expected, by: &By) -> Result<Put> {
    let before = find(db, &by.namespace, &monitor.spec.name)?;
    if !expected.fits(before.as_ref().map(|row| row.revision)) {
        return Ok(Put::Unexpected(before));
    }
    let definition = text(&monitor.spec)?;
    let revision = next_revision(db)?;
    let now = match &before {
        Some(row) => {
            db.prepare_cached(
                "UPDATE monitors SET definition = ?2, revision = ?3, changed_at = ?4, changed_by = ?5 WHERE key = ?1",
            )?
            .execute(params![row.key.0 as i64, definition, revision as i64, by.at.0, by.who])?;
            let spec = monitor.spec.clone();
            MonitorRow { spec, revision, changed_at: by.at, changed_by: by.who.clone(), ..row.clone() }
        }
        None => {
            db.prepare_cached(
                "INSERT INTO monitors (uuid, namespace, name, shard, definition, revision, owner, created_at, changed_at,
                                       changed_by)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?7)",
            )?
            .execute(params![
                monitor.uuid,
                by.namespace,
                monitor.spec.name,
                monitor.shard.0,
                definition,
                revision as i64,
                by.who,
                by.at.0
            ])?;
            MonitorRow {
                key: MonitorKey(db.last_insert_rowid() as u64),
                uuid: monitor.uuid.clone(),
                shard: monitor.shard,
                spec: monitor.spec.clone(),
                revision,
                namespace: by.namespace.clone(),
                owner: by.who.clone(),
                created_at: by.at,
                changed_at: by.at,
                changed_by: by.who.clone(),
                removed_at: None,
            }
        }
    };
    note(db, revision, by, if before.is_some() { "change" } else { "create" }, now.key, Some(&definition))?;
    Ok(if before.is_some() { Put::Changed(now) } else { Put::Created(now) })
}

fn remove(db: &Connection, name: &str, by: &By) -> Result<bool> {
    let Some(row) = find(db, &by.namespace, name)? else { return Ok(false) };
    let revision = next_revision(db)?;
    db.prepare_cached(
        "UPDATE monitors SET removed_at = ?2, revision = ?3, changed_at = ?2, changed_by = ?4 WHERE key = ?1",
    )?
    .execute(params![row.key.0 as i64, by.at.0, revision as i64, by.who])?;
    note(db, revision, by, "remove", row.key, None)?;
    Ok(true)
}

fn settle(db: &Connection, fence: &Fence, settlement: &Settlement) -> Result<Settling> {
    if !fence.holds_in_sqlite(db)? {
        return Ok(Settling::Fenced);
    }
    let mut new = 0;
    let mut insert = db.prepare_cached(
        "INSERT INTO monitor_outcomes (monitor, at, verdict, took_us, detail) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO NOTHING",
    )?;
    for outcome in &settlement.outcomes {
        let Outcome { monitor, at, took_us, detail, .. } = outcome;
        let took = took_us.map(|took| i64::try_from(took).unwrap_or(i64::MAX));
        new += insert.execute(params![monitor.0 as i64, at.0, outcome.number(), took, detail])? as u64;
    }
    let mut health = db.prepare_cached(
        "INSERT INTO monitor_health (monitor, health) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET health = ?2",
    )?;
    for (monitor, state) in &settlement.health {
        health.execute(params![monitor.0 as i64, text(state)?])?;
    }
    let mut open = db.prepare_cached(
        "INSERT INTO monitor_incidents (monitor, opened_at, since, evidence) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
    )?;
    for Incident { monitor, opened_at, since, evidence, .. } in &settlement.opened {
        open.execute(params![monitor.0 as i64, opened_at.0, since.0, evidence])?;
    }
    let mut close =
        db.prepare_cached("UPDATE monitor_incidents SET closed_at = ?2 WHERE monitor = ?1 AND closed_at IS NULL")?;
    for (monitor, at) in &settlement.closed {
        close.execute(params![monitor.0 as i64, at.0])?;
    }
    super::alerts::sqlite::raise(db, fence.shard, &settlement.alerts)?;
    if let Some(until) = settlement.fired_until {
        db.prepare_cached(
            "INSERT INTO monitor_rounds (shard, fired_until) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET fired_until = max(fired_until, ?2)",
        )?
        .execute(params![fence.shard.0, until.0])?;
    }
    Ok(Settling::Written { new })
}

fn recall(db: &Connection, shard: ShardId) -> Result<Recalled> {
    let sql = format!("SELECT {COLUMNS} FROM monitors WHERE shard = ?1 AND removed_at IS NULL");
    let monitors = db.prepare_cached(&sql)?.query_map([shard.0], row)?.collect::<Result<_>>()?;
    let health = db
        .prepare_cached(
            "SELECT h.monitor, h.health FROM monitor_health h JOIN monitors m ON m.key = h.monitor
             WHERE m.shard = ?1 AND m.removed_at IS NULL",
        )?
        .query_map([shard.0], |row| Ok((MonitorKey(row.get::<_, i64>(0)? as u64), json(row, 1)?)))?
        .collect::<Result<_>>()?;
    let fired_until = db
        .prepare_cached("SELECT fired_until FROM monitor_rounds WHERE shard = ?1")?
        .query_row([shard.0], |row| row.get(0).map(Timestamp))
        .optional()?;
    Ok(Recalled { monitors, health, fired_until })
}

fn sweep(db: &Connection, before: Timestamp, rows: u32) -> Result<u64> {
    let old = db
        .prepare_cached(
            "DELETE FROM monitor_outcomes WHERE (monitor, at) IN
             (SELECT monitor, at FROM monitor_outcomes WHERE at < ?1 LIMIT ?2)",
        )?
        .execute(params![before.0, rows])?;
    for sql in [
        "DELETE FROM monitor_health WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < ?1)",
        "DELETE FROM monitor_incidents WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < ?1)",
        "DELETE FROM monitor_alerts WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < ?1)",
        "DELETE FROM monitor_attention WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < ?1)",
        "DELETE FROM monitor_pushes WHERE monitor IN (SELECT key FROM monitors WHERE removed_at < ?1)",
        "DELETE FROM monitor_rolls WHERE step IN (0, 1, 2) AND monitor IN (SELECT key FROM monitors WHERE removed_at < ?1)",
        "DELETE FROM monitors WHERE removed_at < ?1",
    ] {
        db.prepare_cached(sql)?.execute([before.0])?;
    }
    Ok(old as u64)
}

fn find(db: &Connection, namespace: &str, name: &str) -> Result<Option<MonitorRow>> {
    let sql = format!("SELECT {COLUMNS} FROM monitors WHERE namespace = ?1 AND name = ?2 AND removed_at IS NULL");
    db.prepare_cached(&sql)?.query_row([namespace, name], row).optional()
}

pub(super) fn next_revision(db: &Connection) -> Result<u64> {
    let n: i64 =
        db.prepare_cached("UPDATE monitor_revisions SET n = n + 1 RETURNING n")?.query_row([], |row| row.get(0))?;
    Ok(n as u64)
}

pub(super) fn note(
    db: &Connection,
    revision: u64,
    by: &By,
    what: &str,
    monitor: MonitorKey,
    definition: Option<&str>,
) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO monitor_changes (revision, at, who, what, monitor, definition) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![revision as i64, by.at.0, by.who, what, monitor.0 as i64, definition])
    .map(drop)
}

fn row(row: &Row<'_>) -> Result<MonitorRow> {
    Ok(MonitorRow {
        key: MonitorKey(row.get::<_, i64>(0)? as u64),
        uuid: row.get(1)?,
        shard: ShardId(row.get(2)?),
        spec: json(row, 3)?,
        revision: row.get::<_, i64>(4)? as u64,
        owner: row.get(5)?,
        created_at: Timestamp(row.get(6)?),
        changed_at: Timestamp(row.get(7)?),
        changed_by: row.get(8)?,
        removed_at: row.get::<_, Option<i64>>(9)?.map(Timestamp),
        namespace: row.get(10)?,
    })
}

fn outcome(monitor: MonitorKey, row: &Row<'_>) -> Result<Outcome> {
    let number = row.get(1)?;
    Ok(Outcome {
        monitor,
        at: Timestamp(row.get(0)?),
        verdict: verdict_of(number),
        excused: is_excused(number),
        took_us: row.get::<_, Option<i64>>(2)?.map(|took| took as u64),
        detail: row.get(3)?,
    })
}

pub(super) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

pub(super) fn text<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
