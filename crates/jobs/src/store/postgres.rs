//! Jobs in PostgreSQL. Batches travel as arrays, one statement for each table; statements are prepared once for each
//! connection. Several managers may write at once: rows decide, not who came first.

mod columns;
mod dead;
mod firsts;
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
use mutirao_store::postgres::{Ask, Row, Transaction, text};
use mutirao_store::{Migration, Postgres, StoreError};

use super::held::WAITED_FOR;
use super::{
    AskedBefore, Card, Created, Forgotten, JobFilter, JobStore, KeptOutput, NewJob, OpenJobs, OpenTasks, Settlement,
    Settling,
};
use crate::entries::{Kind, Segment, unpack};

/// To be applied after those of `shards`.
pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "jobs", version: 1, sql: include_str!("postgres/001_jobs.sql") },
    Migration { component: "jobs", version: 2, sql: include_str!("postgres/002_shards.sql") },
    Migration { component: "jobs", version: 3, sql: include_str!("postgres/003_queues.sql") },
    Migration { component: "jobs", version: 4, sql: include_str!("postgres/004_batch.sql") },
    Migration { component: "jobs", version: 5, sql: include_str!("postgres/005_revived.sql") },
    Migration { component: "jobs", version: 6, sql: include_str!("postgres/006_waited.sql") },
    Migration { component: "jobs", version: 7, sql: include_str!("postgres/007_first_key.sql") },
];

/// Rows removed in one go by retention, of so many jobs: bounds how long their locks are held.
const FORGET_ROWS: i64 = 5_000;
const FORGET_JOBS: i64 = 100;
/// Segments written by one statement: about 4 MB of ordinary lines.
const SEGMENTS_AT_ONCE: usize = 256;

pub struct PostgresJobs(pub Postgres);

#[async_trait]
impl JobStore for PostgresJobs {
    async fn place(&self) -> Result<(), StoreError> {
        let connection = self.0.connection().await?;
        let unplaced = "SELECT DISTINCT queue FROM jobs WHERE shard IS NULL AND held IS NULL AND finished_at IS NULL";
        let found = connection.rows(unplaced, &[]).await?;
        let queues: Vec<QueueName> = found.iter().map(|row| rows::parsed(row, 0)).collect::<Result<_, _>>()?;
        if queues.is_empty() {
            return Ok(());
        }
        let shards: Vec<i64> = queues.iter().map(|queue| i64::from(shard_of(queue).0)).collect();
        let queues: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
        let place = "UPDATE jobs j SET shard = q.shard FROM unnest($1::text[], $2::bigint[]) q (queue, shard)
                     WHERE j.queue = q.queue AND j.shard IS NULL AND j.held IS NULL AND j.finished_at IS NULL";
        connection.run(place, &[&queues, &shards]).await.map(drop)
    }

