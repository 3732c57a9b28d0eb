//! The [`NodeStore`] in PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_store::postgres::{Ask, Row, text};
use mutirao_store::{Migration, Postgres, StoreError};

use super::{
    ANSWERS_LOOKED_AT, AUDIT_KEPT_MS, Bounds, By, CLIENTS_MAX, NodeStore, REMOVALS_KEPT_MS, Removal, Removed, Tossed,
    read_record, written,
};
use crate::allowance::{Allowance, Warrant};
use crate::device::{Device, Digest, no_password};
use crate::keys::{Enrolling, Invitation, Key};
use crate::names::NodeId;
use crate::registry::Record;
use crate::topics::OwnTopics;

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "nodes", version: 1, sql: include_str!("001_nodes.postgres.sql") },
    Migration { component: "nodes", version: 2, sql: include_str!("002_removed.postgres.sql") },
    Migration { component: "nodes", version: 3, sql: include_str!("003_keys.postgres.sql") },
    Migration { component: "nodes", version: 4, sql: include_str!("004_answers.postgres.sql") },
    Migration { component: "nodes", version: 5, sql: include_str!("005_topics.postgres.sql") },
    Migration { component: "nodes", version: 6, sql: include_str!("006_allowance.postgres.sql") },
    Migration { component: "nodes", version: 7, sql: include_str!("007_client.postgres.sql") },
];

type Answer<T> = Result<T, StoreError>;

const DEVICE: &str = "SELECT name, node, digest, may_request, created_at, created_by, publish, subscribe, allowance, \
                      EXISTS (SELECT 1 FROM nodes_keys WHERE nodes_keys.node = devices.name) FROM devices";

#[async_trait]
impl NodeStore for Postgres {
    async fn records(&self, since: Timestamp) -> Answer<Vec<Record>> {
        let sql = "SELECT record FROM nodes_known WHERE last_at >= $1 ORDER BY node";
        let rows = self.connection().await?.rows(sql, &[&since.0]).await?;
        rows.iter().filter_map(|row| row.try_get(0).map(read_record).map_err(StoreError::from).transpose()).collect()
    }

