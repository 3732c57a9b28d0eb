//! Jobs that wait for others to end, and keys that only one open job has.

use std::collections::HashSet;

use async_trait::async_trait;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::{ShardId, Timestamp};
use mutirao_store::StoreError;
use mutirao_store::postgres::{Ask, Transaction};

use super::{PostgresJobs, rows};
use crate::store::held::{HELD_JOBS_MAX, HeldStore, RELEASE_JOBS_MAX, Released, Rest, Until, in_vain};
use crate::store::{Created, NewJob, OpenTasks};

const REST: &str = "SELECT 1 FROM jobs WHERE held = ANY ($1) AND finished_at IS NULL LIMIT 1";

/// Waits that came to nothing: one culprit for each job.
const IN_VAIN: &str = "SELECT j.key, MIN(w.waited) FROM jobs j
    JOIN job_waits w ON w.job = j.key AND w.how = 2 LEFT JOIN jobs p ON p.key = w.waited
    WHERE j.held = ANY ($1) AND j.finished_at IS NULL
      AND (p.key IS NULL OR (p.finished_at IS NOT NULL AND p.ok < p.total))
    GROUP BY j.key LIMIT $2";

const CANCEL: &str = "UPDATE jobs j SET cancelled = j.total, cancelled_at = $3, finished_at = $3, reason = v.reason
    FROM unnest($1::bigint[], $2::text[]) v (job, reason)
    WHERE j.key = v.job AND j.held IS NOT NULL AND j.finished_at IS NULL RETURNING j.key, j.total";

const RELEASE: &str = "UPDATE jobs SET shard = held, held = NULL
    WHERE held IS NOT NULL AND finished_at IS NULL AND key IN (
        SELECT j.key FROM jobs j WHERE j.held = ANY ($1) AND j.finished_at IS NULL
          AND NOT EXISTS (SELECT 1 FROM job_waits w LEFT JOIN jobs p ON p.key = w.waited WHERE w.job = j.key
                          AND (p.finished_at IS NULL AND p.key IS NOT NULL
                               OR w.how = 2 AND (p.key IS NULL OR p.ok < p.total)))
        LIMIT $2)
    RETURNING key, queue";

#[async_trait]
impl HeldStore for PostgresJobs {
    async fn release(&self, shards: Vec<ShardId>, at: Timestamp) -> Result<Released, StoreError> {
        let shards: Vec<i64> = shards.iter().map(|shard| i64::from(shard.0)).collect();
        let connection = self.0.connection().await?;
        let mut released = Released::default();
        if connection.row(REST, &[&shards]).await?.is_none() {
            return Ok(released);
        }
        let limit = i64::from(RELEASE_JOBS_MAX);
        let vain = connection.rows(IN_VAIN, &[&shards, &limit]).await?;
        if !vain.is_empty() {
            let (mut jobs, mut reasons) = (Vec::new(), Vec::new());
            for row in &vain {
                jobs.push(row.try_get::<_, i64>(0)?);
                reasons.push(in_vain(JobKey(row.try_get::<_, i64>(1)? as u64)));
            }
            for row in connection.rows(CANCEL, &[&jobs, &reasons, &at.0]).await? {
                released.cancelled.push((JobKey(row.try_get::<_, i64>(0)? as u64), row.try_get::<_, i64>(1)? as u64));
            }
        }
        for row in connection.rows(RELEASE, &[&shards, &limit]).await? {
            released.free.push((JobKey(row.try_get::<_, i64>(0)? as u64), rows::parsed(&row, 1)?));
        }
        if connection.row(REST, &[&shards]).await?.is_some() {
            released.rest = Rest::Some;
        }
        Ok(released)
    }

    async fn held_tasks(&self, queue: QueueName) -> Result<OpenTasks, StoreError> {
        const HELD: &str = "SELECT COALESCE(SUM(total), 0)::bigint,
                                   COALESCE(SUM(total) FILTER (WHERE queue = $2), 0)::bigint
                            FROM jobs WHERE held = $1 AND finished_at IS NULL";
        let shard = i64::from(shard_of(&queue).0);
        let row = self.0.connection().await?.row(HELD, &[&shard, &queue.as_str()]).await?;
        row.as_ref().map_or_else(|| Ok(OpenTasks::default()), rows::open_tasks)
    }
}

/// What is against a job's waiting for others.
pub async fn cannot_wait(tx: &Transaction<'_>, job: &NewJob) -> Result<Option<Created>, StoreError> {
    if job.waits.is_empty() {
        return Ok(None);
    }
    let waited: Vec<i64> = job.waits.iter().map(|(waited, _)| waited.0 as i64).collect();
    // Held until the job is written: nobody forgets what it waits for in between.
    const KNOWN: &str = "SELECT key FROM jobs WHERE key = ANY ($1) AND namespace = $2 FOR KEY SHARE";
    let known = tx.rows(KNOWN, &[&waited, &job.namespace]).await?;
    let known: HashSet<i64> = known.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if let Some(unknown) = waited.iter().find(|waited| !known.contains(waited)) {
        return Ok(Some(Created::NoJob(JobKey(*unknown as u64))));
    }
    const HELD: &str = "SELECT count(*) FROM jobs WHERE held IS NOT NULL AND finished_at IS NULL";
    let Some(row) = tx.row(HELD, &[]).await? else { return Ok(None) };
    let held = row.try_get::<_, i64>(0)? as u64;
    Ok((held >= HELD_JOBS_MAX).then_some(Created::TooManyHeld(held)))
}

pub async fn note_waits(tx: &Transaction<'_>, job: i64, waits: &[(JobKey, Until)]) -> Result<(), StoreError> {
    if waits.is_empty() {
        return Ok(());
    }
    let (waited, how): (Vec<i64>, Vec<i16>) = waits.iter().map(|(job, until)| (job.0 as i64, until.code())).unzip();
    tx.run(
        "INSERT INTO job_waits (job, waited, how) SELECT $1, w.* FROM unnest($2::bigint[], $3::smallint[]) w",
        &[&job, &waited, &how],
    )
    .await?;
    Ok(())
}

/// Why nothing was inserted.
pub async fn taken_or_no_queue(tx: &Transaction<'_>, job: &NewJob) -> Result<Created, StoreError> {
    const OPEN: &str = "SELECT key FROM jobs WHERE namespace = $1 AND unique_key = $2 AND finished_at IS NULL";
    if job.unique.is_none() {
        return Ok(Created::NoQueue);
    }
    if let Some(row) = tx.row(OPEN, &[&job.namespace, &job.unique]).await? {
        return Ok(Created::Taken(JobKey(row.try_get::<_, i64>(0)? as u64)));
    }
    const QUEUE: &str = "SELECT 1 FROM queues WHERE name = $1";
    match tx.row(QUEUE, &[&job.queue.as_str()]).await? {
        // Whoever had the key has ended in this very moment: asking again makes the job.
        Some(_) => Err(StoreError::Busy { waiting: 1 }),
        None => Ok(Created::NoQueue),
    }
}
