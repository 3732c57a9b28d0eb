//! Reading jobs and tasks back.

use std::collections::HashMap;

use mutirao_core::blobs::LogStream;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{Attempt, JobKey, QueueName, TaskKey};
use mutirao_core::job::{Counts, JobState, JobView, TaskView};
use mutirao_core::outcome::Output;
use mutirao_core::task::TaskSpec;
use mutirao_core::trace::name_of;
use mutirao_core::{ShardId, Timestamp};
use mutirao_store::postgres::{Ask, Row, ToSql, text};
use mutirao_store::{Postgres, StoreError};

use super::rows;
use crate::desk::ledger::Trace;
use crate::desk::order::Rank;
use crate::entries::Kind;
use crate::store::damaged::Damaged;
use crate::store::{JobFilter, KeptOutput, OpenJob, OpenJobs, OpenTasks, Unreadable};

pub async fn open_keys(store: &Postgres, shard: ShardId) -> Result<Vec<JobKey>, StoreError> {
    const KEYS: &str = "SELECT key FROM jobs WHERE shard = $1 AND finished_at IS NULL ORDER BY key";
    let found = store.connection().await?.rows(KEYS, &[&i64::from(shard.0)]).await?;
    found.iter().map(|row| Ok(JobKey(row.try_get::<_, i64>(0)? as u64))).collect()
}

pub async fn revived(store: &Postgres, shard: ShardId) -> Result<Vec<(JobKey, u64)>, StoreError> {
    const REVIVED: &str =
        "SELECT key, revived FROM jobs WHERE shard = $1 AND revived > 0 AND finished_at IS NULL ORDER BY key";
    let found = store.connection().await?.rows(REVIVED, &[&i64::from(shard.0)]).await?;
    let read = |row: &Row| Ok((JobKey(row.try_get::<_, i64>(0)? as u64), row.try_get::<_, i64>(1)? as u64));
    found.iter().map(read).collect()
}

pub async fn open_tasks(store: &Postgres, queue: &QueueName) -> Result<OpenTasks, StoreError> {
    const OPEN: &str = "SELECT COALESCE(SUM(open), 0)::bigint, COALESCE(SUM(open) FILTER (WHERE queue = $2), 0)::bigint
                        FROM (SELECT queue, total - ok - failed - timed_out - cancelled - lost - dead AS open
                              FROM jobs WHERE shard = $1 AND finished_at IS NULL) unfinished";
    let shard = i64::from(shard_of(queue).0);
    let row = store.connection().await?.row(OPEN, &[&shard, &queue.as_str()]).await?;
    row.as_ref().map_or_else(|| Ok(OpenTasks::default()), rows::open_tasks)
}

pub async fn open_jobs(store: &Postgres, keys: &[JobKey]) -> Result<OpenJobs, StoreError> {
    let mut connection = store.connection().await?;
    // Jobs and their tasks must be of one moment.
    let tx = connection.snapshot().await?;
    let OpenJobs { mut jobs, mut unreadable } = heads(&tx, keys).await?;
    let mut damaged = Damaged::default();
    let keys: Vec<i64> = jobs.iter().map(|job| job.key.0 as i64).collect();
    let places: HashMap<i64, usize> = jobs.iter().enumerate().map(|(i, job)| (job.key.0 as i64, i)).collect();
    const TASKS: &str = "SELECT job, idx, state, n, failures, losses, not_before FROM tasks WHERE job = ANY ($1)";
    // There may be millions: they are taken as they come.
    tx.each(TASKS, &[&keys], |row| {
        let Some(place) = places.get(&row.try_get(0)?) else { return Ok(()) };
        match trace(&row) {
            Ok(trace) => jobs[*place].traces.push(trace),
            Err(error) => damaged.found(jobs[*place].key, error),
        }
        Ok(())
    })
    .await?;
    damaged.set_apart(&mut jobs, &mut unreadable);
    Ok(OpenJobs { jobs, unreadable })
}

/// Unfinished jobs without what became of their tasks.
async fn heads(ask: &(impl Ask + Sync), keys: &[JobKey]) -> Result<OpenJobs, StoreError> {
    const HEADS: &str = "SELECT key, queue, first, total, spec, priority, owner, labels, kind, revived FROM jobs
                         WHERE key = ANY ($1) AND finished_at IS NULL ORDER BY key";
    let keys: Vec<i64> = keys.iter().map(|key| key.0 as i64).collect();
    let mut open = OpenJobs::default();
    for row in ask.rows(HEADS, &[&keys]).await? {
        let job = JobKey(row.try_get::<_, i64>(0)? as u64);
        match open_job(&row) {
            Ok(job) => open.jobs.push(job),
            Err(error) => open.unreadable.push(Unreadable { job, why: error.to_string() }),
        }
    }
    Ok(open)
}

