//! The [`NodeStore`] in SQLite.

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_store::{Migration, Sqlite, StoreError};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{AUDIT_KEPT_MS, By, NodeStore, REMOVALS_KEPT_MS, Removal, Removed, Tossed, read_record, written};
use crate::device::{Device, Digest};
use crate::names::NodeId;
use crate::registry::Record;

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "nodes", version: 1, sql: include_str!("001_nodes.sql") },
    Migration { component: "nodes", version: 2, sql: include_str!("002_removed.sql") },
];

type Answer<T> = Result<T, StoreError>;

const DEVICE: &str = "SELECT name, node, digest, may_request, created_at, created_by FROM devices";

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
            let mut select = db.prepare_cached("SELECT kind, name, at FROM nodes_removed WHERE at >= ?1 ORDER BY at")?;
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
                    "INSERT INTO devices (name, node, digest, may_request, created_at, created_by)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
                )?
                .execute(params![
                    device.name,
                    device.node.as_str(),
                    device.digest.0,
                    device.may_request,
                    device.created_at.0,
                    device.created_by
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
            if gone > 0 {
                audit(db, &by, "device.rm", &name)?;
                removed(db, &Removed::Device(name), by.at)?;
            }
            Ok(gone > 0)
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
