//! Writing what was decided, all of it in one transaction: one statement a table, whatever the batch holds.
//!
//! The jobs of a batch are locked first, in the order of their keys, so that a cancel comes before or after it and two
//! owners who both believed in themselves wait for each other. Then the rows decide: a task that has ended does not
//! change, and only those that did change are counted.

use std::collections::{BTreeMap, HashSet};

use futures_util::future::{try_join, try_join3, try_join4};
use mutirao_core::blobs::LogStream;
use mutirao_core::id::{JobKey, TaskKey};
use mutirao_core::job::Counts;
use mutirao_shards::Fence;
use mutirao_store::postgres::{Ask, Transaction, text};
use mutirao_store::{Postgres, StoreError};

use super::columns::{Ends, Outputs, Retries};
use super::firsts::Firsts;
use crate::desk::{Again, Ended, SessionChange};
use crate::store::dead::DEAD_STATES;
use crate::store::{Settlement, Settling};

/// Bytes of output that one statement carries, give or take one task's: keeps messages far from the gigabyte that
/// PostgreSQL takes at most, and memory in bounds.
const TAIL_BYTES_AT_ONCE: usize = 8 << 20;

/// A process that freezes half way holds the fence, and with it whoever wants to take its shard over. The server does not
/// wait for it longer than this, so that a lease of the usual length is all that others wait for.
const HURRY: &str = "SET LOCAL idle_in_transaction_session_timeout = '5s'";

pub async fn settle(store: &Postgres, settlement: &Settlement, fence: &Fence) -> Result<Settling, StoreError> {
    let mut connection = store.connection().await?;
    let tx = connection.begin().await?;
    // They travel together, in this order.
    let (_, current, open) = try_join3(tx.set(HURRY), fence.holds_in_postgres(&tx), lock_open(&tx, settlement)).await?;
    if !current {
        return Ok(Settling::Fenced);
    }
    let changed = end(&tx, &open, &settlement.ended).await?;
    let completed = complete(&tx, &settlement.late).await?;
    let counts = count(&changed);
    let spoke: Vec<&Ended> = changed.iter().chain(&completed).copied().collect();
    // None of these depends on another, so they travel together.
    try_join4(
        keep_outputs(&tx, &spoke),
        add_counts(&tx, &counts, settlement.at.0),
        note_retries(&tx, &open, &settlement.again),
        note_sessions(&tx, &settlement.sessions),
    )
    .await?;
    tx.commit().await?;
    Ok(Settling::Written)
}

/// Those of a settlement's jobs that are not over, which nobody else changes until we are done. A job that was cancelled
/// or removed meanwhile takes no more ends and no retries.
async fn lock_open(tx: &Transaction<'_>, settlement: &Settlement) -> Result<HashSet<i64>, StoreError> {
    let ended = settlement.ended.iter().map(|end| end.task.job.0 as i64);
    let mut jobs: Vec<i64> = ended.chain(settlement.again.iter().map(|again| again.task.job.0 as i64)).collect();
    if jobs.is_empty() {
        return Ok(HashSet::new());
    }
    jobs.sort_unstable();
    jobs.dedup();
    let open = tx
        .rows(
            "SELECT key FROM jobs WHERE key = ANY ($1) AND finished_at IS NULL ORDER BY key FOR NO KEY UPDATE",
            &[&jobs],
        )
        .await?;
    Ok(open.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// The ends that were news. A bad end of an attempt that the row knows of is none: it was written before, and the task is
/// tried anew since.
async fn end<'a>(tx: &Transaction<'_>, open: &HashSet<i64>, ended: &'a [Ended]) -> Result<Vec<&'a Ended>, StoreError> {
    let firsts = Firsts::of(ended.iter().filter(|end| open.contains(&(end.task.job.0 as i64))));
    if firsts.batch.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "INSERT INTO tasks (job, idx, state, generation, n, failures, losses, worker, exit, signal, reason,
                            started_at, ended_at, wall_us, cpu_user_us, cpu_system_us, memory_peak)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::integer[],
            $6::integer[], $7::integer[], $8::text[], $9::integer[], $10::integer[], $11::text[], $12::bigint[],
            $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[])
         ON CONFLICT (job, idx) DO UPDATE SET state = EXCLUDED.state, generation = EXCLUDED.generation,
            n = EXCLUDED.n, failures = EXCLUDED.failures, losses = EXCLUDED.losses, worker = EXCLUDED.worker,
            exit = EXCLUDED.exit, signal = EXCLUDED.signal, reason = EXCLUDED.reason,
            started_at = EXCLUDED.started_at, ended_at = EXCLUDED.ended_at, wall_us = EXCLUDED.wall_us,
            cpu_user_us = EXCLUDED.cpu_user_us, cpu_system_us = EXCLUDED.cpu_system_us,
            memory_peak = EXCLUDED.memory_peak, not_before = NULL
         WHERE tasks.state = 0 AND (EXCLUDED.state NOT IN {DEAD_STATES} OR tasks.n IS NULL OR EXCLUDED.n > tasks.n)
         RETURNING job, idx"
    );
    let changed = tx.rows(&sql, &Ends::of(&firsts.batch).params()).await?;
    firsts.among(&changed)
}