fn open_job(row: &Row) -> Result<OpenJob, StoreError> {
    let spec: TaskSpec = rows::json(row, 4)?;
    // Whoever could not read the entries could hand out none of its tasks.
    let varied = rows::kind(row, 8)? == Kind::Variation;
    Ok(OpenJob {
        key: JobKey(row.try_get::<_, i64>(0)? as u64),
        queue: rows::parsed(row, 1)?,
        first: rows::whole(row, 2)?,
        total: rows::whole(row, 3)?,
        retry: spec.retry.unwrap_or_default(),
        needs: spec.needs,
        varied,
        rank: Rank { priority: row.try_get(5)?, owner: row.try_get(6)?, labels: rows::json(row, 7)? },
        traces: Vec::new(),
        revived: row.try_get::<_, i64>(9)? as u64,
    })
}

fn trace(row: &Row) -> Result<Trace, StoreError> {
    let index = rows::whole(row, 1)?;
    Ok(match row.try_get::<_, i16>(2)? {
        0 => Trace::Again {
            index,
            tries: rows::count(row, 3)?,
            failures: rows::count(row, 4)?,
            losses: rows::count(row, 5)?,
            not_before: Timestamp(row.try_get::<_, Option<i64>>(6)?.unwrap_or(0)),
        },
        _ => Trace::Ended(index),
    })
}

const JOB_COLUMNS: &str = "key, queue, name, labels, owner, total, ok, failed, timed_out, cancelled, lost, dead,
    created_at, finished_at, trace, namespace, cancelled_at, priority, unique_key, reason, held";

/// A job as the store knows it: what has not ended counts as ready, the desk knows better.
fn view(row: &Row) -> Result<JobView, StoreError> {
    let count = |at: usize| row.try_get::<_, i64>(at).map(|n| n as u64);
    let mut counts = Counts {
        ok: count(6)?,
        failed: count(7)?,
        timed_out: count(8)?,
        cancelled: count(9)?,
        lost: count(10)?,
        dead: count(11)?,
        ..Counts::default()
    };
    let tasks = count(5)?;
    counts.ready = tasks.saturating_sub(counts.ended());
    let cancelled: Option<i64> = row.try_get(16)?;
    Ok(JobView {
        id: JobKey(row.try_get::<_, i64>(0)? as u64),
        queue: rows::parsed(row, 1)?,
        name: row.try_get(2)?,
        labels: rows::json(row, 3)?,
        owner: row.try_get(4)?,
        state: if cancelled.is_some() { JobState::Cancelled } else { counts.state() },
        tasks,
        counts,
        created_at: Timestamp(row.try_get(12)?),
        finished_at: row.try_get::<_, Option<i64>>(13)?.map(Timestamp),
        priority: row.try_get(17)?,
        unique: row.try_get(18)?,
        joined: false,
        waits_for: Vec::new(),
        reason: row.try_get(19)?,
        trace: name_of(row.try_get(14)?).to_owned(),
        task: None,
    })
}

pub async fn job(store: &Postgres, job: JobKey) -> Result<Option<(JobView, String)>, StoreError> {
    let sql = format!("SELECT {JOB_COLUMNS} FROM jobs WHERE key = $1");
    let connection = store.connection().await?;
    let Some(row) = connection.row(&sql, &[&(job.0 as i64)]).await? else { return Ok(None) };
    let mut view = view(&row)?;
    if row.try_get::<_, Option<i64>>(20)?.is_some() && view.finished_at.is_none() {
        const WAITS: &str = "SELECT w.waited FROM job_waits w JOIN jobs p ON p.key = w.waited
                             WHERE w.job = $1 AND p.finished_at IS NULL ORDER BY w.waited";
        for row in connection.rows(WAITS, &[&(job.0 as i64)]).await? {
            view.waits_for.push(JobKey(row.try_get::<_, i64>(0)? as u64));
        }
    }
    Ok(Some((view, row.try_get(15)?)))
}

