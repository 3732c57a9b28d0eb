//! Reading jobs and tasks back.

use std::collections::HashMap;

use mutirao_core::blobs::LogStream;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{Attempt, JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::job::{Counts, JobState, JobView, TaskView};
use mutirao_core::outcome::Output;
use mutirao_core::task::TaskSpec;
use mutirao_core::trace::name_of;
use mutirao_core::{ShardId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::rows;
use crate::desk::ledger::Trace;
use crate::desk::order::Rank;
use crate::entries::Kind;
use crate::store::damaged::Damaged;
use crate::store::{JobFilter, KeptOutput, OpenJob, OpenJobs, OpenTasks, Unreadable};

pub fn open_keys(db: &Connection, shard: ShardId) -> Result<Vec<JobKey>> {
    db.prepare_cached("SELECT key FROM jobs WHERE shard = ?1 AND finished_at IS NULL ORDER BY key")?
        .query_map([shard.0], |row| Ok(JobKey(row.get::<_, i64>(0)? as u64)))?
        .collect()
}

pub fn revived(db: &Connection, shard: ShardId) -> Result<Vec<(JobKey, u64)>> {
    db.prepare_cached(
        "SELECT key, revived FROM jobs WHERE shard = ?1 AND revived > 0 AND finished_at IS NULL ORDER BY key",
    )?
    .query_map([shard.0], |row| Ok((JobKey(row.get::<_, i64>(0)? as u64), row.get::<_, i64>(1)? as u64)))?
    .collect()
}

pub fn open_tasks(db: &Connection, queue: &QueueName) -> Result<OpenTasks> {
    db.prepare_cached(
        "SELECT COALESCE(SUM(open), 0), COALESCE(SUM(open) FILTER (WHERE queue = ?2), 0)
         FROM (SELECT queue, total - ok - failed - timed_out - cancelled - lost - dead AS open
               FROM jobs WHERE shard = ?1 AND finished_at IS NULL)",
    )?
    .query_row(params![shard_of(queue).0, queue.as_str()], rows::open_tasks)
}

pub fn open_jobs(db: &Connection, keys: &[JobKey]) -> Result<OpenJobs> {
    let OpenJobs { mut jobs, mut unreadable } = heads(db, keys)?;
    let mut damaged = Damaged::default();
    let keys = list(jobs.iter().map(|job| job.key))?;
    let places: HashMap<i64, usize> = jobs.iter().enumerate().map(|(i, job)| (job.key.0 as i64, i)).collect();
    let mut tasks = db.prepare_cached(
        "SELECT job, idx, state, n, failures, losses, not_before FROM tasks
         WHERE job IN (SELECT value FROM json_each(?1))",
    )?;
    let mut rows = tasks.query([&keys])?;
    while let Some(row) = rows.next()? {
        let Some(place) = places.get(&row.get(0)?) else { continue };
        match trace(row) {
            Ok(trace) => jobs[*place].traces.push(trace),
            Err(error) => damaged.found(jobs[*place].key, error),
        }
    }
    damaged.set_apart(&mut jobs, &mut unreadable);
    Ok(OpenJobs { jobs, unreadable })
}

fn trace(row: &Row<'_>) -> Result<Trace> {
    let index = row.get(1)?;
    Ok(match row.get::<_, u8>(2)? {
        0 => Trace::Again {
            index,
            tries: row.get(3)?,
            failures: row.get(4)?,
            losses: row.get(5)?,
            not_before: Timestamp(row.get::<_, Option<i64>>(6)?.unwrap_or(0)),
        },
        _ => Trace::Ended(index),
    })
}

/// Unfinished jobs without what became of their tasks.
fn heads(db: &Connection, keys: &[JobKey]) -> Result<OpenJobs> {
    let mut select = db.prepare_cached(
        "SELECT key, queue, first, total, spec, priority, owner, labels, kind, revived FROM jobs
         WHERE key IN (SELECT value FROM json_each(?1)) AND finished_at IS NULL ORDER BY key",
    )?;
    let mut found = select.query([list(keys.iter().copied())?])?;
    let mut open = OpenJobs::default();
    while let Some(row) = found.next()? {
        let job = JobKey(row.get::<_, i64>(0)? as u64);
        match open_job(row) {
            Ok(job) => open.jobs.push(job),
            Err(error) => open.unreadable.push(Unreadable { job, why: error.to_string() }),
        }
    }
    Ok(open)
}

fn open_job(row: &Row<'_>) -> Result<OpenJob> {
    let spec: TaskSpec = rows::json(row, 4)?;
    // Whoever could not read the entries could hand out none of its tasks.
    let varied = rows::kind(row, 8)? == Kind::Variation;
    Ok(OpenJob {
        key: JobKey(row.get::<_, i64>(0)? as u64),
        queue: rows::parsed(row, 1)?,
        first: row.get(2)?,
        total: row.get(3)?,
        retry: spec.retry.unwrap_or_default(),
        needs: spec.needs,
        varied,
        rank: Rank { priority: row.get(5)?, owner: row.get(6)?, labels: rows::json(row, 7)? },
        traces: Vec::new(),
        revived: row.get::<_, i64>(9)? as u64,
    })
}

/// As SQLite takes them: it has no arrays.
fn list(keys: impl Iterator<Item = JobKey>) -> Result<String> {
    let keys = serde_json::to_string(&keys.map(|key| key.0).collect::<Vec<_>>());
    keys.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub fn sessions(db: &Connection) -> Result<Vec<(SessionId, WorkerId, QueueName)>> {
    let mut select = db.prepare("SELECT session, worker, queue FROM sessions")?;
    let mut found = select.query([])?;
    let mut sessions = Vec::new();
    while let Some(row) = found.next()? {
        // One of a queue whose name cannot be read is of no shard that this program knows.
        let Ok(queue) = rows::parsed(row, 2) else { continue };
        sessions.push((SessionId(row.get(0)?), WorkerId(row.get(1)?), queue));
    }
    Ok(sessions)
}

const JOB_COLUMNS: &str = "key, queue, name, labels, owner, total, ok, failed, timed_out, cancelled, lost, dead,
    created_at, finished_at, trace, namespace, cancelled_at, priority, unique_key, reason, held";

/// A job as the store knows it: what has not ended counts as ready, the desk knows better.
fn view(row: &Row<'_>) -> Result<JobView> {
    let count = |at: usize| row.get::<_, i64>(at).map(|n| n as u64);
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
    let cancelled: Option<i64> = row.get(16)?;
    Ok(JobView {
        id: JobKey(row.get::<_, i64>(0)? as u64),
        queue: rows::parsed(row, 1)?,
        name: row.get(2)?,
        labels: rows::json(row, 3)?,
        owner: row.get(4)?,
        state: if cancelled.is_some() { JobState::Cancelled } else { counts.state() },
        tasks,
        counts,
        created_at: Timestamp(row.get(12)?),
        finished_at: row.get::<_, Option<i64>>(13)?.map(Timestamp),
        priority: row.get(17)?,
        unique: row.get(18)?,
        joined: false,
        waits_for: Vec::new(),
        reason: row.get(19)?,
        trace: name_of(row.get_ref(14)?.as_str()?).to_owned(),
        task: None,
    })
}

pub fn job(db: &Connection, job: JobKey) -> Result<Option<(JobView, String)>> {
    let found = db
        .prepare_cached(&format!("SELECT {JOB_COLUMNS} FROM jobs WHERE key = ?1"))?
        .query_row([job.0 as i64], |row| Ok((view(row)?, row.get(15)?, row.get::<_, Option<i64>>(20)?)))
        .optional()?;
    let Some((mut view, namespace, held)) = found else { return Ok(None) };
    if held.is_some() && view.finished_at.is_none() {
        view.waits_for = waits_for(db, job)?;
    }
    Ok(Some((view, namespace)))
}

pub fn jobs_of(db: &Connection, namespace: &str, keys: &[JobKey]) -> Result<Vec<JobView>> {
    let keys = format!("{:?}", keys.iter().map(|key| key.0).collect::<Vec<_>>());
    let sql = format!(
        "SELECT {JOB_COLUMNS} FROM jobs WHERE namespace = ?1 AND key IN (SELECT value FROM json_each(?2)) ORDER BY key"
    );
    db.prepare_cached(&sql)?.query_map(params![namespace, keys], view)?.collect()
}

fn waits_for(db: &Connection, job: JobKey) -> Result<Vec<JobKey>> {
    db.prepare_cached(
        "SELECT w.waited FROM job_waits w JOIN jobs p ON p.key = w.waited
         WHERE w.job = ?1 AND p.finished_at IS NULL ORDER BY w.waited",
    )?
    .query_map([job.0 as i64], |row| Ok(JobKey(row.get::<_, i64>(0)? as u64)))?
    .collect()
}

pub fn jobs(db: &Connection, filter: &JobFilter) -> Result<Vec<JobView>> {
    let ended = "ok + failed + timed_out + cancelled + lost + dead";
    let state = match filter.state {
        None => "1".to_owned(),
        Some(JobState::Waiting) => format!("finished_at IS NULL AND {ended} = 0"),
        Some(JobState::Running) => "finished_at IS NULL".to_owned(),
        Some(JobState::Ok) => "finished_at IS NOT NULL AND ok = total".to_owned(),
        Some(JobState::Cancelled) => {
            "finished_at IS NOT NULL AND (cancelled_at IS NOT NULL OR (cancelled > 0 AND ok + cancelled = total))"
                .to_owned()
        }
        Some(JobState::Failed) => {
            "finished_at IS NOT NULL AND cancelled_at IS NULL AND ok + cancelled < total".to_owned()
        }
    };
    let sql = format!(
        "SELECT {JOB_COLUMNS} FROM jobs WHERE namespace = ?1 AND key < ?2 AND (?3 IS NULL OR queue = ?3)
           AND (?5 IS NULL OR name = ?5)
           AND (?6 IS NULL OR EXISTS (SELECT 1 FROM json_each(labels) WHERE key = ?6 AND value = ?7)) AND {state}
         ORDER BY key DESC LIMIT ?4"
    );
    let before = filter.before.map_or(i64::MAX, |key| key.0 as i64);
    let (label, value) = filter.label.as_ref().map(|(label, value)| (label, value)).unzip();
    db.prepare_cached(&sql)?
        .query_map(
            params![
                filter.namespace,
                before,
                filter.queue.as_ref().map(QueueName::as_str),
                filter.limit,
                filter.name,
                label,
                value
            ],
            view,
        )?
        .collect()
}

pub fn tasks(db: &Connection, job: JobKey, from: u32, size: u32) -> Result<Vec<TaskView>> {
    let sql = format!("SELECT {} FROM tasks WHERE job = ?1 AND idx >= ?2 AND idx < ?3", rows::TASK_COLUMNS);
    let end = i64::from(from) + i64::from(size);
    db.prepare_cached(&sql)?.query_map(params![job.0 as i64, from, end], rows::task)?.collect()
}

const OUTPUT_COLUMNS: &str = "generation, n, bytes, truncated, in_blobs, tail";

pub fn output(db: &Connection, task: TaskKey, stream: LogStream) -> Result<Option<KeptOutput>> {
    let sql = format!("SELECT {OUTPUT_COLUMNS} FROM outputs WHERE job = ?1 AND idx = ?2 AND stream = ?3");
    db.prepare_cached(&sql)?.query_row(params![task.job.0 as i64, task.index, stream as u8], kept).optional()
}

pub fn outputs(db: &Connection, job: JobKey, from: u32, size: u32) -> Result<Vec<(u32, LogStream, KeptOutput)>> {
    let sql = format!("SELECT {OUTPUT_COLUMNS}, idx, stream FROM outputs WHERE job = ?1 AND idx >= ?2 AND idx < ?3");
    let end = i64::from(from) + i64::from(size);
    let row = |row: &Row<'_>| {
        let stream =
            if row.get::<_, u8>(7)? == LogStream::Stdout as u8 { LogStream::Stdout } else { LogStream::Stderr };
        Ok((row.get(6)?, stream, kept(row)?))
    };
    db.prepare_cached(&sql)?.query_map(params![job.0 as i64, from, end], row)?.collect()
}

fn kept(row: &Row<'_>) -> Result<KeptOutput> {
    Ok(KeptOutput {
        attempt: Attempt { generation: row.get::<_, i64>(0)? as u64, n: row.get(1)? },
        output: Output {
            bytes: row.get::<_, i64>(2)? as u64,
            truncated: row.get(3)?,
            in_blobs: row.get(4)?,
            tail: row.get(5)?,
        },
    })
}
