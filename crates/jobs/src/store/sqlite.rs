//! Jobs in SQLite. Integer keys, rows without hidden row ids, statements prepared once.

mod dead;
mod held;
mod look;
mod queues;
mod rows;
mod settle;

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::blobs::LogStream;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::job::{JobView, TaskView};
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Migration, Sqlite, StoreError};
use rusqlite::{OptionalExtension, params};

use super::held::WAITED_FOR;
use super::{
    AskedBefore, Card, Created, Forgotten, JobFilter, JobStore, KeptOutput, NewJob, OpenJobs, OpenTasks, Settlement,
    Settling,
};
use crate::entries::{Kind, Segment, unpack};

/// To be applied after those of `shards`.
pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "jobs", version: 1, sql: include_str!("sqlite/001_jobs.sql") },
    Migration { component: "jobs", version: 2, sql: include_str!("sqlite/002_shards.sql") },
    Migration { component: "jobs", version: 3, sql: include_str!("sqlite/003_queues.sql") },
    Migration { component: "jobs", version: 4, sql: include_str!("sqlite/004_batch.sql") },
    Migration { component: "jobs", version: 5, sql: include_str!("sqlite/005_revived.sql") },
    Migration { component: "jobs", version: 6, sql: include_str!("sqlite/006_waited.sql") },
    Migration { component: "jobs", version: 7, sql: include_str!("sqlite/007_first_key.sql") },
];

/// Rows removed in one go by retention: bounds how long other writers wait.
const FORGET_ROWS: usize = 5_000;

pub struct SqliteJobs(pub Sqlite);

#[async_trait]
impl JobStore for SqliteJobs {
    async fn place(&self) -> Result<(), StoreError> {
        self.0.write(place).await
    }

    async fn create(&self, job: NewJob) -> Result<Created, StoreError> {
        self.0.write(move |db| create(db, &job)).await
    }

    async fn asked_before(
        &self,
        namespace: String,
        owner: String,
        key: String,
    ) -> Result<Option<AskedBefore>, StoreError> {
        self.0.read(move |db| asked_before(db, &namespace, &owner, &key)).await
    }

    async fn open_keys(&self, shard: ShardId) -> Result<Vec<JobKey>, StoreError> {
        self.0.read(move |db| look::open_keys(db, shard)).await
    }

    async fn revived(&self, shard: ShardId) -> Result<Vec<(JobKey, u64)>, StoreError> {
        self.0.read(move |db| look::revived(db, shard)).await
    }

    async fn open_tasks(&self, queue: QueueName) -> Result<OpenTasks, StoreError> {
        self.0.read(move |db| look::open_tasks(db, &queue)).await
    }

    async fn open_jobs(&self, keys: Vec<JobKey>) -> Result<OpenJobs, StoreError> {
        self.0.read(move |db| look::open_jobs(db, &keys)).await
    }

    async fn sessions(&self, shard: ShardId) -> Result<Vec<(SessionId, WorkerId, QueueName)>, StoreError> {
        let mut sessions = self.0.read(look::sessions).await?;
        sessions.retain(|(_, _, queue)| shard_of(queue) == shard);
        Ok(sessions)
    }

    async fn queue_of(&self, session: SessionId) -> Result<Option<QueueName>, StoreError> {
        self.0
            .read(move |db| {
                db.prepare_cached("SELECT queue FROM sessions WHERE session = ?1")?
                    .query_row([&session.0], |row| rows::parsed(row, 0))
                    .optional()
            })
            .await
    }

    async fn card(&self, job: JobKey) -> Result<Option<Card>, StoreError> {
        self.0
            .read(move |db| {
                db.prepare_cached("SELECT spec, trace, kind, first FROM jobs WHERE key = ?1")?
                    .query_row([job.0 as i64], |row| {
                        Ok(Card {
                            spec: Arc::new(rows::json(row, 0)?),
                            trace: row.get(1)?,
                            kind: rows::kind(row, 2)?,
                            first: row.get(3)?,
                        })
                    })
                    .optional()
            })
            .await
    }