pub async fn jobs(store: &Postgres, filter: &JobFilter) -> Result<Vec<JobView>, StoreError> {
    let state = match filter.state {
        None => "true",
        Some(JobState::Waiting) => "finished_at IS NULL AND ok + failed + timed_out + cancelled + lost + dead = 0",
        Some(JobState::Running) => "finished_at IS NULL",
        Some(JobState::Ok) => "finished_at IS NOT NULL AND ok = total",
        Some(JobState::Cancelled) => {
            "finished_at IS NOT NULL AND (cancelled_at IS NOT NULL OR (cancelled > 0 AND ok + cancelled = total))"
        }
        Some(JobState::Failed) => "finished_at IS NOT NULL AND cancelled_at IS NULL AND ok + cancelled < total",
    };
    let sql = format!(
        "SELECT {JOB_COLUMNS} FROM jobs
         WHERE namespace = $1 AND key < $2 AND ($3::text IS NULL OR queue = $3)
           AND ($5::text IS NULL OR name = $5)
           AND ($6::text IS NULL OR labels::jsonb ->> $6 = $7) AND {state}
         ORDER BY key DESC LIMIT $4"
    );
    let before = filter.before.map_or(i64::MAX, |key| key.0 as i64);
    let queue = filter.queue.as_ref().map(QueueName::as_str);
    let connection = store.connection().await?;
    let name = filter.name.as_deref().map(text);
    let (label, value) = filter.label.as_ref().map(|(label, value)| (text(label), text(value))).unzip();
    let limit = i64::from(filter.limit);
    let rows = connection.rows(&sql, &[&filter.namespace, &before, &queue, &limit, &name, &label, &value]).await?;
    rows.iter().map(view).collect()
}

pub async fn jobs_of(store: &Postgres, namespace: &str, keys: &[JobKey]) -> Result<Vec<JobView>, StoreError> {
    let keys: Vec<i64> = keys.iter().map(|key| key.0 as i64).collect();
    let sql = format!("SELECT {JOB_COLUMNS} FROM jobs WHERE namespace = $1 AND key = ANY ($2) ORDER BY key");
    let rows = store.connection().await?.rows(&sql, &[&namespace, &keys]).await?;
    rows.iter().map(view).collect()
}

pub async fn tasks(store: &Postgres, job: JobKey, from: u32, size: u32) -> Result<Vec<TaskView>, StoreError> {
    let sql =
        format!("SELECT {} FROM tasks WHERE job = $1 AND idx >= $2 AND idx < $3 ORDER BY idx", rows::TASK_COLUMNS);
    let (from, end) = (i64::from(from), i64::from(from) + i64::from(size));
    let rows = store.connection().await?.rows(&sql, &[&(job.0 as i64), &from, &end]).await?;
    rows.iter().map(rows::task).collect()
}

const OUTPUT_COLUMNS: &str = "generation, n, bytes, truncated, in_blobs, tail";

pub async fn output(store: &Postgres, task: TaskKey, stream: LogStream) -> Result<Option<KeptOutput>, StoreError> {
    let sql = format!("SELECT {OUTPUT_COLUMNS} FROM outputs WHERE job = $1 AND idx = $2 AND stream = $3");
    let args: [&(dyn ToSql + Sync); 3] = [&(task.job.0 as i64), &i64::from(task.index), &(stream as i16)];
    let row = store.connection().await?.row(&sql, &args).await?;
    row.map(|row| kept(&row)).transpose()
}

pub async fn outputs(
    store: &Postgres,
    job: JobKey,
    from: u32,
    size: u32,
) -> Result<Vec<(u32, LogStream, KeptOutput)>, StoreError> {
    let sql = format!("SELECT {OUTPUT_COLUMNS}, idx, stream FROM outputs WHERE job = $1 AND idx >= $2 AND idx < $3");
    let (from, end) = (i64::from(from), i64::from(from) + i64::from(size));
    let rows = store.connection().await?.rows(&sql, &[&(job.0 as i64), &from, &end]).await?;
    let row = |row: &Row| {
        let stdout = row.try_get::<_, i16>(7)? == LogStream::Stdout as i16;
        let stream = if stdout { LogStream::Stdout } else { LogStream::Stderr };
        Ok((rows::whole(row, 6)?, stream, kept(row)?))
    };
    rows.iter().map(row).collect()
}

fn kept(row: &Row) -> Result<KeptOutput, StoreError> {
    Ok(KeptOutput {
        attempt: Attempt { generation: row.try_get::<_, i64>(0)? as u64, n: rows::count(row, 1)? },
        output: Output {
            bytes: row.try_get::<_, i64>(2)? as u64,
            truncated: row.try_get(3)?,
            in_blobs: row.try_get(4)?,
            tail: row.try_get(5)?,
        },
    })
}
