//! The [`FleetStore`] in PostgreSQL, where several managers share it.

mod ledger;
mod look;
mod members;

use std::collections::BTreeMap;

use async_trait::async_trait;
use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::fleet::{Life, Member};
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::protocol::{Offer, Record, Wish};
use mutirao_elastic::view::HistoryLine;
use mutirao_shards::Fence;
use mutirao_store::postgres::{Ask, Transaction, text};
use mutirao_store::{Migration, Postgres, StoreError};

use super::{
    By, Decided, Draining, FleetStore, Kept, MemberRow, NodeRow, REQUEST_KEPT_MS, Request, Written, json, word,
};

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "fleet", version: 1, sql: include_str!("postgres/001_fleet.sql") },
    Migration { component: "fleet", version: 2, sql: include_str!("postgres/002_requests.sql") },
    Migration { component: "fleet", version: 3, sql: include_str!("postgres/003_bound.sql") },
];

#[async_trait]
impl FleetStore for Postgres {
    async fn kept(&self) -> Result<Kept, StoreError> {
        look::kept(&self.connection().await?).await
    }

    async fn decided(&self, queue: &QueueName) -> Result<Option<Decided>, StoreError> {
        look::decided(&self.connection().await?, queue).await
    }

    async fn member(&self, worker: &WorkerId) -> Result<Option<MemberRow>, StoreError> {
        look::member(&self.connection().await?, worker).await
    }

