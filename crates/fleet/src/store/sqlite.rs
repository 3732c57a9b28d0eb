//! The [`FleetStore`] in SQLite.

mod ledger;
mod look;

use std::collections::BTreeMap;

use async_trait::async_trait;
use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::fleet::{Life, Member};
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::protocol::{Offer, Record, Wish};
use mutirao_elastic::view::HistoryLine;
use mutirao_shards::Fence;
use mutirao_store::{Migration, Sqlite, StoreError};
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    By, Decided, Draining, FleetStore, Kept, MemberRow, NodeRow, REQUEST_KEPT_MS, Request, Written, json, word,
};

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "fleet", version: 1, sql: include_str!("sqlite/001_fleet.sql") },
    Migration { component: "fleet", version: 2, sql: include_str!("sqlite/002_requests.sql") },
    Migration { component: "fleet", version: 3, sql: include_str!("sqlite/003_bound.sql") },
];

#[async_trait]
impl FleetStore for Sqlite {
    async fn kept(&self) -> Result<Kept, StoreError> {
        self.read(look::kept).await
    }

    async fn decided(&self, queue: &QueueName) -> Result<Option<Decided>, StoreError> {
        let queue = queue.clone();
        self.read(move |sql| look::decided(sql, &queue)).await
    }

    async fn member(&self, worker: &WorkerId) -> Result<Option<MemberRow>, StoreError> {
        let worker = worker.clone();
        self.read(move |sql| look::member(sql, &worker)).await
    }

    async fn create(&self, fence: Fence, request: Request, by: By) -> Result<Written<Vec<WorkerId>>, StoreError> {
        self.write(move |sql| {
            if !fence.holds_in_sqlite(sql)? {
                return Ok(Written::Fenced);
            }
            let generation = fence.generation as i64;
            let before: Option<String> = sql
                .prepare_cached("SELECT workers FROM fleet_requests WHERE generation = ?1 AND request = ?2")?
                .query_row(params![generation, request.name], |row| row.get(0))
                .optional()?;
            if let Some(before) = before {
                return Ok(Written::Done(look::read(0, &before)?));
            }
            let workers: Vec<WorkerId> = request.workers.iter().map(|(worker, _)| worker.clone()).collect();
            sql.prepare_cached("DELETE FROM fleet_requests WHERE generation < ?1 OR at < ?2")?
                .execute(params![generation, by.at.0 - REQUEST_KEPT_MS])?;
            sql.prepare_cached(
                "INSERT INTO fleet_requests (generation, request, queue, workers, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                generation,
                request.name,
                request.queue.as_str(),
                json(&workers),
                by.at.0
            ])?;
            let mut insert = sql.prepare_cached(
                "INSERT INTO fleet_members (worker, queue, life, since, node, need) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            let (queue, asked, need) = (request.queue.as_str(), word(&Life::Asked), request.need.as_ref().map(json));
            for (worker, node) in &request.workers {
                insert.execute(params![worker.0, queue, asked, by.at.0, node.0, need])?;
            }
            audit(sql, &by, "workers.create", &format!("{} of {}", workers.len(), request.queue))?;
            Ok(Written::Done(workers))
        })
        .await
    }

