//! Flows in SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::declared::Became;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Migration, Sqlite, StoreError};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use serde::de::DeserializeOwned;

use super::{
    Begun, By, Columns, Fate, FlowRow, FlowStore, NewRun, Progress, RunRecord, RunRow, RunsOf, became, noted, said,
    step_key,
};
use crate::foreman::words::{Batch, Noted, Outcome, RunKey, Try};
use crate::start::Fingerprint;
use crate::wire::Secret;
use crate::{FlowSpec, SHARDS};

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "flows", version: 1, sql: include_str!("001_flows.sql") },
    Migration { component: "flows", version: 2, sql: include_str!("002_noted.sql") },
    Migration { component: "flows", version: 3, sql: include_str!("003_since.sql") },
];

const RUN: &str = "run, namespace, owner, flow, started_at, cancelled, ended, ended_at, announced";

pub struct SqliteFlows(pub Sqlite);

type Answer<T> = std::result::Result<T, StoreError>;

#[async_trait]
impl FlowStore for SqliteFlows {
    async fn put(&self, flows: Vec<FlowSpec>, by: By) -> Answer<Vec<Became>> {
        self.0.write(move |db| flows.iter().map(|spec| put(db, spec, &by)).collect()).await
    }

    async fn flow(&self, namespace: String, name: String) -> Answer<Option<FlowRow>> {
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT definition, revision, changed_at, changed_by FROM flows WHERE namespace = ?1 AND name = ?2",
                )?
                .query_row([namespace, name], flow)
                .optional()
            })
            .await
    }

    async fn flows(&self, namespace: String, after: String, rows: u32) -> Answer<Vec<FlowRow>> {
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT definition, revision, changed_at, changed_by FROM flows
                     WHERE namespace = ?1 AND name > ?2 ORDER BY name LIMIT ?3",
                )?
                .query_map(params![namespace, after, rows], flow)?
                .collect()
            })
            .await
    }

    async fn remove(&self, namespace: String, name: String) -> Answer<bool> {
        self.0
            .write(move |db| {
                let sql = "DELETE FROM flows WHERE namespace = ?1 AND name = ?2";
                Ok(db.prepare_cached(sql)?.execute([namespace, name])? > 0)
            })
            .await
    }

    async fn begin(&self, run: NewRun) -> Answer<Begun> {
        self.0.write(move |db| begin(db, &run)).await
    }

    async fn asked(&self, namespace: String, key: String, print: Fingerprint) -> Answer<Option<Begun>> {
        self.0.read(move |db| before(db, &namespace, &key, print)).await
    }

    async fn runs(&self, which: RunsOf) -> Answer<Vec<RunRow>> {
        self.0
            .read(move |db| {
                let of_flow = if which.flow.is_some() { "AND flow = ?4" } else { "AND ?4 IS NULL" };
                let sql = format!(
                    "SELECT {RUN} FROM flow_runs WHERE namespace = ?1 AND run < ?2 {of_flow} ORDER BY run DESC LIMIT ?3"
                );
                let before = which.before.map_or(i64::MAX, |key| key.0 as i64);
                let args = params![which.namespace, before, which.rows, which.flow];
                db.prepare_cached(&sql)?.query_map(args, row)?.collect()
            })
            .await
    }

    async fn read(&self, runs: Vec<RunKey>) -> Answer<Vec<RunRecord>> {
        self.0.read(move |db| runs.into_iter().filter_map(|run| record(db, run).transpose()).collect()).await
    }

    async fn row(&self, run: RunKey) -> Answer<Option<RunRow>> {
        let sql = format!("SELECT {RUN} FROM flow_runs WHERE run = ?1");
        self.0.read(move |db| db.prepare_cached(&sql)?.query_row([run.0 as i64], row).optional()).await
    }

    async fn progress(&self, run: RunKey) -> Answer<Option<Progress>> {
        let sql =
            "SELECT (SELECT count(*) FROM flow_outcomes WHERE flow_outcomes.run = flow_runs.run), ended IS NOT NULL
                   FROM flow_runs WHERE run = ?1";
        let progress = |row: &Row<'_>| Ok(Progress { outcomes: row.get::<_, i64>(0)? as usize, ended: row.get(1)? });
        self.0.read(move |db| db.prepare_cached(sql)?.query_row([run.0 as i64], progress).optional()).await
    }

    async fn cancel(&self, run: RunKey) -> Answer<bool> {
        self.0
            .write(move |db| {
                let sql = "UPDATE flow_runs SET cancelled = 1 WHERE run = ?1 AND ended IS NULL";
                Ok(db.prepare_cached(sql)?.execute([run.0 as i64])? > 0)
            })
            .await
    }

    async fn open(&self, shard: ShardId, rows: u32) -> Answer<Vec<(RunKey, bool)>> {
        self.0
            .read(move |db| {
                let sql = format!(
                    "SELECT run, cancelled FROM flow_runs WHERE run % {SHARDS} = ?1 AND announced = 0 ORDER BY run LIMIT ?2"
                );
                db.prepare_cached(&sql)?
                    .query_map([shard.0, rows], |row| Ok((RunKey(row.get::<_, i64>(0)? as u64), row.get(1)?)))?
                    .collect()
            })
            .await
    }

    async fn write(&self, fence: Fence, batch: Arc<Batch>) -> Answer<Fate> {
        self.0.write(move |db| write(db, &fence, &batch)).await
    }

    async fn sweep(&self, before: Timestamp, rows: u32) -> Answer<u64> {
        self.0.write(move |db| sweep(db, before, rows)).await
    }

    async fn secret(&self, candidate: [u8; 32]) -> Answer<Secret> {
        let kept = self.0.write(move |db| {
            db.execute("INSERT INTO flow_secret (one, secret) VALUES (1, ?1) ON CONFLICT DO NOTHING", [candidate])?;
            db.query_row("SELECT secret FROM flow_secret", [], |row| row.get::<_, [u8; 32]>(0))
        });
        kept.await.map(Secret)
    }
}

