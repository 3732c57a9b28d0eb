//! A replica of a stage at work: records of its log go in, what comes of them goes to the logs of those who read it.
//!
//! What is said is gathered into records: handed on at once when there is nothing else to read and nothing under way, else when
//! it is many rows or bytes, or after a millisecond. While those behind it take nothing, nothing is read.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::part::{PartCore, PartError};
use mutirao_streams::wire::{State, What};

use super::Job;
use super::beginning::{Begun, May, begin};
use super::behind::Behind;
use super::outputs::{self, Mark, Outputs};
use super::reader::{Gone, Reader};
use super::records::Records;
use super::saving::{Due, Saving};
use super::telling::Telling;
use super::wall::Steps;

mod hearing;
mod looking;

/// What is gathered waits no longer than this.
const GATHER_MAX: Duration = Duration::from_millis(1);
/// How often it looks after snapshots, its readers and writers.
const LOOK: Duration = Duration::from_millis(100);
/// Of those that remember no more than how far they are.
const TINY_SNAPSHOT: Duration = Duration::from_secs(1);
const SNAPSHOT: Duration = Duration::from_secs(30);
/// Keys of a snapshot that are written with each record.
const KEYS: usize = 512;

pub async fn run(job: Job, stage: usize) {
    let Some(log) = job.part.log() else { return };
    let outputs = tokio::select! {
        outputs = Outputs::open(&job) => outputs,
        _ = job.stopped() => return,
    };
    loop {
        let begun = tokio::select! {
            begun = begun(&job, stage, &log) => begun,
            _ = job.stopped() => return,
        };
        let begun = match begun {
            Ok(begun) => begun,
            Err(why) => {
                job.status.failed(why);
                job.stopped().await;
                return;
            }
        };
        match Work::of(&job, &log, &outputs, begun).run().await {
            End::Stopped => return,
            End::Gone(gone) => {
                let Gone { wanted, first, next } = gone;
                tracing::warn!(log, wanted, first, next, "the log no longer holds what is read next");
            }
            End::Failed(error) => {
                job.status.failed(error.to_string());
                job.stopped().await;
                return;
            }
        }
    }
}

async fn begun(job: &Job, stage: usize, log: &str) -> Result<Begun<PartCore>, String> {
    let (graph, replica) = (&job.graph, job.part.replica);
    // Whether it can be made at all is seen before anything is waited for.
    PartCore::of(graph, stage, replica).map_err(|error| error.to_string())?;
    let fresh = || match PartCore::of(graph, stage, replica) {
        Ok(core) => core,
        Err(error) => unreachable!("it was made a moment ago: {error}"),
    };
    let restore = |bytes: &[u8]| PartCore::restore(graph, stage, replica, bytes).map_err(|error| error.to_string());
    Ok(begin(job, log, May::ReadAllAgain, fresh, restore).await)
}

enum End {
    Stopped,
    Gone(Gone),
    Failed(PartError),
}

impl From<PartError> for End {
    fn from(error: PartError) -> Self {
        End::Failed(error)
    }
}

struct Work<'a> {
    job: &'a Job,
    log: &'a str,
    outputs: &'a Outputs,
    core: PartCore,
    reader: Reader,
    behind: Behind,
    saving: Saving,
    due: Due,
    /// What was given out when the snapshot that is under way was begun.
    saving_mark: Option<Mark>,
    telling: Telling,
    /// Where it began, until it has a snapshot of its own.
    from: u64,
    /// Where the log ended then.
    end: u64,
    gathered: Option<Mono>,
    records: Records<'a>,
    /// Since when a source counts as silent, until it is certain that all of the log was read.
    silent: Option<Mono>,
    steps: Steps,
    looked: Mono,
}

impl<'a> Work<'a> {
    fn of(job: &'a Job, log: &'a str, outputs: &'a Outputs, begun: Begun<PartCore>) -> Self {
        let Begun { core, from, end } = begun;
        let (now, next) = (job.means.clock.monotonic(), core.next_offset());
        let offset = from.as_ref().map(|from| from.offset);
        if let Some(from) = from {
            job.status.snapshot_is(from);
        }
        job.status.next_is(next);
        let reader = Reader::start(log.to_owned(), next, &job.means);
        let behind = Behind::look(log.to_owned(), &job.means, end);
        Self {
            job,
            log,
            outputs,
            core,
            reader,
            behind,
            saving: Saving::of(offset),
            due: Due::every(period(job), outputs::snapshot_bytes(job), now),
            saving_mark: None,
            telling: Telling::of(job),
            from: offset.unwrap_or(0),
            end,
            gathered: None,
            records: Records::of(log, now),
            silent: None,
            steps: Steps::default(),
            looked: now,
        }
    }

    async fn run(mut self) -> End {
        self.job.status.is(State::CatchingUp);
        self.look();
        match self.work().await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn work(&mut self) -> Result<std::convert::Infallible, End> {
        let clock = self.job.means.clock.clone();
        loop {
            use mutirao_core::clock::ClockExt;
            let has_room = self.outputs.has_room();
            let look = self.looked.plus(LOOK);
            let until = self.gathered.map_or(look, |since| look.min(since.plus(GATHER_MAX)));
            let before = clock.monotonic();
            tokio::select! {
                biased;
                stop = self.job.stopped() => return Err(self.leave(stop).await),
                records = self.reader.next(), if has_room => match records {
                    Some(Ok(records)) => self.hear(records).await?,
                    Some(Err(gone)) => return Err(End::Gone(gone)),
                    None => return Err(End::Gone(Gone { wanted: self.core.next_offset(), first: 0, next: 0 })),
                },
                () = self.outputs.moved() => {}
                () = clock.sleep_until(until) => {}
            }
            if !has_room {
                self.job.status.meter.held_back(clock.monotonic().since(before));
            }
            self.flush_if_due();
            if clock.monotonic() >= self.looked.plus(LOOK) {
                self.look();
            }
        }
    }
}

fn period(job: &Job) -> Duration {
    if job.plan.part(job.part.what).is_some_and(|part| part.stateless) {
        return TINY_SNAPSHOT;
    }
    let What::Stage(stage) = job.part.what else { return SNAPSHOT };
    let graph: &Arc<_> = &job.graph;
    let operators = graph.stages[stage as usize].operators.iter().map(|n| &graph.operators[*n]);
    operators.filter_map(|operator| operator.snapshot).min().unwrap_or(SNAPSHOT)
}