    async fn record(
        &self,
        fence: Fence,
        queue: QueueName,
        record: Record,
        keep_from: Timestamp,
        by: By,
    ) -> Result<Written<Vec<WorkerId>>, StoreError> {
        self.write(move |sql| {
            if !fence.holds_in_sqlite(sql)? {
                return Ok(Written::Fenced);
            }
            sql.prepare_cached(
                "INSERT INTO fleet_queues (queue, state, decision, trouble, decided_at) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (queue) DO UPDATE SET state = excluded.state, decision = excluded.decision,
                     trouble = excluded.trouble, decided_at = excluded.decided_at",
            )?
            .execute(params![
                queue.as_str(),
                json(&record.state),
                json(&record.decision),
                record.trouble.as_ref().map(json),
                by.at.0
            ])?;
            let mut update = sql.prepare_cached(
                "UPDATE fleet_members SET life = ?3, since = ?4, node = ?5 WHERE worker = ?1 AND queue = ?2",
            )?;
            let mut unknown = Vec::new();
            for (worker, member) in &record.members {
                let node = member.node.as_ref().map(|node| &node.0);
                let known =
                    update.execute(params![worker.0, queue.as_str(), word(&member.life), member.since.0, node])?;
                if known == 0 {
                    unknown.push(worker.clone());
                }
            }
            dismiss(sql, &queue, &record, &by)?;
            let mut insert = sql.prepare_cached(
                "INSERT INTO fleet_changes (queue, at, from_count, to_count, because) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            for change in &record.changes {
                insert.execute(params![queue.as_str(), change.at.0, change.from, change.to, json(&change.because)])?;
            }
            if !record.changes.is_empty() {
                sql.prepare_cached("DELETE FROM fleet_changes WHERE at < ?1")?.execute([keep_from.0])?;
                sql.prepare_cached("DELETE FROM fleet_audit WHERE at < ?1")?.execute([keep_from.0])?;
            }
            Ok(Written::Done(unknown))
        })
        .await
    }

    async fn adopt(
        &self,
        fence: Fence,
        queue: QueueName,
        members: BTreeMap<WorkerId, Member>,
        by: By,
    ) -> Result<Written<()>, StoreError> {
        self.write(move |sql| {
            if !fence.holds_in_sqlite(sql)? {
                return Ok(Written::Fenced);
            }
            let mut insert = sql.prepare_cached(
                "INSERT INTO fleet_members (worker, queue, life, since, node) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (worker) DO NOTHING",
            )?;
            for (worker, member) in &members {
                let node = member.node.as_ref().map(|node| &node.0);
                insert.execute(params![worker.0, queue.as_str(), word(&member.life), member.since.0, node])?;
                audit(sql, &by, "worker.adopt", &worker.0)?;
            }
            Ok(Written::Done(()))
        })
        .await
    }

    async fn drain(
        &self,
        fence: Option<Fence>,
        worker: WorkerId,
        queue: QueueName,
        by: By,
    ) -> Result<Written<()>, StoreError> {
        self.write(move |sql| {
            if let Some(fence) = fence
                && !fence.holds_in_sqlite(sql)?
            {
                return Ok(Written::Fenced);
            }
            let new = sql
                .prepare_cached(
                    "INSERT INTO fleet_draining (worker, queue, since, who) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO NOTHING",
                )?
                .execute(params![worker.0, queue.as_str(), by.at.0, by.name])?;
            if new > 0 {
                sql.prepare_cached(
                    "UPDATE fleet_members SET life = ?2, since = ?3
                     WHERE worker = ?1 AND life IN ('asked', 'launching', 'reported')",
                )?
                .execute(params![worker.0, word(&Life::Draining), by.at.0])?;
                audit(sql, &by, "worker.drain", &worker.0)?;
            }
            Ok(Written::Done(()))
        })
        .await
    }

    async fn draining(&self) -> Result<Vec<Draining>, StoreError> {
        self.read(look::draining).await
    }

    async fn undrain(&self, workers: Vec<WorkerId>, by: By) -> Result<Vec<WorkerId>, StoreError> {
        self.write(move |sql| {
            let mut done = Vec::with_capacity(workers.len());
            for worker in workers {
                let gone = sql.prepare_cached("DELETE FROM fleet_draining WHERE worker = ?1")?.execute([&worker.0])?;
                if gone > 0 {
                    audit(sql, &by, "worker.resume", &worker.0)?;
                    done.push(worker);
                }
            }
            Ok(done)
        })
        .await
    }

    async fn forget_queues(&self, elastic: Vec<QueueName>) -> Result<(), StoreError> {
        self.write(move |sql| {
            sql.prepare_cached(
                "DELETE FROM fleet_queues WHERE queue NOT IN (SELECT value FROM json_each(?1))
                     AND queue NOT IN (SELECT queue FROM fleet_members)",
            )?
            .execute([json(&elastic)])?;
            Ok(())
        })
        .await
    }