fn put(db: &Connection, spec: &FlowSpec, by: &By) -> Result<Became> {
    let definition = text(spec)?;
    let before: Option<String> = db
        .prepare_cached("SELECT definition FROM flows WHERE namespace = ?1 AND name = ?2")?
        .query_row([&by.namespace, &spec.name], |row| row.get(0))
        .optional()?;
    let became = became(before.as_deref(), &definition);
    if became != Became::Unchanged {
        db.prepare_cached(
            "INSERT INTO flows (namespace, name, definition, revision, changed_at, changed_by) VALUES (?1, ?2, ?3, 1, ?4, ?5)
             ON CONFLICT (namespace, name) DO UPDATE SET definition = ?3, revision = revision + 1, changed_at = ?4, changed_by = ?5",
        )?
        .execute(params![by.namespace, spec.name, definition, by.at.0, by.who])?;
    }
    Ok(became)
}

fn before(db: &Connection, namespace: &str, key: &str, print: Fingerprint) -> Result<Option<Begun>> {
    let found = db
        .prepare_cached("SELECT run, fingerprint FROM flow_runs WHERE namespace = ?1 AND asked_key = ?2")?
        .query_row([namespace, key], |row| Ok((RunKey(row.get::<_, i64>(0)? as u64), row.get::<_, [u8; 32]>(1)?)))
        .optional()?;
    Ok(found.map(|(run, before)| if before == print.0 { Begun::Again(run) } else { Begun::Other(run) }))
}

fn begin(db: &Connection, new: &NewRun) -> Result<Begun> {
    let (asked, fingerprint) = new.asked.as_ref().map(|(key, print)| (key.as_str(), print.0)).unzip();
    if let Some((key, print)) = &new.asked
        && let Some(before) = before(db, &new.by.namespace, key, *print)?
    {
        return Ok(before);
    }
    db.prepare_cached(
        "INSERT INTO flow_runs (namespace, owner, flow, definition, input, reply, started_at, asked_key, fingerprint)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        new.by.namespace,
        new.by.who,
        new.spec.name,
        text(&new.spec)?,
        new.input.to_string(),
        new.reply.as_ref().map(text).transpose()?,
        new.by.at.0,
        asked,
        fingerprint,
    ])?;
    Ok(Begun::New(RunKey(db.last_insert_rowid() as u64)))
}