    async fn segment(&self, job: JobKey, kind: Kind, first: u32) -> Result<Option<Segment>, StoreError> {
        let packed: Option<Vec<u8>> = self
            .0
            .read(move |db| {
                db.prepare_cached("SELECT body FROM segments WHERE job = ?1 AND first = ?2")?
                    .query_row(params![job.0 as i64, first], |row| row.get(0))
                    .optional()
            })
            .await?;
        packed
            .map(|packed| unpack(job, kind, &packed))
            .transpose()
            .map_err(|bad| StoreError::Unusable { path: "the store".into(), why: bad.to_string() })
    }

    async fn settle(&self, settlement: Arc<Settlement>, fence: Fence) -> Result<Settling, StoreError> {
        self.0
            .write(move |db| {
                if !fence.holds_in_sqlite(db)? {
                    return Ok(Settling::Fenced);
                }
                settle::settle(db, &settlement).map(|()| Settling::Written)
            })
            .await
    }

    async fn cancel(&self, job: JobKey, at: Timestamp) -> Result<bool, StoreError> {
        self.0
            .write(move |db| {
                let changed = db
                    .prepare_cached(
                        "UPDATE jobs SET cancelled = total - ok - failed - timed_out - lost - dead,
                                         cancelled_at = ?2, finished_at = ?2
                         WHERE key = ?1 AND finished_at IS NULL",
                    )?
                    .execute(params![job.0 as i64, at.0])?;
                Ok(changed == 1)
            })
            .await
    }

    async fn job(&self, job: JobKey) -> Result<Option<(JobView, String)>, StoreError> {
        self.0.read(move |db| look::job(db, job)).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobView>, StoreError> {
        self.0.read(move |db| look::jobs(db, &filter)).await
    }

    async fn jobs_of(&self, namespace: String, keys: Vec<JobKey>) -> Result<Vec<JobView>, StoreError> {
        self.0.read(move |db| look::jobs_of(db, &namespace, &keys)).await
    }

    async fn extent(&self, job: JobKey) -> Result<Option<(u32, u64)>, StoreError> {
        self.0
            .read(move |db| {
                db.prepare_cached("SELECT first, total FROM jobs WHERE key = ?1")?
                    .query_row([job.0 as i64], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))
                    .optional()
            })
            .await
    }

    async fn tasks(&self, job: JobKey, from: u32, size: u32) -> Result<Vec<TaskView>, StoreError> {
        self.0.read(move |db| look::tasks(db, job, from, size)).await
    }

    async fn output(&self, task: TaskKey, stream: LogStream) -> Result<Option<KeptOutput>, StoreError> {
        self.0.read(move |db| look::output(db, task, stream)).await
    }

    async fn outputs(
        &self,
        job: JobKey,
        from: u32,
        size: u32,
    ) -> Result<Vec<(u32, LogStream, KeptOutput)>, StoreError> {
        self.0.read(move |db| look::outputs(db, job, from, size)).await
    }

    async fn forget(&self, before: Timestamp) -> Result<Forgotten, StoreError> {
        self.0.write(move |db| forget(db, before)).await
    }
}