/// Adds what cancelled tasks said when they stopped, and returns those that had not spoken before.
async fn complete<'a>(tx: &Transaction<'_>, late: &'a [Ended]) -> Result<Vec<&'a Ended>, StoreError> {
    let firsts = Firsts::of(late.iter().filter(|late| late.outcome.is_some() && late.attempt.is_some()));
    if firsts.batch.is_empty() {
        return Ok(Vec::new());
    }
    let changed = tx
        .rows(
            "INSERT INTO tasks (job, idx, state, generation, n, failures, losses, worker, exit, signal, reason,
                                started_at, ended_at, wall_us, cpu_user_us, cpu_system_us, memory_peak)
             SELECT l.* FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::integer[],
                $6::integer[], $7::integer[], $8::text[], $9::integer[], $10::integer[], $11::text[], $12::bigint[],
                $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[]) l (job, idx, state)
             JOIN jobs j ON j.key = l.job
             WHERE j.cancelled_at IS NOT NULL
                OR EXISTS (SELECT 1 FROM tasks t WHERE t.job = l.job AND t.idx = l.idx AND t.state = l.state)
             ON CONFLICT (job, idx) DO UPDATE SET state = EXCLUDED.state, generation = EXCLUDED.generation,
                n = EXCLUDED.n, worker = EXCLUDED.worker, exit = EXCLUDED.exit, signal = EXCLUDED.signal,
                reason = EXCLUDED.reason, started_at = EXCLUDED.started_at,
                ended_at = coalesce(tasks.ended_at, EXCLUDED.ended_at), wall_us = EXCLUDED.wall_us,
                cpu_user_us = EXCLUDED.cpu_user_us, cpu_system_us = EXCLUDED.cpu_system_us,
                memory_peak = EXCLUDED.memory_peak, not_before = NULL
             WHERE tasks.state = 0 OR (tasks.state = EXCLUDED.state AND tasks.worker IS NULL)
             RETURNING job, idx",
            &Ends::of(&firsts.batch).params(),
        )
        .await?;
    firsts.among(&changed)
}

fn count(changed: &[&Ended]) -> BTreeMap<JobKey, Counts> {
    let mut counts: BTreeMap<JobKey, Counts> = BTreeMap::new();
    for end in changed {
        *counts.entry(end.task.job).or_default().of(end.how) += 1;
    }
    counts
}

async fn add_counts(tx: &Transaction<'_>, counts: &BTreeMap<JobKey, Counts>, at: i64) -> Result<(), StoreError> {
    if counts.is_empty() {
        return Ok(());
    }
    let jobs: Vec<i64> = counts.keys().map(|job| job.0 as i64).collect();
    let column = |of: fn(&Counts) -> u64| -> Vec<i64> { counts.values().map(|sum| of(sum) as i64).collect() };
    tx.run(
        "UPDATE jobs j SET ok = j.ok + d.ok, failed = j.failed + d.failed, timed_out = j.timed_out + d.timed_out,
                           cancelled = j.cancelled + d.cancelled, lost = j.lost + d.lost, dead = j.dead + d.dead,
                           finished_at = CASE WHEN j.total = j.ok + j.failed + j.timed_out + j.cancelled + j.lost
                                                             + j.dead + d.ended THEN $9::bigint END
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                     $8::bigint[]) d (job, ok, failed, timed_out, cancelled, lost, dead, ended)
         WHERE j.key = d.job",
        &[
            &jobs,
            &column(|sum| sum.ok),
            &column(|sum| sum.failed),
            &column(|sum| sum.timed_out),
            &column(|sum| sum.cancelled),
            &column(|sum| sum.lost),
            &column(|sum| sum.dead),
            &column(Counts::ended),
            &at,
        ],
    )
    .await?;
    Ok(())
}