    async fn keep(&self, mut records: Vec<Record>) -> Answer<()> {
        // In one order, so that two managers never wait for each other.
        records.sort_by(|a, b| a.node.cmp(&b.node));
        records.dedup_by(|a, b| a.node == b.node);
        let nodes: Vec<&str> = records.iter().map(|record| record.node.as_str()).collect();
        let at: Vec<i64> = records.iter().map(|record| record.last_at.0).collect();
        let texts: Vec<String> = records.iter().map(|record| text(&written(record)).into_owned()).collect();
        let first: Vec<i64> = records.iter().map(|record| record.first_at.0).collect();
        let sql = "INSERT INTO nodes_known (node, last_at, record)
                   SELECT said.node, said.last_at, said.record
                   FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[])
                        AS said(node, last_at, record, first_at)
                   WHERE NOT EXISTS (SELECT 1 FROM nodes_removed AS removed
                                     WHERE removed.kind = 'node' AND removed.name = said.node
                                       AND removed.at >= said.first_at)
                   ON CONFLICT (node) DO UPDATE SET last_at = excluded.last_at, record = excluded.record
                   WHERE excluded.last_at >= nodes_known.last_at";
        self.connection().await?.run(sql, &[&nodes, &at, &texts, &first]).await.map(drop)
    }

    async fn forget(&self, nodes: Vec<NodeId>) -> Answer<()> {
        let nodes: Vec<&str> = nodes.iter().map(NodeId::as_str).collect();
        self.connection().await?.run("DELETE FROM nodes_known WHERE node = ANY($1)", &[&nodes]).await.map(drop)
    }

    async fn remove(&self, node: &NodeId, at: Timestamp) -> Answer<()> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        // First, so that whoever writes it down at this moment waits, or is seen.
        removed(&tx, &Removed::Node(node.clone()), at).await?;
        tx.run("DELETE FROM nodes_known WHERE node = $1", &[&node.as_str()]).await?;
        tx.commit().await
    }

    async fn removals(&self, since: Timestamp) -> Answer<Vec<Removal>> {
        let sql = "SELECT kind, name, at FROM nodes_removed WHERE at >= $1 ORDER BY at";
        let rows = self.connection().await?.rows(sql, &[&since.0]).await?;
        let one = |row: &Row| {
            let (kind, name): (&str, String) = (row.try_get(0)?, row.try_get(1)?);
            let at = Timestamp(row.try_get(2)?);
            Ok(Removed::read(kind, name).map(|what| Removal { what, at }))
        };
        rows.iter().map(one).filter_map(Answer::transpose).collect()
    }

    async fn add_device(&self, device: Device, by: By) -> Answer<bool> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let sql = "INSERT INTO devices (name, node, digest, may_request, created_at, created_by, publish, subscribe,
                                        allowance)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";
        let (node, digest) = (device.node.as_str(), device.digest.0.as_slice());
        let (publish, subscribe) = (device.topics.publish_text(), device.topics.subscribe_text());
        let allowance = device.warrant.allowance.text();
        let new = tx
            .run(
                sql,
                &[
                    &device.name,
                    &node,
                    &digest,
                    &device.may_request,
                    &device.created_at.0,
                    &text(&device.created_by),
                    &publish,
                    &subscribe,
                    &allowance,
                ],
            )
            .await?;
        if new > 0 {
            audit(&tx, &by, "device.add", &device.name).await?;
        }
        tx.commit().await?;
        Ok(new > 0)
    }

    async fn device(&self, name: &str) -> Answer<Option<Device>> {
        let row = self.connection().await?.row(&format!("{DEVICE} WHERE name = $1"), &[&text(name)]).await?;
        row.map_or(Ok(None), |row| device(&row))
    }

    async fn devices(&self, after: &str, rows: u32) -> Answer<Vec<Device>> {
        // By bytes, as the other engine does.
        let sql = format!("{DEVICE} WHERE name COLLATE \"C\" > $1 ORDER BY name COLLATE \"C\" LIMIT $2");
        let found = self.connection().await?.rows(&sql, &[&text(after), &i64::from(rows)]).await?;
        found.iter().filter_map(|row| device(row).transpose()).collect()
    }

    async fn remove_device(&self, name: &str, by: By) -> Answer<bool> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let gone = tx.run("DELETE FROM devices WHERE name = $1", &[&text(name)]).await?;
        tx.run("DELETE FROM nodes_keys WHERE node = $1", &[&text(name)]).await?;
        if gone > 0 {
            audit(&tx, &by, "device.rm", name).await?;
            removed(&tx, &Removed::Device(name.to_owned()), by.at).await?;
        }
        tx.commit().await?;
        Ok(gone > 0)
    }

    async fn invite(&self, invitation: Invitation, by: By) -> Answer<()> {
        let Invitation { digest, node, until, created_by, allowance } = &invitation;
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        tx.run("DELETE FROM nodes_invitations WHERE until < $1", &[&by.at.0]).await?;
        let sql =
            "INSERT INTO nodes_invitations (digest, node, until, created_by, allowance) VALUES ($1, $2, $3, $4, $5)";
        let allowance = allowance.text();
        tx.run(sql, &[&digest.as_slice(), &node.as_str(), &until.0, &text(created_by), &allowance]).await?;
        audit(&tx, &by, "node.invite", node.as_str()).await?;
        tx.commit().await
    }

    async fn enrol(&self, invitation: [u8; 32], key: [u8; 32], by: By) -> Answer<Enrolling> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let sql =
            "DELETE FROM nodes_invitations WHERE digest = $1 AND until >= $2 RETURNING node, created_by, allowance";
        let Some(found) = tx.row(sql, &[&invitation.as_slice(), &by.at.0]).await? else {
            return Ok(Enrolling::Worthless);
        };
        let (node, created_by): (String, String) = (found.try_get(0)?, found.try_get(1)?);
        let allowance: String = found.try_get(2)?;
        let Ok(id) = node.parse::<NodeId>() else { return Ok(Enrolling::Worthless) };
        let sql = "INSERT INTO devices (name, node, digest, may_request, created_at, created_by, allowance)
                   VALUES ($1, $1, $2, false, $3, $4, $5) ON CONFLICT DO NOTHING";
        let new = tx.run(sql, &[&node, &no_password().as_slice(), &by.at.0, &created_by, &allowance]).await?;
        if new > 0 {
            let sql = "INSERT INTO nodes_keys (node, key, changes) VALUES ($1, $2, 0)
                       ON CONFLICT (node) DO UPDATE SET key = excluded.key, changes = 0";
            tx.run(sql, &[&node, &key.as_slice()]).await?;
            audit(&tx, &by, "node.enrol", &node).await?;
        }
        tx.commit().await?;
        Ok(if new > 0 { Enrolling::LetIn(id) } else { Enrolling::Taken(id) })
    }

    async fn node_key(&self, node: &NodeId) -> Answer<Option<Key>> {
        let sql = "SELECT key, changes FROM nodes_keys WHERE node = $1";
        let Some(row) = self.connection().await?.row(sql, &[&node.as_str()]).await? else { return Ok(None) };
        let (public, changes): (Vec<u8>, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok(public.try_into().ok().map(|public| Key { public, changes: changes.unsigned_abs() }))
    }

    async fn change_password(&self, node: &NodeId, change: u64, digest: Digest) -> Answer<bool> {
        let change = i64::try_from(change).unwrap_or(i64::MAX);
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let sql = "UPDATE nodes_keys SET changes = $2::bigint WHERE node = $1 AND changes = $2::bigint - 1";
        let next = tx.run(sql, &[&node.as_str(), &change]).await?;
        if next > 0 {
            let sql = "UPDATE devices SET digest = $2 WHERE name = $1";
            tx.run(sql, &[&node.as_str(), &digest.0.as_slice()]).await?;
        }
        tx.commit().await?;
        Ok(next > 0)
    }

    async fn toss(&self, tossed: Vec<Tossed>, most: u32) -> Answer<()> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        for one in &tossed {
            let (place, who, reason) = (text(&one.place), text(&one.who), text(&one.reason));
            let sql = "INSERT INTO nodes_rubbish (at, place, who, reason, body) VALUES ($1, $2, $3, $4, $5)";
            tx.run(sql, &[&one.at.0, &place, &who, &reason, &one.body]).await?;
        }
        let sql = "DELETE FROM nodes_rubbish WHERE seq <= (SELECT max(seq) FROM nodes_rubbish) - $1";
        tx.run(sql, &[&i64::from(most)]).await?;
        tx.commit().await
    }

    async fn tossed(&self, rows: u32) -> Answer<Vec<Tossed>> {
        let sql = "SELECT at, place, who, reason, body FROM nodes_rubbish ORDER BY seq DESC LIMIT $1";
        let found = self.connection().await?.rows(sql, &[&i64::from(rows)]).await?;
        let one = |row: &Row| {
            Ok(Tossed {
                at: Timestamp(row.try_get(0)?),
                place: row.try_get(1)?,
                who: row.try_get(2)?,
                reason: row.try_get(3)?,
                body: row.try_get(4)?,
            })
        };
        found.iter().map(one).collect()
    }

    async fn keep_answer(&self, at: Timestamp, client: Option<String>, answer: String, bounds: Bounds) -> Answer<()> {
        let (bytes_max, age_ms) = (bounds.bytes_max as i64, bounds.age_max.as_millis() as i64);
        let bytes = i64::try_from(answer.len()).unwrap_or(i64::MAX);
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let sql = "INSERT INTO nodes_answers (at, bytes, text, client) VALUES ($1, $2, $3, $4) RETURNING seq";
        let put = tx.rows(sql, &[&at.0, &bytes, &text(&answer), &client]).await?;
        let number: i64 = put.first().map_or(Ok(0), |row| row.try_get(0))?;
        if number % ANSWERS_LOOKED_AT != 0 {
            return tx.commit().await;
        }
        let sql = "DELETE FROM nodes_answers WHERE at < $1 OR seq <= (SELECT max(seq) FROM nodes_answers) - $2";
        tx.run(sql, &[&(at.0 - age_ms), &i64::from(bounds.rows_max)]).await?;
        // The oldest, until what is left fits.
        let sql = "DELETE FROM nodes_answers WHERE seq IN (
                     SELECT seq FROM (SELECT seq, sum(bytes) OVER (ORDER BY seq DESC) AS newer FROM nodes_answers) AS each
                     WHERE newer > $1::bigint)";
        tx.run(sql, &[&bytes_max]).await?;
        tx.commit().await
    }

    async fn answered_clients(&self) -> Answer<Vec<Option<String>>> {
        let sql = "SELECT DISTINCT client FROM nodes_answers LIMIT $1";
        let found = self.connection().await?.rows(sql, &[&i64::from(CLIENTS_MAX)]).await?;
        found.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn answers(&self, client: Option<String>, rows: u32) -> Answer<Vec<(i64, String)>> {
        let sql = "SELECT seq, text FROM nodes_answers WHERE client IS NOT DISTINCT FROM $1 ORDER BY seq LIMIT $2";
        let found = self.connection().await?.rows(sql, &[&client, &i64::from(rows)]).await?;
        found.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    async fn forget_answers(&self, numbers: Vec<i64>) -> Answer<()> {
        self.connection().await?.run("DELETE FROM nodes_answers WHERE seq = ANY($1)", &[&numbers]).await.map(drop)
    }
}

/// None: its node has a name that this version does not know how to read.
fn device(row: &Row) -> Answer<Option<Device>> {
    let (node, digest): (&str, Vec<u8>) = (row.try_get(1)?, row.try_get(2)?);
    let (Ok(node), Ok(digest)) = (node.parse(), digest.try_into()) else { return Ok(None) };
    Ok(Some(Device {
        name: row.try_get(0)?,
        node,
        digest: Digest(digest),
        may_request: row.try_get(3)?,
        created_at: Timestamp(row.try_get(4)?),
        created_by: row.try_get(5)?,
        topics: OwnTopics::read(row.try_get(6)?, row.try_get(7)?),
        warrant: Arc::new(Warrant { allowance: Allowance::read(row.try_get(8)?), by_key: row.try_get(9)? }),
    }))
}

async fn removed(tx: &impl Ask, what: &Removed, at: Timestamp) -> Answer<()> {
    tx.run("DELETE FROM nodes_removed WHERE at < $1", &[&(at.0 - REMOVALS_KEPT_MS)]).await?;
    let (kind, name) = what.words();
    let sql = "INSERT INTO nodes_removed (kind, name, at) VALUES ($1, $2, $3)
               ON CONFLICT (kind, name) DO UPDATE SET at = greatest(nodes_removed.at, excluded.at)";
    tx.run(sql, &[&kind, &text(name), &at.0]).await.map(drop)
}

async fn audit(tx: &impl Ask, by: &By, what: &str, whom: &str) -> Answer<()> {
    tx.run("DELETE FROM nodes_audit WHERE at < $1", &[&(by.at.0 - AUDIT_KEPT_MS)]).await?;
    let sql = "INSERT INTO nodes_audit (at, who, what, whom) VALUES ($1, $2, $3, $4)";
    tx.run(sql, &[&by.at.0, &text(&by.who), &what, &text(whom)]).await.map(drop)
}