fn record(db: &Connection, run: RunKey) -> Result<Option<RunRecord>> {
    let sql = format!("SELECT {RUN}, definition, input, reply FROM flow_runs WHERE run = ?1");
    let found = db
        .prepare_cached(&sql)?
        .query_row([run.0 as i64], |found| {
            let reply = found.get_ref(11)?.as_str_or_null()?.map(|text| parsed(11, text)).transpose()?;
            Ok((row(found)?, found.get(9)?, json(found, 10)?, reply))
        })
        .optional()?;
    let Some((row, definition, input, reply)) = found else { return Ok(None) };
    let outcomes = db
        .prepare_cached(
            "SELECT run, step, item, ok, said, tries, node, why, began_at, ended_at FROM flow_outcomes WHERE run = ?1",
        )?
        .query_map([run.0 as i64], outcome)?
        .collect::<Result<_>>()?;
    let tries = db
        .prepare_cached("SELECT run, step, item, tries, reason FROM flow_tries WHERE run = ?1")?
        .query_map([run.0 as i64], |row| {
            let key = step_key(row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Try { key, tries: row.get(3)?, reason: row.get(4)? })
        })?
        .collect::<Result<_>>()?;
    let noted = db
        .prepare_cached("SELECT run, step, item, generation, n, node, since FROM flow_noted WHERE run = ?1")?
        .query_map([run.0 as i64], |row| {
            let key = step_key(row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(noted(key, (row.get(3)?, row.get(4)?), row.get_ref(5)?.as_str()?, row.get(6)?))
        })?
        .filter_map(Result::transpose)
        .collect::<Result<_>>()?;
    Ok(Some(RunRecord { row, definition, input, reply, outcomes, tries, noted }))
}

fn write(db: &Connection, fence: &Fence, batch: &Batch) -> Result<Fate> {
    if !fence.holds_in_sqlite(db)? {
        return Ok(Fate::Fenced);
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO flow_outcomes (run, step, item, ok, said, tries, node, why, began_at, ended_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
    )?;
    for Outcome { key, end, tries, node, why, began_at, ended_at } in &batch.outcomes {
        let (ok, said) = said(end);
        let node = node.as_ref().map(|node| node.as_str());
        let (run, began_at, ended_at) = (key.run.0 as i64, began_at.0, ended_at.0);
        insert.execute(params![run, key.step, key.item, ok, said, tries, node, why, began_at, ended_at])?;
    }
    let mut upsert = db.prepare_cached(
        "INSERT INTO flow_tries (run, step, item, tries, reason) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (run, step, item) DO UPDATE SET tries = max(tries, ?4), reason = ?5",
    )?;
    for Try { key, tries, reason } in &batch.tries {
        upsert.execute(params![key.run.0 as i64, key.step, key.item, tries, reason])?;
        let forget = "DELETE FROM flow_noted WHERE run = ?1 AND step = ?2 AND item = ?3";
        db.prepare_cached(forget)?.execute(params![key.run.0 as i64, key.step, key.item])?;
    }
    for Noted { key, attempt, node, since } in &batch.noted {
        let sql = "INSERT OR REPLACE INTO flow_noted (run, step, item, generation, n, node, since)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let (run, generation) = (key.run.0 as i64, attempt.generation as i64);
        db.prepare_cached(sql)?.execute(params![
            run,
            key.step,
            key.item,
            generation,
            attempt.n,
            node.as_str(),
            since.0
        ])?;
    }
    let mut end =
        db.prepare_cached("UPDATE flow_runs SET ended = ?2, ended_at = ?3 WHERE run = ?1 AND ended IS NULL")?;
    for (run, how, at) in &batch.ends {
        end.execute(params![run.0 as i64, text(how)?, at.0])?;
    }
    let mut announced = db.prepare_cached("UPDATE flow_runs SET announced = 1 WHERE run = ?1")?;
    for run in &batch.announced {
        announced.execute([run.0 as i64])?;
    }
    Ok(Fate::Durable)
}

fn sweep(db: &Connection, before: Timestamp, rows: u32) -> Result<u64> {
    let old: Vec<i64> = db
        .prepare_cached("SELECT run FROM flow_runs WHERE announced = 1 AND ended_at < ?1 ORDER BY ended_at LIMIT ?2")?
        .query_map(params![before.0, rows], |row| row.get(0))?
        .collect::<Result<_>>()?;
    for run in &old {
        for sql in [
            "DELETE FROM flow_outcomes WHERE run = ?1",
            "DELETE FROM flow_tries WHERE run = ?1",
            "DELETE FROM flow_noted WHERE run = ?1",
            "DELETE FROM flow_runs WHERE run = ?1",
        ] {
            db.prepare_cached(sql)?.execute([run])?;
        }
    }
    Ok(old.len() as u64)
}

fn flow(row: &Row<'_>) -> Result<FlowRow> {
    Ok(FlowRow {
        spec: json(row, 0)?,
        revision: row.get::<_, i64>(1)? as u64,
        changed_at: Timestamp(row.get(2)?),
        changed_by: row.get(3)?,
    })
}

fn row(row: &Row<'_>) -> Result<RunRow> {
    let ended = row.get_ref(6)?.as_str_or_null()?.map(|text| parsed(6, text)).transpose()?;
    Ok(RunRow {
        key: RunKey(row.get::<_, i64>(0)? as u64),
        namespace: row.get(1)?,
        owner: row.get(2)?,
        flow: row.get(3)?,
        started_at: Timestamp(row.get(4)?),
        cancelled: row.get(5)?,
        end: ended.zip(row.get::<_, Option<i64>>(7)?.map(Timestamp)),
        announced: row.get(8)?,
    })
}

fn outcome(row: &Row<'_>) -> Result<Outcome> {
    let columns = Columns {
        key: step_key(row.get(0)?, row.get(1)?, row.get(2)?),
        ok: row.get(3)?,
        said: row.get(4)?,
        tries: row.get(5)?,
        node: row.get(6)?,
        why: row.get(7)?,
        began_at: row.get(8)?,
        ended_at: row.get(9)?,
    };
    columns.outcome().map_err(|why| rusqlite::Error::FromSqlConversionFailure(4, Type::Text, why.into()))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<T> {
    parsed(at, row.get_ref(at)?.as_str()?)
}

fn parsed<T: DeserializeOwned>(at: usize, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, error.into()))
}

fn text(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
