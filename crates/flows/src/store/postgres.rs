//! Flows in PostgreSQL.

mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::declared::Became;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::postgres::{Ask, Row, Transaction, text as clean};
use mutirao_store::{Migration, Postgres, StoreError};
use serde::de::DeserializeOwned;

use self::writing::{ended, noting, tries};
use super::{
    Begun, By, Columns, Fate, FlowRow, FlowStore, NewRun, Progress, RunRecord, RunRow, RunsOf, became, noted, step_key,
};
use crate::foreman::words::{Batch, Outcome, RunKey, Try};
use crate::start::Fingerprint;
use crate::wire::Secret;
use crate::{FlowSpec, SHARDS};

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "flows", version: 1, sql: include_str!("001_flows.postgres.sql") },
    Migration { component: "flows", version: 2, sql: include_str!("002_noted.postgres.sql") },
    Migration { component: "flows", version: 3, sql: include_str!("003_since.postgres.sql") },
];

const RUN: &str = "run, namespace, owner, flow, started_at, cancelled, ended, ended_at, announced";

pub struct PostgresFlows(pub Postgres);

type Answer<T> = Result<T, StoreError>;

#[async_trait]
impl FlowStore for PostgresFlows {
    async fn put(&self, flows: Vec<FlowSpec>, by: By) -> Answer<Vec<Became>> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let mut all = Vec::new();
        for spec in &flows {
            all.push(put(&tx, spec, &by).await?);
        }
        tx.commit().await?;
        Ok(all)
    }

    async fn flow(&self, namespace: String, name: String) -> Answer<Option<FlowRow>> {
        let sql = "SELECT definition, revision, changed_at, changed_by FROM flows WHERE namespace = $1 AND name = $2";
        let found = self.0.connection().await?.row(sql, &[&namespace, &clean(&name)]).await?;
        found.map(|row| flow(&row)).transpose()
    }

    async fn flows(&self, namespace: String, after: String, rows: u32) -> Answer<Vec<FlowRow>> {
        let sql = "SELECT definition, revision, changed_at, changed_by FROM flows
                   WHERE namespace = $1 AND name > $2 ORDER BY name LIMIT $3";
        let found = self.0.connection().await?.rows(sql, &[&namespace, &clean(&after), &i64::from(rows)]).await?;
        found.iter().map(flow).collect()
    }

    async fn remove(&self, namespace: String, name: String) -> Answer<bool> {
        let sql = "DELETE FROM flows WHERE namespace = $1 AND name = $2";
        Ok(self.0.connection().await?.run(sql, &[&namespace, &clean(&name)]).await? > 0)
    }

    async fn begin(&self, run: NewRun) -> Answer<Begun> {
        let connection = self.0.connection().await?;
        let (asked, fingerprint) = run.asked.as_ref().map(|(key, print)| (clean(key), print.0.to_vec())).unzip();
        let (definition, input) = (text(&run.spec)?, run.input.to_string());
        let reply = run.reply.as_ref().map(text).transpose()?;
        let By { namespace, who, at } = &run.by;
        let made = connection
            .row(
                "INSERT INTO flow_runs (namespace, owner, flow, definition, input, reply, started_at, asked_key, fingerprint)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
                 ON CONFLICT (namespace, asked_key) WHERE asked_key IS NOT NULL DO NOTHING RETURNING run",
                &[namespace, who, &run.spec.name, &definition, &input, &reply, &at.0, &asked, &fingerprint],
            )
            .await?;
        if let Some(row) = made {
            return Ok(Begun::New(key(&row, 0)?));
        }
        // Gone between the two: it was old enough to be swept, and may be asked for anew.
        before(&connection, namespace, &asked, &fingerprint).await?.ok_or(StoreError::Locked)
    }

    async fn asked(&self, namespace: String, key: String, print: Fingerprint) -> Answer<Option<Begun>> {
        let connection = self.0.connection().await?;
        before(&connection, &namespace, &Some(clean(&key)), &Some(print.0.to_vec())).await
    }

    async fn runs(&self, which: RunsOf) -> Answer<Vec<RunRow>> {
        let of_flow = if which.flow.is_some() { "AND flow = $4" } else { "AND $4::text IS NULL" };
        let sql = format!(
            "SELECT {RUN} FROM flow_runs WHERE namespace = $1 AND run < $2 {of_flow} ORDER BY run DESC LIMIT $3"
        );
        let before = which.before.map_or(i64::MAX, |key| key.0 as i64);
        let flow = which.flow.as_deref().map(clean);
        let args: [&(dyn mutirao_store::postgres::ToSql + Sync); 4] =
            [&which.namespace, &before, &i64::from(which.rows), &flow];
        let found = self.0.connection().await?.rows(&sql, &args).await?;
        found.iter().map(row).collect()
    }

    async fn read(&self, runs: Vec<RunKey>) -> Answer<Vec<RunRecord>> {
        let keys: Vec<i64> = runs.iter().map(|run| run.0 as i64).collect();
        let connection = self.0.connection().await?;
        let sql = format!("SELECT {RUN}, definition, input, reply FROM flow_runs WHERE run = ANY($1)");
        let arg: [&(dyn mutirao_store::postgres::ToSql + Sync); 1] = [&keys];
        // In one go, the runs first: of one that had ended by then, all that came before its end is there.
        let (runs, outcomes, tries, places) = tokio::try_join!(
            connection.rows(&sql, &arg),
            connection.rows(
                "SELECT run, step, item, ok, said, tries, node, why, began_at, ended_at FROM flow_outcomes WHERE run = ANY($1)",
                &arg
            ),
            connection.rows("SELECT run, step, item, tries, reason FROM flow_tries WHERE run = ANY($1)", &arg),
            connection
                .rows("SELECT run, step, item, generation, n, node, since FROM flow_noted WHERE run = ANY($1)", &arg),
        )?;
        let mut records = BTreeMap::new();
        for found in runs {
            let reply = found.try_get::<_, Option<&str>>(11)?.map(parsed).transpose()?;
            let (row, definition, input) = (row(&found)?, found.try_get(9)?, json(&found, 10)?);
            let (outcomes, tries, noted) = (Vec::new(), Vec::new(), Vec::new());
            records.insert(row.key, RunRecord { row, definition, input, reply, outcomes, tries, noted });
        }
        for found in outcomes {
            let one = outcome(&found)?;
            records.entry(one.key.run).and_modify(|record| record.outcomes.push(one));
        }
        for found in tries {
            let key = step_key(found.try_get(0)?, found.try_get(1)?, found.try_get(2)?);
            let one = Try { key, tries: found.try_get::<_, i64>(3)? as u32, reason: found.try_get(4)? };
            records.entry(key.run).and_modify(|record| record.tries.push(one));
        }
        for found in places {
            let key = step_key(found.try_get(0)?, found.try_get(1)?, found.try_get(2)?);
            let one = noted(key, (found.try_get(3)?, found.try_get(4)?), found.try_get(5)?, found.try_get(6)?);
            records.entry(key.run).and_modify(|record| record.noted.extend(one));
        }
        Ok(records.into_values().collect())
    }

    async fn row(&self, run: RunKey) -> Answer<Option<RunRow>> {
        let sql = format!("SELECT {RUN} FROM flow_runs WHERE run = $1");
        let found = self.0.connection().await?.row(&sql, &[&(run.0 as i64)]).await?;
        found.map(|found| row(&found)).transpose()
    }

    async fn progress(&self, run: RunKey) -> Answer<Option<Progress>> {
        let sql =
            "SELECT (SELECT count(*) FROM flow_outcomes WHERE flow_outcomes.run = flow_runs.run), ended IS NOT NULL
                   FROM flow_runs WHERE run = $1";
        let found = self.0.connection().await?.row(sql, &[&(run.0 as i64)]).await?;
        let progress = |row: &Row| -> Answer<Progress> {
            Ok(Progress { outcomes: row.try_get::<_, i64>(0)? as usize, ended: row.try_get(1)? })
        };
        found.as_ref().map(progress).transpose()
    }

    async fn cancel(&self, run: RunKey) -> Answer<bool> {
        let sql = "UPDATE flow_runs SET cancelled = 1 WHERE run = $1 AND ended IS NULL";
        Ok(self.0.connection().await?.run(sql, &[&(run.0 as i64)]).await? > 0)
    }

    async fn open(&self, shard: ShardId, rows: u32) -> Answer<Vec<(RunKey, bool)>> {
        let sql = format!(
            "SELECT run, cancelled FROM flow_runs WHERE run % {SHARDS} = $1 AND announced = 0 ORDER BY run LIMIT $2"
        );
        let found = self.0.connection().await?.rows(&sql, &[&i64::from(shard.0), &i64::from(rows)]).await?;
        found.iter().map(|row| Ok((key(row, 0)?, row.try_get::<_, i64>(1)? != 0))).collect()
    }

    async fn write(&self, fence: Fence, batch: Arc<Batch>) -> Answer<Fate> {
        let mut connection = self.0.connection().await?;
        if batch.tries.is_empty() && batch.noted.is_empty() {
            // What a step gave is on the way of the next: one statement, one journey, one commit.
            return ended(&connection, &fence, &batch).await;
        }
        let tx = connection.begin().await?;
        let (fate, ()) = tokio::try_join!(ended(&tx, &fence, &batch), async {
            tries(&tx, &batch.tries).await?;
            noting(&tx, &batch.noted).await
        })?;
        if fate == Fate::Durable {
            tx.commit().await?;
        }
        // Nothing is kept of what is not committed.
        Ok(fate)
    }

    async fn sweep(&self, before: Timestamp, rows: u32) -> Answer<u64> {
        let sql = "WITH old AS (SELECT run FROM flow_runs WHERE announced = 1 AND ended_at < $1
                                ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED),
                        outcomes AS (DELETE FROM flow_outcomes USING old WHERE flow_outcomes.run = old.run),
                        tries AS (DELETE FROM flow_tries USING old WHERE flow_tries.run = old.run),
                        noted AS (DELETE FROM flow_noted USING old WHERE flow_noted.run = old.run)
                   DELETE FROM flow_runs USING old WHERE flow_runs.run = old.run";
        self.0.connection().await?.run(sql, &[&before.0, &i64::from(rows)]).await
    }

    async fn secret(&self, candidate: [u8; 32]) -> Answer<Secret> {
        let connection = self.0.connection().await?;
        let insert = "INSERT INTO flow_secret (one, secret) VALUES (1, $1) ON CONFLICT DO NOTHING";
        connection.run(insert, &[&candidate.to_vec()]).await?;
        let found = connection.row("SELECT secret FROM flow_secret", &[]).await?;
        let kept = found.map(|row| row.try_get::<_, Vec<u8>>(0)).transpose()?.and_then(|kept| kept.try_into().ok());
        kept.map(Secret).ok_or_else(|| unreadable("the secret of flows is not 32 bytes"))
    }
}