fn place(db: &rusqlite::Connection) -> rusqlite::Result<()> {
    let queues: Vec<QueueName> = db
        .prepare("SELECT DISTINCT queue FROM jobs WHERE shard IS NULL AND held IS NULL AND finished_at IS NULL")?
        .query_map([], |row| rows::parsed(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut update = db.prepare(
        "UPDATE jobs SET shard = ?2 WHERE queue = ?1 AND shard IS NULL AND held IS NULL AND finished_at IS NULL",
    )?;
    for queue in queues {
        update.execute(params![queue.as_str(), shard_of(&queue).0])?;
    }
    Ok(())
}

fn forget(db: &rusqlite::Connection, before: Timestamp) -> rusqlite::Result<Forgotten> {
    let mut forgotten = Forgotten::default();
    let mut room = FORGET_ROWS;
    while room > 0 {
        let oldest: Option<i64> = db
            .prepare_cached(&format!(
                "SELECT key FROM jobs WHERE finished_at < ?1 AND NOT {WAITED_FOR} ORDER BY finished_at LIMIT 1"
            ))?
            .query_row([before.0], |row| row.get(0))
            .optional()?;
        let Some(job) = oldest else {
            db.prepare_cached("DELETE FROM queue_changes WHERE at < ?1")?.execute([before.0])?;
            forgotten.done = true;
            break;
        };
        for statement in [
            "DELETE FROM outputs WHERE (job, idx, stream) IN
                (SELECT job, idx, stream FROM outputs WHERE job = ?1 LIMIT ?2)",
            "DELETE FROM tasks WHERE (job, idx) IN (SELECT job, idx FROM tasks WHERE job = ?1 LIMIT ?2)",
            "DELETE FROM segments WHERE (job, first) IN (SELECT job, first FROM segments WHERE job = ?1 LIMIT ?2)",
            "DELETE FROM job_waits WHERE (job, waited) IN (SELECT job, waited FROM job_waits WHERE job = ?1 LIMIT ?2)",
        ] {
            room -= db.prepare_cached(statement)?.execute(params![job, room as i64])?;
        }
        // The job's own row goes last: until then the next step finds it again.
        if room > 0 {
            db.prepare_cached("DELETE FROM jobs WHERE key = ?1")?.execute([job])?;
            forgotten.jobs.push(JobKey(job as u64));
            room -= 1;
        }
    }
    Ok(forgotten)
}

fn asked_before(
    db: &rusqlite::Connection,
    namespace: &str,
    owner: &str,
    key: &str,
) -> rusqlite::Result<Option<AskedBefore>> {
    db.prepare_cached("SELECT key, digest FROM jobs WHERE namespace = ?1 AND owner = ?2 AND idempotency = ?3")?
        .query_row(params![namespace, owner, key], |row| {
            Ok(AskedBefore { job: JobKey(row.get::<_, i64>(0)? as u64), digest: row.get(1)? })
        })
        .optional()
}

fn create(db: &rusqlite::Connection, job: &NewJob) -> rusqlite::Result<Created> {
    if let Some((key, digest)) = &job.idempotency
        && let Some(before) = asked_before(db, &job.namespace, &job.owner, key)?
    {
        return Ok(before.meets(digest));
    }
    if let Some(refused) = held::cannot_be(db, job)? {
        return Ok(refused);
    }
    let (idempotency, digest) = job.idempotency.as_ref().map(|(k, d)| (k, d)).unzip();
    let home = shard_of(&job.queue).0;
    let (shard, held) = if job.waits.is_empty() { (Some(home), None) } else { (None, Some(home)) };
    let inserted = db
        .prepare_cached(
            "INSERT INTO jobs (namespace, owner, queue, name, labels, spec, kind, first, total, trace, created_at,
                               idempotency, digest, shard, priority, unique_key, held)
             SELECT ?1, ?2, name, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17
             FROM queues WHERE name = ?3",
        )?
        .execute(params![
            job.namespace,
            job.owner,
            job.queue.as_str(),
            job.name,
            job.labels,
            job.spec,
            job.kind as i64,
            job.first,
            job.total,
            job.trace,
            job.created_at.0,
            idempotency,
            digest,
            shard,
            job.priority,
            job.unique,
            held
        ])?;
    if inserted == 0 {
        return Ok(Created::NoQueue);
    }
    let key = db.last_insert_rowid();
    let mut insert = db.prepare_cached("INSERT INTO segments (job, first, body) VALUES (?1, ?2, ?3)")?;
    for (first, body) in &job.segments {
        insert.execute(params![key, first, body])?;
    }
    let mut wait = db.prepare_cached("INSERT INTO job_waits (job, waited, how) VALUES (?1, ?2, ?3)")?;
    for (waited, until) in &job.waits {
        wait.execute(params![key, waited.0 as i64, until.code()])?;
    }
    Ok(Created::New(JobKey(key as u64)))
}