    async fn offer(&self, fence: Fence, offer: Offer, by: By) -> Result<Written<()>, StoreError> {
        self.write(move |sql| {
            if !fence.holds_in_sqlite(sql)? {
                return Ok(Written::Fenced);
            }
            sql.prepare_cached(
                "INSERT INTO fleet_kinds (one, kinds, offered_at) VALUES (1, ?1, ?2)
                 ON CONFLICT (one) DO UPDATE SET kinds = excluded.kinds, offered_at = excluded.offered_at",
            )?
            .execute(params![json(&offer.kinds), by.at.0])?;
            sql.prepare_cached("UPDATE fleet_nodes SET offered_at = NULL")?.execute([])?;
            let mut upsert = sql.prepare_cached(
                "INSERT INTO fleet_nodes (name, node, offered_at) VALUES (?1, ?2, ?3)
                 ON CONFLICT (name) DO UPDATE SET node = excluded.node, offered_at = excluded.offered_at",
            )?;
            for node in &offer.nodes {
                upsert.execute(params![node.name.0, json(node), by.at.0])?;
            }
            sql.prepare_cached("DELETE FROM fleet_nodes WHERE offered_at IS NULL AND wish = 'open'")?.execute([])?;
            Ok(Written::Done(()))
        })
        .await
    }

    async fn nodes(&self) -> Result<(Vec<NodeRow>, Option<Vec<Kind>>), StoreError> {
        self.read(|sql| Ok((look::nodes(sql)?, look::kinds(sql)?))).await
    }

    async fn wish(&self, node: &NodeName, wish: Wish, by: By) -> Result<bool, StoreError> {
        let node = node.0.clone();
        self.write(move |sql| {
            let wish = word(&wish);
            let known =
                sql.prepare_cached("UPDATE fleet_nodes SET wish = ?2 WHERE name = ?1")?.execute(params![node, wish])?;
            if known > 0 {
                audit(sql, &by, &format!("node.{wish}"), &node)?;
            }
            Ok(known > 0)
        })
        .await
    }

    async fn history(
        &self,
        queue: Option<QueueName>,
        before: i64,
        rows: u32,
    ) -> Result<Vec<(i64, HistoryLine)>, StoreError> {
        self.read(move |sql| look::history(sql, queue.as_ref(), before, rows)).await
    }
}

/// Those who are gone lose their records, those who are dismissed keep them until they are gone. Only workers of this queue.
fn dismiss(sql: &Connection, queue: &QueueName, record: &Record, by: &By) -> rusqlite::Result<()> {
    let mut note =
        sql.prepare_cached("INSERT INTO fleet_revocations (worker, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    for worker in &record.gone {
        let forget = "DELETE FROM fleet_members WHERE worker = ?1 AND queue = ?2";
        if sql.prepare_cached(forget)?.execute(params![worker.0, queue.as_str()])? == 0 {
            continue;
        }
        sql.prepare_cached("DELETE FROM fleet_draining WHERE worker = ?1")?.execute([&worker.0])?;
        note.execute(params![worker.0, by.at.0])?;
        audit(sql, by, "worker.gone", &worker.0)?;
    }
    let mut known = sql.prepare_cached("SELECT 1 FROM fleet_members WHERE worker = ?1 AND queue = ?2")?;
    for worker in &record.dismissed {
        if known.exists(params![worker.0, queue.as_str()])? {
            note.execute(params![worker.0, by.at.0])?;
            audit(sql, by, "worker.dismiss", &worker.0)?;
        }
    }
    Ok(())
}

fn audit(sql: &Connection, by: &By, what: &str, target: &str) -> rusqlite::Result<()> {
    sql.prepare_cached("INSERT INTO fleet_audit (at, who, what, target) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![by.at.0, by.who, what, target])?;
    Ok(())
}