async fn keep_outputs(tx: &Transaction<'_>, changed: &[&Ended]) -> Result<(), StoreError> {
    let mut batch = Outputs::default();
    for end in changed {
        let (Some(outcome), Some(attempt)) = (&end.outcome, end.attempt) else { continue };
        for (stream, output) in [(LogStream::Stdout, &outcome.stdout), (LogStream::Stderr, &outcome.stderr)] {
            if !output.is_empty() {
                batch.push(end, attempt, stream, output);
            }
        }
        if batch.tail_bytes >= TAIL_BYTES_AT_ONCE {
            write_outputs(tx, &std::mem::take(&mut batch)).await?;
        }
    }
    write_outputs(tx, &batch).await
}

async fn write_outputs(tx: &Transaction<'_>, batch: &Outputs<'_>) -> Result<(), StoreError> {
    if batch.is_empty() {
        return Ok(());
    }
    // A task speaks once, so there is nothing to replace.
    tx.run(
        "INSERT INTO outputs (job, idx, stream, generation, n, bytes, truncated, in_blobs, tail)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::integer[], $6::bigint[],
                              $7::boolean[], $8::boolean[], $9::bytea[])
         ON CONFLICT (job, idx, stream) DO NOTHING",
        &batch.params(),
    )
    .await?;
    Ok(())
}

async fn note_retries(tx: &Transaction<'_>, open: &HashSet<i64>, again: &[Again]) -> Result<(), StoreError> {
    // The last word on a task is the one, as if they had been written one by one.
    let live = again.iter().filter(|again| open.contains(&(again.task.job.0 as i64)));
    let lasts: BTreeMap<TaskKey, &Again> = live.map(|again| (again.task, again)).collect();
    if lasts.is_empty() {
        return Ok(());
    }
    tx.run(
        "INSERT INTO tasks (job, idx, state, n, failures, losses, not_before)
         SELECT a.job, a.idx, 0, a.n, a.failures, a.losses, a.not_before
         FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6::bigint[])
              a (job, idx, n, failures, losses, not_before)
         JOIN jobs j ON j.key = a.job AND j.finished_at IS NULL
         ON CONFLICT (job, idx) DO UPDATE SET n = EXCLUDED.n, failures = EXCLUDED.failures,
            losses = EXCLUDED.losses, not_before = EXCLUDED.not_before
         WHERE tasks.state = 0 AND (tasks.n IS NULL OR EXCLUDED.n >= tasks.n)",
        &Retries::of(lasts.into_values()).params(),
    )
    .await?;
    Ok(())
}

async fn note_sessions(tx: &Transaction<'_>, changes: &[SessionChange]) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    // What the last change of each says.
    let mut lasts: BTreeMap<String, Option<(String, &str)>> = BTreeMap::new();
    for change in changes {
        match change {
            SessionChange::Came(session, worker, queue) => {
                lasts.insert(text(&session.0).into(), Some((text(&worker.0).into(), queue.as_str())))
            }
            SessionChange::Went(session) => lasts.insert(text(&session.0).into(), None),
        };
    }
    let went: Vec<&String> = lasts.iter().filter(|(_, last)| last.is_none()).map(|(session, _)| session).collect();
    let came =
        lasts.iter().filter_map(|(session, last)| last.as_ref().map(|(worker, queue)| (session, worker, *queue)));
    let (mut sessions, mut workers, mut queues) = (Vec::new(), Vec::new(), Vec::new());
    for (session, worker, queue) in came {
        sessions.push(session);
        workers.push(worker);
        queues.push(queue);
    }
    try_join(
        tx.run("DELETE FROM sessions WHERE session = ANY($1)", &[&went]),
        tx.run(
            "INSERT INTO sessions (session, worker, queue) SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
             ON CONFLICT (session) DO UPDATE SET worker = EXCLUDED.worker, queue = EXCLUDED.queue",
            &[&sessions, &workers, &queues],
        ),
    )
    .await?;
    Ok(())
}
