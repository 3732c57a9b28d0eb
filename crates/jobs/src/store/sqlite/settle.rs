//! Writing what was decided: one row for each task that ended, counters once for each job.

use std::collections::BTreeMap;

use mutirao_core::blobs::LogStream;
use mutirao_core::id::JobKey;
use mutirao_core::job::Counts;
use mutirao_core::outcome::Output;
use rusqlite::{Connection, OptionalExtension, Result, params};

use crate::desk::{Ended, SessionChange};
use crate::store::Settlement;
use crate::store::dead::DEAD_STATES;

pub fn settle(db: &Connection, settlement: &Settlement) -> Result<()> {
    let mut counts: BTreeMap<JobKey, Option<Counts>> = BTreeMap::new();
    for ended in &settlement.ended {
        let job = ended.task.job;
        if let std::collections::btree_map::Entry::Vacant(slot) = counts.entry(job) {
            slot.insert(is_open(db, job)?.then(Counts::default));
        }
        // A job that was cancelled or removed meanwhile takes no more ends.
        if let Some(Some(sum)) = counts.get_mut(&job)
            && end_task(db, ended)?
        {
            *sum.of(ended.how) += 1;
        }
    }
    for (job, sum) in counts {
        if let Some(sum) = sum.filter(|sum| sum.ended() > 0) {
            count(db, job, &sum, settlement.at.0)?;
        }
    }
    for late in &settlement.late {
        complete(db, late)?;
    }
    let mut again = db.prepare_cached(
        "INSERT INTO tasks (job, idx, state, n, failures, losses, not_before) VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6)
         ON CONFLICT DO UPDATE SET n = ?3, failures = ?4, losses = ?5, not_before = ?6
         WHERE state = 0 AND (n IS NULL OR ?3 >= n)",
    )?;
    for a in &settlement.again {
        if !is_open(db, a.task.job)? {
            continue;
        }
        again.execute(params![a.task.job.0 as i64, a.task.index, a.tries, a.failures, a.losses, a.not_before.0])?;
    }
    for change in &settlement.sessions {
        match change {
            SessionChange::Came(session, worker, queue) => db
                .prepare_cached("INSERT OR REPLACE INTO sessions (session, worker, queue) VALUES (?1, ?2, ?3)")?
                .execute(params![session.0, worker.0, queue.as_str()])?,
            SessionChange::Went(session) => {
                db.prepare_cached("DELETE FROM sessions WHERE session = ?1")?.execute([&session.0])?
            }
        };
    }
    Ok(())
}

fn is_open(db: &Connection, job: JobKey) -> Result<bool> {
    let found = db
        .prepare_cached("SELECT 1 FROM jobs WHERE key = ?1 AND finished_at IS NULL")?
        .query_row([job.0 as i64], |_| Ok(()))
        .optional()?;
    Ok(found.is_some())
}

/// Adds what a cancelled task said when it stopped.
fn complete(db: &Connection, late: &Ended) -> Result<()> {
    let (Some(outcome), Some(attempt)) = (&late.outcome, late.attempt) else { return Ok(()) };
    let changed = db
        .prepare_cached(
            "INSERT INTO tasks (job, idx, state, generation, n, failures, losses, worker, exit, signal, reason,
                                started_at, ended_at, wall_us, cpu_user_us, cpu_system_us, memory_peak)
             SELECT ?1, ?2, ?3, ?4, ?5, 0, 0, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15 FROM jobs
             WHERE key = ?1 AND (cancelled_at IS NOT NULL
                                 OR EXISTS (SELECT 1 FROM tasks WHERE job = ?1 AND idx = ?2 AND state = ?3))
             ON CONFLICT DO UPDATE SET state = ?3, generation = ?4, n = ?5, worker = ?6, exit = ?7, signal = ?8,
                reason = ?9, started_at = ?10, ended_at = coalesce(ended_at, ?11), wall_us = ?12, cpu_user_us = ?13,
                cpu_system_us = ?14, memory_peak = ?15, not_before = NULL
             WHERE state = 0 OR (state = ?3 AND worker IS NULL)",
        )?
        .execute(params![
            late.task.job.0 as i64,
            late.task.index,
            late.how.code(),
            attempt.generation as i64,
            attempt.n,
            late.worker.as_ref().map(|w| w.0.as_str()),
            outcome.exit,
            outcome.signal,
            outcome.reason,
            outcome.started_at.0,
            late.at.0,
            outcome.usage.wall_us as i64,
            outcome.usage.cpu_user_us as i64,
            outcome.usage.cpu_system_us as i64,
            outcome.usage.memory_peak_bytes.map(|m| m as i64),
        ])?;
    if changed == 1 {
        keep_output(db, late, LogStream::Stdout, &outcome.stdout)?;
        keep_output(db, late, LogStream::Stderr, &outcome.stderr)?;
    }
    Ok(())
}

