//! Rows turned on their side: one array for each column, as `unnest` takes them.

use std::borrow::Cow;

use mutirao_core::blobs::LogStream;
use mutirao_core::id::Attempt;
use mutirao_core::outcome::Output;
use mutirao_store::postgres::{ToSql, text};

use crate::desk::{Again, Ended};

/// Tries and failures are counted in thousands; past two billion the number does not matter.
fn small(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

#[derive(Default)]
pub struct Ends<'a> {
    job: Vec<i64>,
    idx: Vec<i64>,
    state: Vec<i16>,
    generation: Vec<Option<i64>>,
    n: Vec<Option<i32>>,
    failures: Vec<i32>,
    losses: Vec<i32>,
    worker: Vec<Option<Cow<'a, str>>>,
    exit: Vec<Option<i32>>,
    signal: Vec<Option<i32>>,
    reason: Vec<Option<Cow<'a, str>>>,
    started_at: Vec<Option<i64>>,
    ended_at: Vec<i64>,
    wall_us: Vec<Option<i64>>,
    cpu_user_us: Vec<Option<i64>>,
    cpu_system_us: Vec<Option<i64>>,
    memory_peak: Vec<Option<i64>>,
}

impl<'a> Ends<'a> {
    pub fn of(ended: &[&'a Ended]) -> Self {
        let mut all = Self::default();
        for end in ended {
            let outcome = end.outcome.as_ref();
            let usage = outcome.map(|o| o.usage);
            all.job.push(end.task.job.0 as i64);
            all.idx.push(end.task.index.into());
            all.state.push(end.how.code().into());
            all.generation.push(end.attempt.map(|a| a.generation as i64));
            all.n.push(end.attempt.map(|a| small(a.n)));
            all.failures.push(small(end.failures));
            all.losses.push(small(end.losses));
            all.worker.push(end.worker.as_ref().map(|w| text(&w.0)));
            all.exit.push(outcome.and_then(|o| o.exit));
            all.signal.push(outcome.and_then(|o| o.signal));
            all.reason.push(outcome.and_then(|o| o.reason.as_deref()).map(text));
            all.started_at.push(outcome.map(|o| o.started_at.0));
            all.ended_at.push(end.at.0);
            all.wall_us.push(usage.map(|u| u.wall_us as i64));
            all.cpu_user_us.push(usage.map(|u| u.cpu_user_us as i64));
            all.cpu_system_us.push(usage.map(|u| u.cpu_system_us as i64));
            all.memory_peak.push(usage.and_then(|u| u.memory_peak_bytes).map(|m| m as i64));
        }
        all
    }

    /// In the order of the statement.
    pub fn params(&self) -> [&(dyn ToSql + Sync); 17] {
        [
            &self.job,
            &self.idx,
            &self.state,
            &self.generation,
            &self.n,
            &self.failures,
            &self.losses,
            &self.worker,
            &self.exit,
            &self.signal,
            &self.reason,
            &self.started_at,
            &self.ended_at,
            &self.wall_us,
            &self.cpu_user_us,
            &self.cpu_system_us,
            &self.memory_peak,
        ]
    }
}

#[derive(Default)]
pub struct Retries {
    job: Vec<i64>,
    idx: Vec<i64>,
    n: Vec<i32>,
    failures: Vec<i32>,
    losses: Vec<i32>,
    not_before: Vec<i64>,
}

impl Retries {
    pub fn of<'a>(again: impl Iterator<Item = &'a Again>) -> Self {
        let mut all = Self::default();
        for a in again {
            all.job.push(a.task.job.0 as i64);
            all.idx.push(a.task.index.into());
            all.n.push(small(a.tries));
            all.failures.push(small(a.failures));
            all.losses.push(small(a.losses));
            all.not_before.push(a.not_before.0);
        }
        all
    }

    pub fn params(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.job, &self.idx, &self.n, &self.failures, &self.losses, &self.not_before]
    }
}

#[derive(Default)]
pub struct Outputs<'a> {
    job: Vec<i64>,
    idx: Vec<i64>,
    stream: Vec<i16>,
    generation: Vec<i64>,
    n: Vec<i32>,
    bytes: Vec<i64>,
    truncated: Vec<bool>,
    in_blobs: Vec<bool>,
    tail: Vec<&'a [u8]>,
    /// Of all tails.
    pub tail_bytes: usize,
}

impl<'a> Outputs<'a> {
    pub fn push(&mut self, ended: &Ended, attempt: Attempt, stream: LogStream, output: &'a Output) {
        self.job.push(ended.task.job.0 as i64);
        self.idx.push(ended.task.index.into());
        self.stream.push(stream as i16);
        self.generation.push(attempt.generation as i64);
        self.n.push(small(attempt.n));
        self.bytes.push(output.bytes as i64);
        self.truncated.push(output.truncated);
        self.in_blobs.push(output.in_blobs);
        self.tail.push(&output.tail);
        self.tail_bytes += output.tail.len();
    }

    pub fn is_empty(&self) -> bool {
        self.job.is_empty()
    }

    pub fn params(&self) -> [&(dyn ToSql + Sync); 9] {
        [
            &self.job,
            &self.idx,
            &self.stream,
            &self.generation,
            &self.n,
            &self.bytes,
            &self.truncated,
            &self.in_blobs,
            &self.tail,
        ]
    }
}