    async fn create(&self, job: NewJob) -> Result<Created, StoreError> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let created = create(&tx, &job).await?;
        if let Created::New(_) = created {
            tx.commit().await?;
        }
        Ok(created)
    }

    async fn asked_before(
        &self,
        namespace: String,
        owner: String,
        key: String,
    ) -> Result<Option<AskedBefore>, StoreError> {
        asked_before(&self.0.connection().await?, &namespace, &owner, &key).await
    }

    async fn open_keys(&self, shard: ShardId) -> Result<Vec<JobKey>, StoreError> {
        look::open_keys(&self.0, shard).await
    }

    async fn revived(&self, shard: ShardId) -> Result<Vec<(JobKey, u64)>, StoreError> {
        look::revived(&self.0, shard).await
    }

    async fn open_tasks(&self, queue: QueueName) -> Result<OpenTasks, StoreError> {
        look::open_tasks(&self.0, &queue).await
    }

    async fn open_jobs(&self, keys: Vec<JobKey>) -> Result<OpenJobs, StoreError> {
        look::open_jobs(&self.0, &keys).await
    }

    async fn sessions(&self, shard: ShardId) -> Result<Vec<(SessionId, WorkerId, QueueName)>, StoreError> {
        let rows = self.0.connection().await?.rows("SELECT session, worker, queue FROM sessions", &[]).await?;
        let session = |row: &Row| -> Result<_, StoreError> {
            Ok((SessionId(row.try_get(0)?), WorkerId(row.try_get(1)?), rows::parsed(row, 2)?))
        };
        // One of a queue whose name cannot be read is of no shard that this program knows.
        let sessions = rows.iter().filter_map(|row| session(row).ok());
        Ok(sessions.filter(|(_, _, queue): &(_, _, QueueName)| shard_of(queue) == shard).collect())
    }

    async fn queue_of(&self, session: SessionId) -> Result<Option<QueueName>, StoreError> {
        const QUEUE: &str = "SELECT queue FROM sessions WHERE session = $1";
        let row = self.0.connection().await?.row(QUEUE, &[&text(&session.0)]).await?;
        row.map(|row| rows::parsed(&row, 0)).transpose()
    }

    async fn card(&self, job: JobKey) -> Result<Option<Card>, StoreError> {
        const CARD: &str = "SELECT spec, trace, kind, first FROM jobs WHERE key = $1";
        let row = self.0.connection().await?.row(CARD, &[&(job.0 as i64)]).await?;
        row.map(|row| {
            Ok(Card {
                spec: Arc::new(rows::json(&row, 0)?),
                trace: row.try_get(1)?,
                kind: rows::kind(&row, 2)?,
                first: rows::whole(&row, 3)?,
            })
        })
        .transpose()
    }

    async fn segment(&self, job: JobKey, kind: Kind, first: u32) -> Result<Option<Segment>, StoreError> {
        const SEGMENT: &str = "SELECT body FROM segments WHERE job = $1 AND first = $2";
        let row = self.0.connection().await?.row(SEGMENT, &[&(job.0 as i64), &i64::from(first)]).await?;
        row.map(|row| unpack(job, kind, row.try_get(0)?).map_err(rows::unreadable)).transpose()
    }

    async fn settle(&self, settlement: Arc<Settlement>, fence: Fence) -> Result<Settling, StoreError> {
        settle::settle(&self.0, &settlement, &fence).await
    }

    async fn cancel(&self, job: JobKey, at: Timestamp) -> Result<bool, StoreError> {
        let changed = self
            .0
            .connection()
            .await?
            .run(
                "UPDATE jobs SET cancelled = total - ok - failed - timed_out - lost - dead,
                                 cancelled_at = $2, finished_at = $2
                 WHERE key = $1 AND finished_at IS NULL",
                &[&(job.0 as i64), &at.0],
            )
            .await?;
        Ok(changed == 1)
    }

    async fn job(&self, job: JobKey) -> Result<Option<(JobView, String)>, StoreError> {
        look::job(&self.0, job).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobView>, StoreError> {
        look::jobs(&self.0, &filter).await
    }

    async fn jobs_of(&self, namespace: String, keys: Vec<JobKey>) -> Result<Vec<JobView>, StoreError> {
        look::jobs_of(&self.0, &namespace, &keys).await
    }

    async fn extent(&self, job: JobKey) -> Result<Option<(u32, u64)>, StoreError> {
        const EXTENT: &str = "SELECT first, total FROM jobs WHERE key = $1";
        let row = self.0.connection().await?.row(EXTENT, &[&(job.0 as i64)]).await?;
        row.map(|row| Ok((rows::whole(&row, 0)?, row.try_get::<_, i64>(1)? as u64))).transpose()
    }

    async fn tasks(&self, job: JobKey, from: u32, size: u32) -> Result<Vec<TaskView>, StoreError> {
        look::tasks(&self.0, job, from, size).await
    }

    async fn output(&self, task: TaskKey, stream: LogStream) -> Result<Option<KeptOutput>, StoreError> {
        look::output(&self.0, task, stream).await
    }

    async fn outputs(
        &self,
        job: JobKey,
        from: u32,
        size: u32,
    ) -> Result<Vec<(u32, LogStream, KeptOutput)>, StoreError> {
        look::outputs(&self.0, job, from, size).await
    }

    async fn forget(&self, before: Timestamp) -> Result<Forgotten, StoreError> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let forgotten = forget(&tx, before).await?;
        tx.commit().await?;
        Ok(forgotten)
    }
}

