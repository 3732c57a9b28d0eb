//! The [`NodeStore`] in SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_store::{Migration, Sqlite, StoreError};
use rusqlite::{Connection, OptionalExtension, Row, params};

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
    Migration { component: "nodes", version: 1, sql: include_str!("001_nodes.sql") },
    Migration { component: "nodes", version: 2, sql: include_str!("002_removed.sql") },
    Migration { component: "nodes", version: 3, sql: include_str!("003_keys.sql") },
    Migration { component: "nodes", version: 4, sql: include_str!("004_answers.sql") },
    Migration { component: "nodes", version: 5, sql: include_str!("005_topics.sql") },
    Migration { component: "nodes", version: 6, sql: include_str!("006_allowance.sql") },
    Migration { component: "nodes", version: 7, sql: include_str!("007_client.sql") },
];

type Answer<T> = Result<T, StoreError>;

const DEVICE: &str = "SELECT name, node, digest, may_request, created_at, created_by, publish, subscribe, allowance, \
                      EXISTS (SELECT 1 FROM nodes_keys WHERE nodes_keys.node = devices.name) FROM devices";

#[async_trait]
impl NodeStore for Sqlite {
    async fn records(&self, since: Timestamp) -> Answer<Vec<Record>> {
        self.read(move |db| {
            let mut select = db.prepare_cached("SELECT record FROM nodes_known WHERE last_at >= ?1 ORDER BY node")?;
            let texts = select.query_map([since.0], |row| row.get::<_, String>(0))?;
            texts.filter_map(|text| text.map(|text| read_record(&text)).transpose()).collect()
        })
        .await
    }

    async fn keep(&self, records: Vec<Record>) -> Answer<()> {
        self.write(move |db| {
            let mut put = db.prepare_cached(
                "INSERT INTO nodes_known (node, last_at, record) SELECT ?1, ?2, ?3
                 WHERE NOT EXISTS (SELECT 1 FROM nodes_removed WHERE kind = 'node' AND name = ?1 AND at >= ?4)
                 ON CONFLICT (node) DO UPDATE SET last_at = excluded.last_at, record = excluded.record
                 WHERE excluded.last_at >= nodes_known.last_at",
            )?;
            for record in &records {
                put.execute(params![record.node.as_str(), record.last_at.0, written(record), record.first_at.0])?;
            }
            Ok(())
        })
        .await
    }

    async fn forget(&self, nodes: Vec<NodeId>) -> Answer<()> {
        self.write(move |db| {
            let mut delete = db.prepare_cached("DELETE FROM nodes_known WHERE node = ?1")?;
            nodes.iter().try_for_each(|node| delete.execute([node.as_str()]).map(drop))
        })
        .await
    }

    async fn remove(&self, node: &NodeId, at: Timestamp) -> Answer<()> {
        let node = node.clone();
        self.write(move |db| {
            db.prepare_cached("DELETE FROM nodes_known WHERE node = ?1")?.execute([node.as_str()])?;
            removed(db, &Removed::Node(node), at)
        })
        .await
    }

    async fn removals(&self, since: Timestamp) -> Answer<Vec<Removal>> {
        self.read(move |db| {
            let mut select =
                db.prepare_cached("SELECT kind, name, at FROM nodes_removed WHERE at >= ?1 ORDER BY at")?;
            let rows = select.query_map([since.0], |row| {
                let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
                let at = Timestamp(row.get(2)?);
                Ok(Removed::read(&kind, name).map(|what| Removal { what, at }))
            })?;
            rows.filter_map(Result::transpose).collect()
        })
        .await
    }

