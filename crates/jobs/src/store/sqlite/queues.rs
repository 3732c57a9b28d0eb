//! Queues in SQLite.

use async_trait::async_trait;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::{ShardId, Timestamp};
use mutirao_queues::QueueSpec;
use mutirao_store::StoreError;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::{SqliteJobs, rows};
use crate::store::queues::{By, Deleted, Expected, Put, QueueRow, QueueStore, Removed, Unfinished, Written};

const COLUMNS: &str = "definition, revision, created_at, changed_at, changed_by, name";

#[async_trait]
impl QueueStore for SqliteJobs {
    async fn queues(&self, after: u64) -> std::result::Result<Vec<QueueRow>, StoreError> {
        self.0.read(move |db| select(db, after, |_| true)).await
    }

    async fn queues_of(&self, shard: ShardId) -> std::result::Result<Vec<QueueRow>, StoreError> {
        self.0.read(move |db| select(db, 0, |name| shard_of(name) == shard)).await
    }

    async fn removed_queues(&self, after: u64) -> std::result::Result<Vec<Removed>, StoreError> {
        self.0
            .read(move |db| {
                db.prepare_cached("SELECT queue, revision FROM queue_changes WHERE what = 'delete' AND revision > ?1")?
                    .query_map([after as i64], |row| {
                        Ok(Removed { queue: rows::parsed(row, 0)?, revision: row.get::<_, i64>(1)? as u64 })
                    })?
                    .collect()
            })
            .await
    }

    async fn queue(&self, name: QueueName) -> std::result::Result<Option<QueueRow>, StoreError> {
        self.0.read(move |db| find(db, &name)).await
    }

    async fn put_queue(&self, spec: QueueSpec, expected: Expected, by: By) -> std::result::Result<Put, StoreError> {
        self.0.write(move |db| put(db, &spec, expected, &by)).await
    }

    async fn delete_queue(
        &self,
        name: QueueName,
        unfinished: Unfinished,
        by: By,
    ) -> std::result::Result<Deleted, StoreError> {
        self.0.write(move |db| delete(db, &name, unfinished, &by)).await
    }
}

/// Those that changed after a revision and are wanted; no other is read.
fn select(db: &Connection, after: u64, wanted: impl Fn(&QueueName) -> bool) -> Result<Vec<QueueRow>> {
    let mut found = Vec::new();
    let mut select = db.prepare_cached(&format!("SELECT {COLUMNS} FROM queues WHERE revision > ?1 ORDER BY name"))?;
    let mut lines = select.query([after as i64])?;
    while let Some(row) = lines.next()? {
        let name: QueueName = rows::parsed(row, 5)?;
        if wanted(&name) {
            found.push(written(row, name)?.or_held());
        }
    }
    Ok(found)
}

fn written(row: &Row<'_>, name: QueueName) -> Result<Written> {
    Ok(Written {
        name,
        definition: row.get(0)?,
        revision: row.get::<_, i64>(1)? as u64,
        created_at: Timestamp(row.get(2)?),
        changed_at: Timestamp(row.get(3)?),
        changed_by: row.get(4)?,
    })
}

fn find(db: &Connection, name: &QueueName) -> Result<Option<QueueRow>> {
    let sql = format!("SELECT {COLUMNS} FROM queues WHERE name = ?1");
    let row = |row: &Row<'_>| Ok(written(row, name.clone())?.or_held());
    db.prepare_cached(&sql)?.query_row([name.as_str()], row).optional()
}

fn put(db: &Connection, spec: &QueueSpec, expected: Expected, by: &By) -> Result<Put> {
    let before = find(db, &spec.name)?;
    if !expected.fits(before.as_ref().map(|row| row.revision)) {
        return Ok(Put::Unexpected(before));
    }
    let definition =
        serde_json::to_string(spec).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let what = if before.is_some() { "change" } else { "create" };
    let revision = note(db, by, what, &spec.name, Some(&definition))?;
    let created_at = before.as_ref().map_or(by.at, |row| row.created_at);
    db.prepare_cached(
        "INSERT INTO queues (name, definition, revision, created_at, changed_at, changed_by)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT DO UPDATE SET definition = ?2, revision = ?3, changed_at = ?5, changed_by = ?6",
    )?
    .execute(params![spec.name.as_str(), definition, revision as i64, created_at.0, by.at.0, by.name])?;
    let (spec, changed_by) = (spec.clone(), by.name.clone());
    let now = QueueRow { spec, revision, created_at, changed_at: by.at, changed_by, unreadable: None };
    Ok(if before.is_some() { Put::Changed(now) } else { Put::Created(now) })
}

fn delete(db: &Connection, name: &QueueName, unfinished: Unfinished, by: &By) -> Result<Deleted> {
    if find(db, name)?.is_none() {
        return Ok(Deleted::Missing);
    }
    let (jobs, tasks): (i64, i64) = db
        .prepare_cached(
            "SELECT count(*), coalesce(sum(total - ok - failed - timed_out - cancelled - lost - dead), 0)
             FROM jobs WHERE queue = ?1 AND finished_at IS NULL",
        )?
        .query_row([name.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if jobs > 0 && unfinished == Unfinished::Refuse {
        return Ok(Deleted::Busy { jobs: jobs as u64, tasks: tasks as u64 });
    }
    let cancelled = db
        .prepare_cached(
            "UPDATE jobs SET cancelled = total - ok - failed - timed_out - lost - dead, cancelled_at = ?2, finished_at = ?2
             WHERE queue = ?1 AND finished_at IS NULL RETURNING key",
        )?
        .query_map(params![name.as_str(), by.at.0], |row| Ok(JobKey(row.get::<_, i64>(0)? as u64)))?
        .collect::<Result<_>>()?;
    db.prepare_cached("DELETE FROM queues WHERE name = ?1")?.execute([name.as_str()])?;
    let revision = note(db, by, "delete", name, None)?;
    Ok(Deleted::Gone { revision, cancelled, tasks: tasks as u64 })
}

/// Writes down who changed what, and gives the change its revision.
fn note(db: &Connection, by: &By, what: &str, queue: &QueueName, definition: Option<&str>) -> Result<u64> {
    let revision: i64 = db
        .prepare_cached("UPDATE generations SET n = n + 1 WHERE name = 'queues' RETURNING n")?
        .query_row([], |row| row.get(0))?;
    db.prepare_cached(
        "INSERT INTO queue_changes (revision, at, who, what, queue, definition) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![revision, by.at.0, by.who, what, queue.as_str(), definition])?;
    Ok(revision as u64)
}