async fn before<K: mutirao_store::postgres::ToSql + Sync>(
    ask: &impl Ask,
    namespace: &str,
    asked: &K,
    fingerprint: &Option<Vec<u8>>,
) -> Answer<Option<Begun>> {
    let sql = "SELECT run, fingerprint FROM flow_runs WHERE namespace = $1 AND asked_key = $2";
    let Some(before) = ask.row(sql, &[&namespace, asked]).await? else { return Ok(None) };
    let same = before.try_get::<_, Option<Vec<u8>>>(1)? == *fingerprint;
    Ok(Some(if same { Begun::Again(key(&before, 0)?) } else { Begun::Other(key(&before, 0)?) }))
}

async fn put(tx: &Transaction<'_>, spec: &FlowSpec, by: &By) -> Answer<Became> {
    let definition = text(spec)?;
    let sql = "SELECT definition FROM flows WHERE namespace = $1 AND name = $2 FOR UPDATE";
    let before = tx.row(sql, &[&by.namespace, &spec.name]).await?;
    let before = before.as_ref().map(|row| row.try_get::<_, &str>(0)).transpose()?;
    let became = became(before, &definition);
    if became != Became::Unchanged {
        tx.run(
            "INSERT INTO flows (namespace, name, definition, revision, changed_at, changed_by)
             VALUES ($1, $2, $3, 1, $4, $5) ON CONFLICT (namespace, name) DO UPDATE SET definition = EXCLUDED.definition,
                 revision = flows.revision + 1, changed_at = EXCLUDED.changed_at, changed_by = EXCLUDED.changed_by",
            &[&by.namespace, &spec.name, &definition, &by.at.0, &by.who],
        )
        .await?;
    }
    Ok(became)
}

