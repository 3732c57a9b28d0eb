//! Jobs that wait for others to end, and keys that only one open job has.

use async_trait::async_trait;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::{ShardId, Timestamp};
use mutirao_store::StoreError;
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::{SqliteJobs, rows};
use crate::store::held::{HELD_JOBS_MAX, HeldStore, RELEASE_JOBS_MAX, Released, Rest, in_vain};
use crate::store::{Created, NewJob, OpenTasks};

/// Waits that came to nothing: one culprit for each job.
const IN_VAIN: &str = "SELECT j.key, MIN(w.waited), j.total FROM jobs j
    JOIN job_waits w ON w.job = j.key AND w.how = 2 LEFT JOIN jobs p ON p.key = w.waited
    WHERE j.held IN (SELECT value FROM json_each(?1)) AND j.finished_at IS NULL
      AND (p.key IS NULL OR (p.finished_at IS NOT NULL AND p.ok < p.total))
    GROUP BY j.key LIMIT ?2";

const FREE: &str = "SELECT j.key, j.queue FROM jobs j
    WHERE j.held IN (SELECT value FROM json_each(?1)) AND j.finished_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM job_waits w LEFT JOIN jobs p ON p.key = w.waited WHERE w.job = j.key
                      AND (p.finished_at IS NULL AND p.key IS NOT NULL
                           OR w.how = 2 AND (p.key IS NULL OR p.ok < p.total)))
    LIMIT ?2";

#[async_trait]
impl HeldStore for SqliteJobs {
    async fn release(&self, shards: Vec<ShardId>, at: Timestamp) -> std::result::Result<Released, StoreError> {
        let shards: Vec<u32> = shards.iter().map(|shard| shard.0).collect();
        let shards = format!("{shards:?}");
        let looked = shards.clone();
        // Most looks find nothing, and take no writer's turn.
        let (rest, due) = self.0.read(move |db| Ok((rest(db, &looked)?, !look(db, &looked)?.is_empty()))).await?;
        if !due {
            return Ok(Released { rest, ..Released::default() });
        }
        self.0.write(move |db| release(db, &shards, at)).await
    }

    async fn held_tasks(&self, queue: QueueName) -> std::result::Result<OpenTasks, StoreError> {
        self.0.read(move |db| held_tasks(db, &queue)).await
    }
}

fn rest(db: &Connection, shards: &str) -> Result<Rest> {
    let held = db
        .prepare_cached(
            "SELECT 1 FROM jobs WHERE held IN (SELECT value FROM json_each(?1)) AND finished_at IS NULL LIMIT 1",
        )?
        .query_row([shards], |_| Ok(()))
        .optional()?;
    Ok(held.map_or(Rest::None, |()| Rest::Some))
}

fn held_tasks(db: &Connection, queue: &QueueName) -> Result<OpenTasks> {
    db.prepare_cached(
        "SELECT COALESCE(SUM(total), 0), COALESCE(SUM(total) FILTER (WHERE queue = ?2), 0)
         FROM jobs WHERE held = ?1 AND finished_at IS NULL",
    )?
    .query_row(params![shard_of(queue).0, queue.as_str()], rows::open_tasks)
}

/// Those that may go, and those that wait in vain, with what for.
struct Due {
    free: Vec<(JobKey, QueueName)>,
    vain: Vec<(JobKey, JobKey, u64)>,
}

impl Due {
    fn is_empty(&self) -> bool {
        self.free.is_empty() && self.vain.is_empty()
    }
}

fn look(db: &Connection, shards: &str) -> Result<Due> {
    let key = |key: i64| JobKey(key as u64);
    let vain = db
        .prepare_cached(IN_VAIN)?
        .query_map(params![shards, RELEASE_JOBS_MAX], |row| {
            Ok((key(row.get(0)?), key(row.get(1)?), row.get::<_, i64>(2)? as u64))
        })?
        .collect::<Result<_>>()?;
    let free = db
        .prepare_cached(FREE)?
        .query_map(params![shards, RELEASE_JOBS_MAX], |row| Ok((key(row.get(0)?), rows::parsed(row, 1)?)))?
        .collect::<Result<_>>()?;
    Ok(Due { free, vain })
}

fn release(db: &Connection, shards: &str, at: Timestamp) -> Result<Released> {
    let Due { free, vain } = look(db, shards)?;
    let mut cancel = db.prepare_cached(
        "UPDATE jobs SET cancelled = total, cancelled_at = ?2, finished_at = ?2, reason = ?3 WHERE key = ?1",
    )?;
    let mut cancelled = Vec::with_capacity(vain.len());
    for (job, waited, tasks) in vain {
        cancel.execute(params![job.0 as i64, at.0, in_vain(waited)])?;
        cancelled.push((job, tasks));
    }
    let mut go = db.prepare_cached("UPDATE jobs SET shard = held, held = NULL WHERE key = ?1")?;
    for (job, _) in &free {
        go.execute([job.0 as i64])?;
    }
    Ok(Released { free, cancelled, rest: rest(db, shards)? })
}

/// What is against making a job, beside its queue.
pub fn cannot_be(db: &Connection, job: &NewJob) -> Result<Option<Created>> {
    if let Some(unique) = &job.unique {
        let open: Option<i64> = db
            .prepare_cached("SELECT key FROM jobs WHERE namespace = ?1 AND unique_key = ?2 AND finished_at IS NULL")?
            .query_row(params![job.namespace, unique], |row| row.get(0))
            .optional()?;
        if let Some(open) = open {
            return Ok(Some(Created::Taken(JobKey(open as u64))));
        }
    }
    if job.waits.is_empty() {
        return Ok(None);
    }
    let mut known = db.prepare_cached("SELECT 1 FROM jobs WHERE key = ?1 AND namespace = ?2")?;
    for (waited, _) in &job.waits {
        if !known.exists(params![waited.0 as i64, job.namespace])? {
            return Ok(Some(Created::NoJob(*waited)));
        }
    }
    let held: i64 = db
        .prepare_cached("SELECT count(*) FROM jobs WHERE held IS NOT NULL AND finished_at IS NULL")?
        .query_row([], |row| row.get(0))?;
    Ok((held as u64 >= HELD_JOBS_MAX).then_some(Created::TooManyHeld(held as u64)))
}
