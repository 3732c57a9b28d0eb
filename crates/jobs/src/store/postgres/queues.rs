//! Queues in PostgreSQL. Every change first takes the next revision, whose row stays locked until the change is written:
//! so changes are made one after the other, and seen in the order of their revisions.

use async_trait::async_trait;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::{ShardId, Timestamp};
use mutirao_queues::QueueSpec;
use mutirao_store::StoreError;
use mutirao_store::postgres::{Ask, Row, Transaction};

use super::{PostgresJobs, rows};
use crate::store::queues::{By, Deleted, Expected, Put, QueueRow, QueueStore, Removed, Unfinished, Written};

const COLUMNS: &str = "definition, revision, created_at, changed_at, changed_by, name";

#[async_trait]
impl QueueStore for PostgresJobs {
    async fn queues(&self, after: u64) -> Result<Vec<QueueRow>, StoreError> {
        self.select(after, |_| true).await
    }

    async fn queues_of(&self, shard: ShardId) -> Result<Vec<QueueRow>, StoreError> {
        self.select(0, |name| shard_of(name) == shard).await
    }

    async fn removed_queues(&self, after: u64) -> Result<Vec<Removed>, StoreError> {
        const SQL: &str = "SELECT queue, revision FROM queue_changes WHERE what = 'delete' AND revision > $1";
        let found = self.0.connection().await?.rows(SQL, &[&(after as i64)]).await?;
        let removed =
            |row: &Row| Ok(Removed { queue: rows::parsed(row, 0)?, revision: row.try_get::<_, i64>(1)? as u64 });
        found.iter().map(removed).collect()
    }

    async fn queue(&self, name: QueueName) -> Result<Option<QueueRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM queues WHERE name = $1");
        let found = self.0.connection().await?.row(&sql, &[&name.as_str()]).await?;
        found.map(|row| Ok(written(&row, name)?.or_held())).transpose()
    }

    async fn put_queue(&self, spec: QueueSpec, expected: Expected, by: By) -> Result<Put, StoreError> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let revision = next_revision(&tx).await?;
        let before = locked(&tx, &spec.name, FOR_CHANGE).await?;
        if !expected.fits(before.as_ref().map(|row| row.revision)) {
            return Ok(Put::Unexpected(before));
        }
        let definition = serde_json::to_string(&spec).map_err(rows::unreadable)?;
        let created_at = before.as_ref().map_or(by.at, |row| row.created_at);
        tx.run(
            "INSERT INTO queues (name, definition, revision, created_at, changed_at, changed_by)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (name) DO UPDATE SET definition = $2, revision = $3, changed_at = $5, changed_by = $6",
            &[&spec.name.as_str(), &definition, &(revision as i64), &created_at.0, &by.at.0, &by.name],
        )
        .await?;
        let what = if before.is_some() { "change" } else { "create" };
        note(&tx, revision, &by, what, &spec.name, Some(&definition)).await?;
        tx.commit().await?;
        let now = QueueRow { spec, revision, created_at, changed_at: by.at, changed_by: by.name, unreadable: None };
        Ok(if before.is_some() { Put::Changed(now) } else { Put::Created(now) })
    }

    async fn delete_queue(&self, name: QueueName, unfinished: Unfinished, by: By) -> Result<Deleted, StoreError> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let revision = next_revision(&tx).await?;
        // Whoever is submitting to it holds its row: they are waited for, and those who come later find it gone.
        if locked(&tx, &name, FOR_DELETION).await?.is_none() {
            return Ok(Deleted::Missing);
        }
        let open = tx
            .row(
                "SELECT count(*), coalesce(sum(total - ok - failed - timed_out - cancelled - lost - dead), 0)::bigint
                 FROM jobs WHERE queue = $1 AND finished_at IS NULL",
                &[&name.as_str()],
            )
            .await?;
        let (jobs, tasks): (i64, i64) = match open {
            Some(row) => (row.try_get(0)?, row.try_get(1)?),
            None => (0, 0),
        };
        if jobs > 0 && unfinished == Unfinished::Refuse {
            return Ok(Deleted::Busy { jobs: jobs as u64, tasks: tasks as u64 });
        }
        let cancelled = tx
            .rows(
                // Locked in the order in which settlements lock, or the two could wait for each other.
                "WITH open AS (SELECT key FROM jobs WHERE queue = $1 AND finished_at IS NULL ORDER BY key FOR NO KEY UPDATE)
                 UPDATE jobs SET cancelled = total - ok - failed - timed_out - lost - dead,
                                 cancelled_at = $2, finished_at = $2
                 FROM open WHERE jobs.key = open.key RETURNING jobs.key",
                &[&name.as_str(), &by.at.0],
            )
            .await?;
        tx.run("DELETE FROM queues WHERE name = $1", &[&name.as_str()]).await?;
        note(&tx, revision, &by, "delete", &name, None).await?;
        tx.commit().await?;
        let key = |row: &Row| Ok(JobKey(row.try_get::<_, i64>(0)? as u64));
        let cancelled = cancelled.iter().map(key).collect::<Result<_, StoreError>>()?;
        Ok(Deleted::Gone { revision, cancelled, tasks: tasks as u64 })
    }
}

impl PostgresJobs {
    /// Those that changed after a revision and are wanted; no other is read.
    async fn select(&self, after: u64, wanted: impl Fn(&QueueName) -> bool) -> Result<Vec<QueueRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM queues WHERE revision > $1 ORDER BY name");
        let mut found = Vec::new();
        for row in self.0.connection().await?.rows(&sql, &[&(after as i64)]).await? {
            let name: QueueName = rows::parsed(&row, 5)?;
            if wanted(&name) {
                found.push(written(&row, name)?.or_held());
            }
        }
        Ok(found)
    }
}

fn written(row: &Row, name: QueueName) -> Result<Written, StoreError> {
    Ok(Written {
        name,
        definition: row.try_get(0)?,
        revision: row.try_get::<_, i64>(1)? as u64,
        created_at: Timestamp(row.try_get(2)?),
        changed_at: Timestamp(row.try_get(3)?),
        changed_by: row.try_get(4)?,
    })
}

async fn next_revision(tx: &Transaction<'_>) -> Result<u64, StoreError> {
    let row = tx.row("UPDATE generations SET n = n + 1 WHERE name = 'queues' RETURNING n", &[]).await?;
    let row = row.ok_or_else(|| rows::unreadable("the count of changes to queues is gone"))?;
    Ok(row.try_get::<_, i64>(0)? as u64)
}

/// Who submits to a queue need not wait for a change of it,
const FOR_CHANGE: &str = "FOR NO KEY UPDATE";
/// but a deletion and they wait for each other.
const FOR_DELETION: &str = "FOR UPDATE";

async fn locked(tx: &Transaction<'_>, name: &QueueName, how: &str) -> Result<Option<QueueRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM queues WHERE name = $1 {how}");
    let found = tx.row(&sql, &[&name.as_str()]).await?;
    found.map(|row| Ok(written(&row, name.clone())?.or_held())).transpose()
}

async fn note(
    tx: &Transaction<'_>,
    revision: u64,
    by: &By,
    what: &str,
    queue: &QueueName,
    definition: Option<&str>,
) -> Result<(), StoreError> {
    let line = "INSERT INTO queue_changes (revision, at, who, what, queue, definition) VALUES ($1, $2, $3, $4, $5, $6)";
    tx.run(line, &[&(revision as i64), &by.at.0, &by.who, &what, &queue.as_str(), &definition]).await.map(drop)
}
