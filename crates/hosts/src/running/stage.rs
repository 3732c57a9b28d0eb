//! A replica of a stage at work: records of its log go in, what comes of them goes to the logs of those who read it.
//!
//! What is said is gathered into records: handed on at once when there is nothing else to read and nothing under way, else when
//! it is many rows or bytes, or after a millisecond. While those behind it take nothing, nothing is read.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::Record;
use mutirao_core::Mono;
use mutirao_streams::part::{PartCore, PartError, RECORD_BYTES, RECORD_ROWS};
use mutirao_streams::wire::{Mode, State, What};

use super::beginning::{Begun, begin};
use super::behind::Behind;
use super::outputs::{self, Mark, Outputs};
use super::reader::{Gone, Reader};
use super::saving::{Due, Saving};
use super::telling::Telling;
use super::{Job, Stop};
use crate::measure::cpu::Stopwatch;

/// What is gathered waits no longer than this.
const GATHER_MAX: Duration = Duration::from_millis(1);
/// How often it looks after snapshots, its readers and writers.
const LOOK: Duration = Duration::from_millis(100);
/// Of those that remember no more than how far they are.
const TINY_SNAPSHOT: Duration = Duration::from_secs(1);
const SNAPSHOT: Duration = Duration::from_secs(30);
/// Keys of a snapshot that are written with each record, and while nothing comes.
const KEYS: usize = 512;
const KEYS_IDLE: usize = 16_384;
/// Rows after which others of this thread get their turn.
const ROWS_TURN: u64 = 8_192;
/// Silence after which the log counts as read to its end.
const AT_END: Duration = Duration::from_millis(150);

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
    let replicas = graph.stages[stage].replicas;
    Ok(begin(job, log, replicas > 1, fresh, restore).await)
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
    /// When a record came last.
    heard: Mono,
    looked: Mono,
    passed_over: u64,
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
            heard: now,
            looked: now,
            passed_over: 0,
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

    async fn hear(&mut self, records: Vec<Record>) -> Result<(), End> {
        let (job, meter) = (self.job, self.job.status.meter.clone());
        let mut work = Stopwatch::start();
        let (mut rows, mut bytes, mut fresh) = (0, 0, 0);
        for record in records {
            let now_us = job.means.now_us();
            if record.offset > self.core.next_offset() {
                // RabbitMQ spends a number on itself now and then. What is truly gone, reading says.
                self.core.skip_to(record.offset);
            }
            let heard = self.core.hear(record.offset, &record.body, now_us).map_err(End::from)?;
            self.telling.heard(record.body.len(), heard.facts.as_ref(), now_us);
            bytes += record.body.len() as u64;
            fresh += heard.fresh;
            rows += heard.fresh + 64;
            if let Some(why) = heard.passed_over {
                self.passed_over += 1;
                if self.passed_over.is_power_of_two() {
                    tracing::warn!(
                        log = self.log,
                        offset = record.offset,
                        count = self.passed_over,
                        "a record was passed over: {why}"
                    );
                }
            }
            if heard.lost > 0 {
                tracing::warn!(
                    log = self.log,
                    offset = record.offset,
                    lost = heard.lost,
                    "events are lost: nobody has them any more"
                );
            }
            while self.cut_if_much() | self.core.is_busy() {
                if !self.outputs.has_room() {
                    meter.worked(work.took());
                    self.wait_for_room().await?;
                    work = Stopwatch::start();
                }
                if self.core.is_busy() {
                    self.core.go_on(now_us).map_err(End::from)?;
                }
            }
            self.advance_snapshot(KEYS);
            if rows >= ROWS_TURN {
                rows = 0;
                self.flush_if_old();
                meter.worked(work.took());
                tokio::task::yield_now().await;
                work = Stopwatch::start();
            }
        }
        meter.worked(work.took());
        meter.events_in(fresh);
        meter.network(bytes);
        self.due.read(bytes);
        self.heard = job.means.clock.monotonic();
        Ok(())
    }

    /// Whether there was much to hand on.
    fn cut_if_much(&mut self) -> bool {
        let (rows, bytes) = self.core.waiting();
        let much = rows >= RECORD_ROWS as u64 || bytes >= RECORD_BYTES;
        if much {
            self.cut();
        }
        much
    }

    fn cut(&mut self) {
        self.outputs.give(self.core.cut(self.job.means.now_us()));
        self.gathered = None;
    }

    fn flush_if_old(&mut self) {
        if !self.core.has_something_to_say() {
            return;
        }
        let now = self.job.means.clock.monotonic();
        if now.since(*self.gathered.get_or_insert(now)) >= GATHER_MAX {
            self.cut();
        }
    }

    fn flush_if_due(&mut self) {
        if !self.core.has_something_to_say() {
            self.gathered = None;
        } else if self.reader.is_empty() && self.outputs.is_idle() {
            self.cut();
        } else {
            self.flush_if_old();
        }
    }

    /// Those behind it take nothing.
    async fn wait_for_room(&mut self) -> Result<(), End> {
        use mutirao_core::clock::ClockExt;
        let clock = self.job.means.clock.clone();
        let since = clock.monotonic();
        while !self.outputs.has_room() {
            tokio::select! {
                biased;
                // In the middle of a record there is no snapshot.
                _ = self.job.stopped() => return Err(End::Stopped),
                () = self.outputs.room() => {}
                () = clock.sleep_until(self.looked.plus(LOOK)) => self.look(),
            }
        }
        self.job.status.meter.held_back(clock.monotonic().since(since));
        Ok(())
    }

    fn advance_snapshot(&mut self, keys: usize) {
        if self.core.is_saving()
            && let Some(saved) = self.core.advance_snapshot(keys)
            && let Some(mark) = self.saving_mark.take()
        {
            // What it remembers takes about as much in memory as written down.
            self.job.status.meter.memory_is(saved.bytes.len() as u64);
            self.saving.offer(saved.offset, saved.bytes, mark);
        }
    }

    fn look(&mut self) {
        let (job, status) = (self.job, &self.job.status);
        let now = job.means.clock.monotonic();
        self.looked = now;
        let next = self.core.next_offset();
        self.saving.go_on(Some(self.outputs), job);
        self.advance_snapshot(KEYS_IDLE);
        let new = self.saving.offset != Some(next);
        if self.due.is_due(now) && new && self.saving.is_free() && !self.core.is_saving() && !self.core.is_busy() {
            self.cut();
            let mark = self.outputs.mark();
            if self.core.begin_snapshot() {
                self.saving_mark = Some(mark);
                self.due.begun(now);
                self.advance_snapshot(KEYS);
            }
        }
        self.telling.tell(self.saving.offset.unwrap_or(self.from), next);
        let order = job.order();
        self.outputs.ordered(&order.needed);
        let at_end = self.reader.is_empty() && now.since(self.heard) >= AT_END;
        if at_end && order.mode == Mode::Run {
            self.tick();
        }
        status.next_is(next);
        status.trouble_is(self.outputs.trouble().or_else(|| self.reader.trouble()));
        status.meter.queue_is(self.behind.records(next));
        status.meter.late_so_far(self.core.counts().late);
        status.is(match () {
            () if self.core.has_ended() => State::Ended,
            () if next < self.end => State::CatchingUp,
            () => State::Running,
        });
    }

    /// The time of sources that are silent goes on; that stands in the log, for other replicas to hear it where we do.
    fn tick(&mut self) {
        let ticks = self.core.ticks(self.job.means.now_us(), true);
        if !ticks.is_empty() {
            let (broker, log) = (self.job.means.broker.clone(), self.log.to_owned());
            let ticks = ticks.into_iter().map(Into::into).collect();
            // One that is lost is said again.
            tokio::spawn(async move { broker.add(&log, ticks).await });
        }
    }

    async fn leave(&mut self, stop: Stop) -> End {
        if stop == Stop::WithSnapshot {
            self.job.status.next_is(self.core.next_offset());
            self.cut();
            let mark = self.outputs.mark();
            self.saving.finish(Some(self.outputs), self.job).await;
            if self.saving.offset != Some(self.core.next_offset())
                && let Some(saved) = self.core.snapshot()
            {
                self.saving.offer(saved.offset, saved.bytes, mark);
                self.saving.finish(Some(self.outputs), self.job).await;
            }
        }
        End::Stopped
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