/// False when the task had ended before. A bad end of an attempt that the row knows of was written before too, and the task
/// is tried anew since.
fn end_task(db: &Connection, ended: &Ended) -> Result<bool> {
    let outcome = ended.outcome.as_ref();
    let usage = outcome.map(|o| o.usage);
    let sql = format!(
        "INSERT INTO tasks (job, idx, state, generation, n, failures, losses, worker, exit, signal, reason,
                            started_at, ended_at, wall_us, cpu_user_us, cpu_system_us, memory_peak)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
         ON CONFLICT DO UPDATE SET state = ?3, generation = ?4, n = ?5, failures = ?6, losses = ?7, worker = ?8,
            exit = ?9, signal = ?10, reason = ?11, started_at = ?12, ended_at = ?13, wall_us = ?14,
            cpu_user_us = ?15, cpu_system_us = ?16, memory_peak = ?17, not_before = NULL
         WHERE state = 0 AND (?3 NOT IN {DEAD_STATES} OR n IS NULL OR ?5 > n)"
    );
    let changed = db.prepare_cached(&sql)?.execute(params![
        ended.task.job.0 as i64,
        ended.task.index,
        ended.how.code(),
        ended.attempt.map(|a| a.generation as i64),
        ended.attempt.map(|a| a.n),
        ended.failures,
        ended.losses,
        ended.worker.as_ref().map(|w| w.0.as_str()),
        outcome.and_then(|o| o.exit),
        outcome.and_then(|o| o.signal),
        outcome.and_then(|o| o.reason.as_deref()),
        outcome.map(|o| o.started_at.0),
        ended.at.0,
        usage.map(|u| u.wall_us as i64),
        usage.map(|u| u.cpu_user_us as i64),
        usage.map(|u| u.cpu_system_us as i64),
        usage.and_then(|u| u.memory_peak_bytes).map(|m| m as i64),
    ])? == 1;
    if let (true, Some(outcome)) = (changed, outcome) {
        keep_output(db, ended, LogStream::Stdout, &outcome.stdout)?;
        keep_output(db, ended, LogStream::Stderr, &outcome.stderr)?;
    }
    Ok(changed)
}

fn keep_output(db: &Connection, ended: &Ended, stream: LogStream, output: &Output) -> Result<()> {
    let Some(attempt) = ended.attempt.filter(|_| !output.is_empty()) else { return Ok(()) };
    db.prepare_cached(
        "INSERT OR REPLACE INTO outputs (job, idx, stream, generation, n, bytes, truncated, in_blobs, tail)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        ended.task.job.0 as i64,
        ended.task.index,
        stream as u8,
        attempt.generation as i64,
        attempt.n,
        output.bytes as i64,
        output.truncated,
        output.in_blobs,
        output.tail,
    ])?;
    Ok(())
}

fn count(db: &Connection, job: JobKey, sum: &Counts, at: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE jobs SET ok = ok + ?2, failed = failed + ?3, timed_out = timed_out + ?4, cancelled = cancelled + ?5,
                         lost = lost + ?6, dead = dead + ?7,
                         finished_at = CASE WHEN total = ok + failed + timed_out + cancelled + lost + dead + ?8
                                            THEN ?9 END
         WHERE key = ?1",
    )?
    .execute(params![
        job.0 as i64,
        sum.ok as i64,
        sum.failed as i64,
        sum.timed_out as i64,
        sum.cancelled as i64,
        sum.lost as i64,
        sum.dead as i64,
        sum.ended() as i64,
        at
    ])?;
    Ok(())
}