async fn forget(tx: &Transaction<'_>, before: Timestamp) -> Result<Forgotten, StoreError> {
    // Several managers sweep: each takes what the others have not.
    let sql = format!(
        "SELECT key FROM jobs WHERE finished_at < $1 AND NOT {WAITED_FOR}
         ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED"
    );
    let rows = tx.rows(&sql, &[&before.0, &FORGET_JOBS]).await?;
    let keys: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    // From here on nobody can come to wait for them; who came while they were looked for is seen by a second look.
    let rows = tx.rows(&format!("SELECT key FROM jobs WHERE key = ANY ($1) AND NOT {WAITED_FOR}"), &[&keys]).await?;
    let keys: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if keys.is_empty() {
        tx.run("DELETE FROM queue_changes WHERE at < $1", &[&before.0]).await?;
        return Ok(Forgotten { done: true, ..Forgotten::default() });
    }
    let mut room = FORGET_ROWS;
    for statement in [
        "DELETE FROM outputs WHERE ctid = ANY (ARRAY (SELECT ctid FROM outputs WHERE job = ANY ($1) LIMIT $2))",
        "DELETE FROM tasks WHERE ctid = ANY (ARRAY (SELECT ctid FROM tasks WHERE job = ANY ($1) LIMIT $2))",
        "DELETE FROM segments WHERE ctid = ANY (ARRAY (SELECT ctid FROM segments WHERE job = ANY ($1) LIMIT $2))",
        "DELETE FROM job_waits WHERE ctid = ANY (ARRAY (SELECT ctid FROM job_waits WHERE job = ANY ($1) LIMIT $2))",
    ] {
        room -= tx.run(statement, &[&keys, &room]).await? as i64;
    }
    // The jobs' own rows go last: until then the next step finds them again.
    if room == 0 {
        return Ok(Forgotten::default());
    }
    tx.run("DELETE FROM jobs WHERE key = ANY ($1)", &[&keys]).await?;
    Ok(Forgotten { jobs: keys.into_iter().map(|key| JobKey(key as u64)).collect(), done: false })
}

async fn create(tx: &Transaction<'_>, job: &NewJob) -> Result<Created, StoreError> {
    if let Some(refused) = held::cannot_wait(tx, job).await? {
        // The same request may have come before, when what it waits for was still known.
        return match came_before(tx, job).await? {
            Created::NoQueue => Ok(refused),
            before => Ok(before),
        };
    }
    let (idempotency, digest) = job.idempotency.as_ref().map(|(k, d)| (k, d)).unzip();
    let home = i64::from(shard_of(&job.queue).0);
    let (shard, held) = if job.waits.is_empty() { (Some(home), None) } else { (None, Some(home)) };
    let inserted = tx
        .row(
            // The queue's row is held until the job is written: whoever deletes the queue waits for that.
            "WITH queue AS (SELECT name FROM queues WHERE name = $3 FOR KEY SHARE)
             INSERT INTO jobs (namespace, owner, queue, name, labels, spec, kind, first, total, trace, created_at,
                               idempotency, digest, shard, priority, unique_key, held)
             SELECT $1::text, $2::text, queue.name, $4::text, $5::text, $6::text, $7::smallint, $8::bigint, $9::bigint,
                    $10::text, $11::bigint, $12::text, $13::bytea, $14::bigint, $15::integer, $16::text, $17::bigint
             FROM queue
             ON CONFLICT DO NOTHING RETURNING key",
            &[
                &job.namespace,
                &job.owner,
                &job.queue.as_str(),
                &job.name,
                &job.labels,
                &job.spec,
                &(job.kind as i16),
                &i64::from(job.first),
                &i64::from(job.total),
                &job.trace,
                &job.created_at.0,
                &idempotency,
                &digest,
                &shard,
                &job.priority,
                &job.unique,
                &held,
            ],
        )
        .await?;
    let Some(row) = inserted else { return came_before(tx, job).await };
    let key: i64 = row.try_get(0)?;
    for some in job.segments.chunks(SEGMENTS_AT_ONCE) {
        let (firsts, bodies): (Vec<i64>, Vec<&[u8]>) =
            some.iter().map(|(first, body)| (i64::from(*first), body.as_slice())).unzip();
        tx.run(
            "INSERT INTO segments (job, first, body) SELECT $1, s.* FROM unnest($2::bigint[], $3::bytea[]) s",
            &[&key, &firsts, &bodies],
        )
        .await?;
    }
    held::note_waits(tx, key, &job.waits).await?;
    Ok(Created::New(JobKey(key as u64)))
}

/// The job that was made with the same idempotency key, or that has the unique key; without either, the queue is what was
/// missing.
async fn came_before(tx: &Transaction<'_>, job: &NewJob) -> Result<Created, StoreError> {
    if let Some((key, digest)) = &job.idempotency
        && let Some(before) = asked_before(tx, &job.namespace, &job.owner, key).await?
    {
        return Ok(before.meets(digest));
    }
    // Or removed by retention in this very moment, when asking again finds the queue.
    held::taken_or_no_queue(tx, job).await
}

async fn asked_before(
    ask: &(impl Ask + Sync),
    namespace: &str,
    owner: &str,
    key: &str,
) -> Result<Option<AskedBefore>, StoreError> {
    let sql = "SELECT key, digest FROM jobs WHERE namespace = $1 AND owner = $2 AND idempotency = $3";
    let Some(row) = ask.row(sql, &[&namespace, &owner, &key]).await? else { return Ok(None) };
    Ok(Some(AskedBefore { job: JobKey(row.try_get::<_, i64>(0)? as u64), digest: row.try_get(1)? }))
}