    async fn add_device(&self, device: Device, by: By) -> Answer<bool> {
        self.write(move |db| {
            let new = db
                .prepare_cached(
                    "INSERT INTO devices (name, node, digest, may_request, created_at, created_by, publish, subscribe,
                                          allowance)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
                )?
                .execute(params![
                    device.name,
                    device.node.as_str(),
                    device.digest.0,
                    device.may_request,
                    device.created_at.0,
                    device.created_by,
                    device.topics.publish_text(),
                    device.topics.subscribe_text(),
                    device.warrant.allowance.text()
                ])?;
            if new > 0 {
                audit(db, &by, "device.add", &device.name)?;
            }
            Ok(new > 0)
        })
        .await
    }

    async fn device(&self, name: &str) -> Answer<Option<Device>> {
        let name = name.to_owned();
        self.read(move |db| {
            let found =
                db.prepare_cached(&format!("{DEVICE} WHERE name = ?1"))?.query_row([name], device).optional()?;
            Ok(found.flatten())
        })
        .await
    }

    async fn devices(&self, after: &str, rows: u32) -> Answer<Vec<Device>> {
        let after = after.to_owned();
        self.read(move |db| {
            let mut select = db.prepare_cached(&format!("{DEVICE} WHERE name > ?1 ORDER BY name LIMIT ?2"))?;
            let found = select.query_map(params![after, rows], device)?;
            found.filter_map(Result::transpose).collect()
        })
        .await
    }

    async fn remove_device(&self, name: &str, by: By) -> Answer<bool> {
        let name = name.to_owned();
        self.write(move |db| {
            let gone = db.prepare_cached("DELETE FROM devices WHERE name = ?1")?.execute([&name])?;
            db.prepare_cached("DELETE FROM nodes_keys WHERE node = ?1")?.execute([&name])?;
            if gone > 0 {
                audit(db, &by, "device.rm", &name)?;
                removed(db, &Removed::Device(name), by.at)?;
            }
            Ok(gone > 0)
        })
        .await
    }

    async fn invite(&self, invitation: Invitation, by: By) -> Answer<()> {
        self.write(move |db| {
            db.prepare_cached("DELETE FROM nodes_invitations WHERE until < ?1")?.execute([by.at.0])?;
            let Invitation { digest, node, until, created_by, allowance } = &invitation;
            db.prepare_cached(
                "INSERT INTO nodes_invitations (digest, node, until, created_by, allowance) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![digest, node.as_str(), until.0, created_by, allowance.text()])?;
            audit(db, &by, "node.invite", node.as_str())
        })
        .await
    }

    async fn enrol(&self, invitation: [u8; 32], key: [u8; 32], by: By) -> Answer<Enrolling> {
        self.write(move |db| {
            let found = db
                .prepare_cached(
                    "DELETE FROM nodes_invitations WHERE digest = ?1 AND until >= ?2
                     RETURNING node, created_by, allowance",
                )?
                .query_row(params![invitation, by.at.0], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
                })
                .optional()?;
            let Some((node, created_by, allowance)) = found else { return Ok(Enrolling::Worthless) };
            let Ok(id) = node.parse::<NodeId>() else { return Ok(Enrolling::Worthless) };
            let new = db
                .prepare_cached(
                    "INSERT INTO devices (name, node, digest, may_request, created_at, created_by, allowance)
                     VALUES (?1, ?1, ?2, 0, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
                )?
                .execute(params![node, no_password(), by.at.0, created_by, allowance])?;
            if new == 0 {
                return Ok(Enrolling::Taken(id));
            }
            db.prepare_cached(
                "INSERT INTO nodes_keys (node, key, changes) VALUES (?1, ?2, 0)
                 ON CONFLICT (node) DO UPDATE SET key = excluded.key, changes = 0",
            )?
            .execute(params![node, key])?;
            audit(db, &by, "node.enrol", &node)?;
            Ok(Enrolling::LetIn(id))
        })
        .await
    }

    async fn node_key(&self, node: &NodeId) -> Answer<Option<Key>> {
        let node = node.clone();
        self.read(move |db| {
            db.prepare_cached("SELECT key, changes FROM nodes_keys WHERE node = ?1")?
                .query_row([node.as_str()], |row| {
                    let changes: i64 = row.get(1)?;
                    Ok(Key { public: row.get(0)?, changes: changes.unsigned_abs() })
                })
                .optional()
        })
        .await
    }

    async fn change_password(&self, node: &NodeId, change: u64, digest: Digest) -> Answer<bool> {
        let (node, change) = (node.clone(), i64::try_from(change).unwrap_or(i64::MAX));
        self.write(move |db| {
            let next = db
                .prepare_cached("UPDATE nodes_keys SET changes = ?2 WHERE node = ?1 AND changes = ?2 - 1")?
                .execute(params![node.as_str(), change])?;
            if next > 0 {
                db.prepare_cached("UPDATE devices SET digest = ?2 WHERE name = ?1")?
                    .execute(params![node.as_str(), digest.0])?;
            }
            Ok(next > 0)
        })
        .await
    }

    async fn toss(&self, tossed: Vec<Tossed>, most: u32) -> Answer<()> {
        self.write(move |db| {
            let mut insert = db.prepare_cached(
                "INSERT INTO nodes_rubbish (at, place, who, reason, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            for one in &tossed {
                insert.execute(params![one.at.0, one.place, one.who, one.reason, one.body])?;
            }
            db.prepare_cached("DELETE FROM nodes_rubbish WHERE seq <= (SELECT max(seq) FROM nodes_rubbish) - ?1")?
                .execute([most])
                .map(drop)
        })
        .await
    }

    async fn tossed(&self, rows: u32) -> Answer<Vec<Tossed>> {
        self.read(move |db| {
            let mut select =
                db.prepare_cached("SELECT at, place, who, reason, body FROM nodes_rubbish ORDER BY seq DESC LIMIT ?1")?;
            let one = |row: &Row<'_>| {
                Ok(Tossed {
                    at: Timestamp(row.get(0)?),
                    place: row.get(1)?,
                    who: row.get(2)?,
                    reason: row.get(3)?,
                    body: row.get(4)?,
                })
            };
            select.query_map([rows], one)?.collect()
        })
        .await
    }

    async fn keep_answer(&self, at: Timestamp, client: Option<String>, text: String, bounds: Bounds) -> Answer<()> {
        let (bytes_max, age_ms) = (bounds.bytes_max as i64, bounds.age_max.as_millis() as i64);
        self.write(move |db| {
            db.prepare_cached("INSERT INTO nodes_answers (at, bytes, text, client) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![at.0, bytes_of(&text), text, client])?;
            if db.last_insert_rowid() % ANSWERS_LOOKED_AT != 0 {
                return Ok(());
            }
            db.prepare_cached(
                "DELETE FROM nodes_answers WHERE at < ?1 OR seq <= (SELECT max(seq) FROM nodes_answers) - ?2",
            )?
            .execute(params![at.0 - age_ms, bounds.rows_max])?;
            // The oldest, until what is left fits.
            db.prepare_cached(
                "DELETE FROM nodes_answers WHERE seq IN (
                   SELECT seq FROM (SELECT seq, sum(bytes) OVER (ORDER BY seq DESC) AS newer FROM nodes_answers)
                   WHERE newer > ?1)",
            )?
            .execute([bytes_max])
            .map(drop)
        })
        .await
    }

    async fn answered_clients(&self) -> Answer<Vec<Option<String>>> {
        self.read(move |db| {
            let mut select = db.prepare_cached("SELECT DISTINCT client FROM nodes_answers LIMIT ?1")?;
            select.query_map([CLIENTS_MAX], |row| row.get(0))?.collect()
        })
        .await
    }

    async fn answers(&self, client: Option<String>, rows: u32) -> Answer<Vec<(i64, String)>> {
        self.read(move |db| {
            let sql = "SELECT seq, text FROM nodes_answers WHERE client IS ?1 ORDER BY seq LIMIT ?2";
            let mut select = db.prepare_cached(sql)?;
            select.query_map(params![client, rows], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .await
    }

    async fn forget_answers(&self, numbers: Vec<i64>) -> Answer<()> {
        self.write(move |db| {
            let mut delete = db.prepare_cached("DELETE FROM nodes_answers WHERE seq = ?1")?;
            numbers.iter().try_for_each(|number| delete.execute([number]).map(drop))
        })
        .await
    }
}

fn bytes_of(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

/// None: its node has a name that this version does not know how to read.
fn device(row: &Row<'_>) -> rusqlite::Result<Option<Device>> {
    let Ok(node) = row.get::<_, String>(1)?.parse() else { return Ok(None) };
    Ok(Some(Device {
        name: row.get(0)?,
        node,
        digest: Digest(row.get(2)?),
        may_request: row.get(3)?,
        created_at: Timestamp(row.get(4)?),
        created_by: row.get(5)?,
        topics: OwnTopics::read(&row.get::<_, String>(6)?, &row.get::<_, String>(7)?),
        warrant: Arc::new(Warrant { allowance: Allowance::read(&row.get::<_, String>(8)?), by_key: row.get(9)? }),
    }))
}

fn removed(db: &Connection, what: &Removed, at: Timestamp) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM nodes_removed WHERE at < ?1")?.execute([at.0 - REMOVALS_KEPT_MS])?;
    let (kind, name) = what.words();
    db.prepare_cached(
        "INSERT INTO nodes_removed (kind, name, at) VALUES (?1, ?2, ?3)
         ON CONFLICT (kind, name) DO UPDATE SET at = max(at, excluded.at)",
    )?
    .execute(params![kind, name, at.0])
    .map(drop)
}

fn audit(db: &Connection, by: &By, what: &str, whom: &str) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM nodes_audit WHERE at < ?1")?.execute([by.at.0 - AUDIT_KEPT_MS])?;
    db.prepare_cached("INSERT INTO nodes_audit (at, who, what, whom) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![by.at.0, by.who, what, whom])
        .map(drop)
}