    async fn create(&self, fence: Fence, request: Request, by: By) -> Result<Written<Vec<WorkerId>>, StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Written::Fenced);
        }
        let (generation, queue) = (fence.generation as i64, request.queue.as_str());
        let workers: Vec<WorkerId> = request.workers.iter().map(|(worker, _)| worker.clone()).collect();
        let ids: Vec<&str> = workers.iter().map(|worker| worker.0.as_str()).collect();
        let insert = "INSERT INTO fleet_requests (generation, request, queue, workers, at) VALUES ($1, $2, $3, $4, $5)
                      ON CONFLICT (generation, request) DO NOTHING";
        let name = text(&request.name);
        if tx.run(insert, &[&generation, &name, &queue, &json(&workers), &by.at.0]).await? == 0 {
            let before = "SELECT workers FROM fleet_requests WHERE generation = $1 AND request = $2";
            let row = tx.row(before, &[&generation, &name]).await?;
            return match row {
                Some(row) => Ok(Written::Done(look::json(&row, 0)?)),
                None => Ok(Written::Fenced),
            };
        }
        let old = by.at.0 - REQUEST_KEPT_MS;
        tx.run("DELETE FROM fleet_requests WHERE generation < $1 OR at < $2", &[&generation, &old]).await?;
        let nodes: Vec<String> = request.workers.iter().map(|(_, node)| text(&node.0).into_owned()).collect();
        let need = request.need.as_ref().map(|need| text(&json(need)).into_owned());
        let insert = "INSERT INTO fleet_members (worker, queue, life, since, node, need)
                      SELECT worker, $3, $4, $5, node, $6 FROM unnest($1::text[], $2::text[]) AS new (worker, node)";
        tx.run(insert, &[&ids, &nodes, &queue, &word(&Life::Asked), &by.at.0, &need]).await?;
        audit(&tx, &by, "workers.create", &[format!("{} of {queue}", workers.len())]).await?;
        tx.commit().await?;
        Ok(Written::Done(workers))
    }

    async fn record(
        &self,
        fence: Fence,
        queue: QueueName,
        record: Record,
        keep_from: Timestamp,
        by: By,
    ) -> Result<Written<Vec<WorkerId>>, StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Written::Fenced);
        }
        let decided =
            "INSERT INTO fleet_queues (queue, state, decision, trouble, decided_at) VALUES ($1, $2, $3, $4, $5)
                       ON CONFLICT (queue) DO UPDATE SET state = excluded.state, decision = excluded.decision,
                           trouble = excluded.trouble, decided_at = excluded.decided_at";
        let trouble = record.trouble.as_ref().map(|trouble| text(&json(trouble)).into_owned());
        tx.run(decided, &[&queue.as_str(), &json(&record.state), &json(&record.decision), &trouble, &by.at.0]).await?;
        let unknown = members::update(&tx, &queue, &record).await?;
        members::dismiss(&tx, &queue, &record, &by).await?;
        if !record.changes.is_empty() {
            write_changes(&tx, &queue, &record).await?;
            tx.run("DELETE FROM fleet_changes WHERE at < $1", &[&keep_from.0]).await?;
            tx.run("DELETE FROM fleet_audit WHERE at < $1", &[&keep_from.0]).await?;
        }
        tx.commit().await?;
        Ok(Written::Done(unknown))
    }

    async fn adopt(
        &self,
        fence: Fence,
        queue: QueueName,
        members: BTreeMap<WorkerId, Member>,
        by: By,
    ) -> Result<Written<()>, StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Written::Fenced);
        }
        members::insert(&tx, &queue, &members, &by).await?;
        tx.commit().await?;
        Ok(Written::Done(()))
    }

    async fn drain(
        &self,
        fence: Option<Fence>,
        worker: WorkerId,
        queue: QueueName,
        by: By,
    ) -> Result<Written<()>, StoreError> {
        let worker = text(&worker.0);
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        if let Some(fence) = fence
            && !fence.holds_in_postgres(&tx).await?
        {
            return Ok(Written::Fenced);
        }
        let insert = "INSERT INTO fleet_draining (worker, queue, since, who) VALUES ($1, $2, $3, $4)
                      ON CONFLICT (worker) DO NOTHING";
        if tx.run(insert, &[&worker, &queue.as_str(), &by.at.0, &by.name]).await? > 0 {
            let advance = "UPDATE fleet_members SET life = $2, since = $3
                           WHERE worker = $1 AND life IN ('asked', 'launching', 'reported')";
            tx.run(advance, &[&worker, &word(&Life::Draining), &by.at.0]).await?;
            audit(&tx, &by, "worker.drain", &[worker.into_owned()]).await?;
        }
        tx.commit().await?;
        Ok(Written::Done(()))
    }

    async fn draining(&self) -> Result<Vec<Draining>, StoreError> {
        look::draining(&self.connection().await?).await
    }

    async fn undrain(&self, workers: Vec<WorkerId>, by: By) -> Result<Vec<WorkerId>, StoreError> {
        let workers: Vec<String> = workers.iter().map(|worker| text(&worker.0).into_owned()).collect();
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let rows = tx.rows("DELETE FROM fleet_draining WHERE worker = ANY($1) RETURNING worker", &[&workers]).await?;
        let done: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        audit(&tx, &by, "worker.resume", &done).await?;
        tx.commit().await?;
        Ok(done.into_iter().map(WorkerId).collect())
    }

    async fn forget_queues(&self, elastic: Vec<QueueName>) -> Result<(), StoreError> {
        let elastic: Vec<&str> = elastic.iter().map(QueueName::as_str).collect();
        let forget = "DELETE FROM fleet_queues WHERE queue <> ALL($1)
                      AND queue NOT IN (SELECT queue FROM fleet_members)";
        self.connection().await?.run(forget, &[&elastic]).await.map(drop)
    }

    async fn offer(&self, fence: Fence, offer: Offer, by: By) -> Result<Written<()>, StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Written::Fenced);
        }
        let kinds = "INSERT INTO fleet_kinds (one, kinds, offered_at) VALUES (1, $1, $2)
                     ON CONFLICT (one) DO UPDATE SET kinds = excluded.kinds, offered_at = excluded.offered_at";
        tx.run(kinds, &[&json(&offer.kinds), &by.at.0]).await?;
        let names: Vec<String> = offer.nodes.iter().map(|node| text(&node.name.0).into_owned()).collect();
        let nodes: Vec<String> = offer.nodes.iter().map(|node| text(&json(node)).into_owned()).collect();
        tx.run("UPDATE fleet_nodes SET offered_at = NULL WHERE name <> ALL($1)", &[&names]).await?;
        let upsert = "INSERT INTO fleet_nodes (name, node, offered_at)
                      SELECT name, node, $3 FROM unnest($1::text[], $2::text[]) AS new (name, node)
                      ON CONFLICT (name) DO UPDATE SET node = excluded.node, offered_at = excluded.offered_at";
        tx.run(upsert, &[&names, &nodes, &by.at.0]).await?;
        tx.run("DELETE FROM fleet_nodes WHERE offered_at IS NULL AND wish = 'open'", &[]).await?;
        tx.commit().await?;
        Ok(Written::Done(()))
    }

    async fn nodes(&self) -> Result<(Vec<NodeRow>, Option<Vec<Kind>>), StoreError> {
        let connection = self.connection().await?;
        Ok((look::nodes(&connection).await?, look::kinds(&connection).await?))
    }

    async fn wish(&self, node: &NodeName, wish: Wish, by: By) -> Result<bool, StoreError> {
        let (node, wish) = (text(&node.0), word(&wish));
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        if tx.run("UPDATE fleet_nodes SET wish = $2 WHERE name = $1", &[&node, &wish]).await? == 0 {
            return Ok(false);
        }
        audit(&tx, &by, &format!("node.{wish}"), &[node.into_owned()]).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn history(
        &self,
        queue: Option<QueueName>,
        before: i64,
        rows: u32,
    ) -> Result<Vec<(i64, HistoryLine)>, StoreError> {
        look::history(&self.connection().await?, queue.as_ref(), before, rows).await
    }
}

async fn write_changes(tx: &Transaction<'_>, queue: &QueueName, record: &Record) -> Result<(), StoreError> {
    let each = || record.changes.iter();
    let at: Vec<i64> = each().map(|change| change.at.0).collect();
    let from: Vec<i64> = each().map(|change| i64::from(change.from)).collect();
    let to: Vec<i64> = each().map(|change| i64::from(change.to)).collect();
    let because: Vec<String> = each().map(|change| text(&json(&change.because)).into_owned()).collect();
    let insert = "INSERT INTO fleet_changes (queue, at, from_count, to_count, because)
                  SELECT $5, at, f, t, because
                  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) AS new (at, f, t, because)";
    tx.run(insert, &[&at, &from, &to, &because, &queue.as_str()]).await.map(drop)
}

async fn audit(tx: &Transaction<'_>, by: &By, what: &str, targets: &[String]) -> Result<(), StoreError> {
    let line =
        "INSERT INTO fleet_audit (at, who, what, target) SELECT $1, $2, $3, target FROM unnest($4::text[]) target";
    tx.run(line, &[&by.at.0, &by.who, &what, &targets]).await.map(drop)
}
