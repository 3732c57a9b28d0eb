//! Tasks that ended badly.

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::job::{Counts, DeadTask};
use mutirao_core::life::Final;
use mutirao_store::StoreError;
use mutirao_store::postgres::{Ask, Row, Transaction};

use super::{PostgresJobs, rows};
use crate::store::dead::{DEAD_STATES, DeadFilter, DeadStore, REVIVE_TASKS_MAX, Revived, Tried, Which};

#[async_trait]
impl DeadStore for PostgresJobs {
    async fn dead(&self, filter: DeadFilter) -> Result<Vec<DeadTask>, StoreError> {
        let columns: Vec<String> = rows::TASK_COLUMNS.split(',').map(|column| format!("t.{}", column.trim())).collect();
        let sql = format!(
            "SELECT {}, j.queue, j.name FROM tasks t JOIN jobs j ON j.key = t.job
             WHERE t.state IN {DEAD_STATES} AND j.namespace = $1 AND ($2::text IS NULL OR j.queue = $2)
               AND ($3::bigint IS NULL OR t.job = $3)
               AND ($4::bigint IS NULL OR t.job < $4 OR (t.job = $4 AND t.idx > $5::bigint))
             ORDER BY t.job DESC, t.idx LIMIT $6",
            columns.join(", ")
        );
        let row =
            |row: &Row| Ok(DeadTask { task: rows::task(row)?, queue: rows::parsed(row, 18)?, name: row.try_get(19)? });
        let (job, index) = filter.after.map(|task| (task.job.0 as i64, i64::from(task.index))).unzip();
        let queue = filter.queue.as_ref().map(QueueName::as_str);
        let only = filter.job.map(|job| job.0 as i64);
        let limit = i64::from(filter.limit);
        let connection = self.0.connection().await?;
        let found = connection.rows(&sql, &[&filter.namespace, &queue, &only, &job, &index, &limit]).await?;
        found.iter().map(row).collect()
    }

    async fn revive(&self, job: JobKey, which: Which, until: Timestamp) -> Result<Revived, StoreError> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let revived = revive(&tx, job, which, until).await?;
        if matches!(&revived, Revived::Tasks(tasks) if !tasks.is_empty()) {
            tx.commit().await?;
        }
        Ok(revived)
    }
}

async fn revive(tx: &Transaction<'_>, job: JobKey, which: Which, until: Timestamp) -> Result<Revived, StoreError> {
    let key = job.0 as i64;
    // Locked as a settlement locks it, so that the one comes before the other.
    const JOB: &str = "SELECT queue, cancelled_at FROM jobs WHERE key = $1 FOR NO KEY UPDATE";
    let Some(row) = tx.row(JOB, &[&key]).await? else { return Ok(Revived::Missing) };
    if row.try_get::<_, Option<i64>>(1)?.is_some() {
        return Ok(Revived::Cancelled);
    }
    let queue: QueueName = rows::parsed(&row, 0)?;
    let taken = tx
        .row(
            "SELECT o.key FROM jobs j JOIN jobs o ON o.namespace = j.namespace AND o.unique_key = j.unique_key
             WHERE j.key = $1 AND o.key <> j.key AND o.finished_at IS NULL",
            &[&key],
        )
        .await?;
    if let Some(row) = taken {
        return Ok(Revived::Taken(JobKey(row.try_get::<_, i64>(0)? as u64)));
    }
    let only = match which {
        Which::All => None,
        Which::One(index) => Some(i64::from(index)),
    };
    let select = format!(
        "SELECT idx, COALESCE(n, failures + losses), state FROM tasks
         WHERE job = $1 AND state IN {DEAD_STATES} AND ($2::bigint IS NULL OR idx = $2) AND ended_at <= $3
         ORDER BY idx LIMIT $4"
    );
    let found = tx.rows(&select, &[&key, &only, &until.0, &i64::from(REVIVE_TASKS_MAX)]).await?;
    let (mut tasks, mut counts) = (Vec::new(), Counts::default());
    for row in &found {
        tasks.push(Tried { index: rows::whole(row, 0)?, tries: rows::count(row, 1)? });
        if let Some(how) = Final::from_code(row.try_get::<_, i16>(2)? as u8) {
            *counts.of(how) += 1;
        }
    }
    let (Some(first), Some(last)) = (tasks.first(), tasks.last()) else { return Ok(Revived::Tasks(tasks)) };
    let (first, last) = (i64::from(first.index), i64::from(last.index));
    let update = format!(
        "UPDATE tasks SET state = 0, n = COALESCE(n, failures + losses), failures = 0, losses = 0, not_before = 0,
                generation = NULL, worker = NULL, exit = NULL, signal = NULL, reason = NULL, started_at = NULL,
                ended_at = NULL, wall_us = NULL, cpu_user_us = NULL, cpu_system_us = NULL, memory_peak = NULL
         WHERE job = $1 AND idx BETWEEN $2 AND $3 AND state IN {DEAD_STATES} AND ended_at <= $4"
    );
    tx.run(&update, &[&key, &first, &last, &until.0]).await?;
    // What is open has no output.
    tx.run(
        "DELETE FROM outputs o USING tasks t
         WHERE o.job = $1 AND o.idx BETWEEN $2 AND $3 AND t.job = o.job AND t.idx = o.idx AND t.state = 0",
        &[&key, &first, &last],
    )
    .await?;
    tx.run(
        "UPDATE jobs SET failed = failed - $2, timed_out = timed_out - $3, lost = lost - $4, dead = dead - $5,
                finished_at = NULL, shard = $6, revived = revived + $7 WHERE key = $1",
        &[
            &key,
            &(counts.failed as i64),
            &(counts.timed_out as i64),
            &(counts.lost as i64),
            &(counts.dead as i64),
            &i64::from(shard_of(&queue).0),
            &(tasks.len() as i64),
        ],
    )
    .await?;
    Ok(Revived::Tasks(tasks))
}
