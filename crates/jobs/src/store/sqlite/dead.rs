//! Tasks that ended badly.

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::job::{Counts, DeadTask};
use mutirao_core::life::Final;
use mutirao_store::StoreError;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::{SqliteJobs, rows};
use crate::store::dead::{DEAD_STATES, DeadFilter, DeadStore, REVIVE_TASKS_MAX, Revived, Tried, Which};

#[async_trait]
impl DeadStore for SqliteJobs {
    async fn dead(&self, filter: DeadFilter) -> std::result::Result<Vec<DeadTask>, StoreError> {
        self.0.read(move |db| dead(db, &filter)).await
    }

    async fn revive(&self, job: JobKey, which: Which, until: Timestamp) -> std::result::Result<Revived, StoreError> {
        self.0.write(move |db| revive(db, job, which, until)).await
    }
}

fn dead(db: &Connection, filter: &DeadFilter) -> Result<Vec<DeadTask>> {
    let columns: Vec<String> = rows::TASK_COLUMNS.split(',').map(|column| format!("t.{}", column.trim())).collect();
    let sql = format!(
        "SELECT {}, j.queue, j.name FROM tasks t JOIN jobs j ON j.key = t.job
         WHERE t.state IN {DEAD_STATES} AND j.namespace = ?1 AND (?2 IS NULL OR j.queue = ?2)
           AND (?3 IS NULL OR t.job = ?3) AND (?4 IS NULL OR t.job < ?4 OR (t.job = ?4 AND t.idx > ?5))
         ORDER BY t.job DESC, t.idx LIMIT ?6",
        columns.join(", ")
    );
    let row =
        |row: &Row<'_>| Ok(DeadTask { task: rows::task(row)?, queue: rows::parsed(row, 18)?, name: row.get(19)? });
    let (job, index) = filter.after.map(|task| (task.job.0 as i64, task.index)).unzip();
    let queue = filter.queue.as_ref().map(QueueName::as_str);
    let only = filter.job.map(|job| job.0 as i64);
    db.prepare_cached(&sql)?.query_map(params![filter.namespace, queue, only, job, index, filter.limit], row)?.collect()
}

fn revive(db: &Connection, job: JobKey, which: Which, until: Timestamp) -> Result<Revived> {
    let key = job.0 as i64;
    let found: Option<(QueueName, Option<i64>)> = db
        .prepare_cached("SELECT queue, cancelled_at FROM jobs WHERE key = ?1")?
        .query_row([key], |row| Ok((rows::parsed(row, 0)?, row.get(1)?)))
        .optional()?;
    let queue = match found {
        None => return Ok(Revived::Missing),
        Some((_, Some(_))) => return Ok(Revived::Cancelled),
        Some((queue, None)) => queue,
    };
    let taken: Option<i64> = db
        .prepare_cached(
            "SELECT o.key FROM jobs j JOIN jobs o ON o.namespace = j.namespace AND o.unique_key = j.unique_key
             WHERE j.key = ?1 AND o.key <> j.key AND o.finished_at IS NULL",
        )?
        .query_row([key], |row| row.get(0))
        .optional()?;
    if let Some(other) = taken {
        return Ok(Revived::Taken(JobKey(other as u64)));
    }
    let only = match which {
        Which::All => None,
        Which::One(index) => Some(index),
    };
    let (mut tasks, mut counts) = (Vec::new(), Counts::default());
    let mut select = db.prepare_cached(&format!(
        "SELECT idx, COALESCE(n, failures + losses), state FROM tasks
         WHERE job = ?1 AND state IN {DEAD_STATES} AND (?2 IS NULL OR idx = ?2) AND ended_at <= ?3
         ORDER BY idx LIMIT ?4"
    ))?;
    let mut found = select.query(params![key, only, until.0, REVIVE_TASKS_MAX])?;
    while let Some(row) = found.next()? {
        tasks.push(Tried { index: row.get(0)?, tries: row.get(1)? });
        if let Some(how) = Final::from_code(row.get(2)?) {
            *counts.of(how) += 1;
        }
    }
    let (Some(first), Some(last)) = (tasks.first(), tasks.last()) else { return Ok(Revived::Tasks(tasks)) };
    db.prepare_cached(&format!(
        "UPDATE tasks SET state = 0, n = COALESCE(n, failures + losses), failures = 0, losses = 0, not_before = 0,
                generation = NULL, worker = NULL, exit = NULL, signal = NULL, reason = NULL, started_at = NULL,
                ended_at = NULL, wall_us = NULL, cpu_user_us = NULL, cpu_system_us = NULL, memory_peak = NULL
         WHERE job = ?1 AND idx BETWEEN ?2 AND ?3 AND state IN {DEAD_STATES} AND ended_at <= ?4"
    ))?
    .execute(params![key, first.index, last.index, until.0])?;
    // What is open has no output.
    db.prepare_cached(
        "DELETE FROM outputs WHERE job = ?1 AND idx BETWEEN ?2 AND ?3
           AND EXISTS (SELECT 1 FROM tasks t WHERE t.job = outputs.job AND t.idx = outputs.idx AND t.state = 0)",
    )?
    .execute(params![key, first.index, last.index])?;
    db.prepare_cached(
        "UPDATE jobs SET failed = failed - ?2, timed_out = timed_out - ?3, lost = lost - ?4, dead = dead - ?5,
                finished_at = NULL, shard = ?6, revived = revived + ?7 WHERE key = ?1",
    )?
    .execute(params![
        key,
        counts.failed as i64,
        counts.timed_out as i64,
        counts.lost as i64,
        counts.dead as i64,
        shard_of(&queue).0,
        tasks.len() as i64
    ])?;
    Ok(Revived::Tasks(tasks))
}