fn flow(row: &Row) -> Answer<FlowRow> {
    Ok(FlowRow {
        spec: json(row, 0)?,
        revision: row.try_get::<_, i64>(1)? as u64,
        changed_at: Timestamp(row.try_get(2)?),
        changed_by: row.try_get(3)?,
    })
}

fn row(row: &Row) -> Answer<RunRow> {
    let ended = row.try_get::<_, Option<&str>>(6)?.map(parsed).transpose()?;
    Ok(RunRow {
        key: key(row, 0)?,
        namespace: row.try_get(1)?,
        owner: row.try_get(2)?,
        flow: row.try_get(3)?,
        started_at: Timestamp(row.try_get(4)?),
        cancelled: row.try_get::<_, i64>(5)? != 0,
        end: ended.zip(row.try_get::<_, Option<i64>>(7)?.map(Timestamp)),
        announced: row.try_get::<_, i64>(8)? != 0,
    })
}

fn outcome(row: &Row) -> Answer<Outcome> {
    let columns = Columns {
        key: step_key(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?),
        ok: row.try_get::<_, i64>(3)? != 0,
        said: row.try_get(4)?,
        tries: row.try_get(5)?,
        node: row.try_get(6)?,
        why: row.try_get(7)?,
        began_at: row.try_get(8)?,
        ended_at: row.try_get(9)?,
    };
    columns.outcome().map_err(unreadable)
}

fn key(row: &Row, at: usize) -> Answer<RunKey> {
    Ok(RunKey(row.try_get::<_, i64>(at)? as u64))
}

fn json<T: DeserializeOwned>(row: &Row, at: usize) -> Answer<T> {
    parsed(row.try_get(at)?)
}

fn parsed<T: DeserializeOwned>(text: &str) -> Answer<T> {
    serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))
}

fn text(value: &impl serde::Serialize) -> Answer<String> {
    serde_json::to_string(value).map_err(|error| unreadable(error.to_string()))
}

fn unreadable(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unusable { path: "the flows in PostgreSQL".into(), why: why.to_string() }
}
