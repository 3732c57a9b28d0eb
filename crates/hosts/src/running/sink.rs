//! A sink at work: rows of its log go to the other side, in order; while that is away it waits, and holds its stream back once
//! the log is as full as it may be.

use std::time::Duration;

use mutirao_broker::Record;
use mutirao_core::clock::ClockExt;
use mutirao_streams::graph::To;
use mutirao_streams::part::SinkCore;
use mutirao_streams::wire::State;

use super::beginning::{Begun, May, begin};
use super::outputs::{Mark, snapshot_bytes};
use super::reader::{Gone, Reader};
use super::records::pass_to;
use super::saving::{self, Due, First};
use super::{Job, Stop};
use crate::measure::cpu::Stopwatch;
use crate::sinks::{self, Outlet};

mod giving;
mod tend;

use tend::Tend;

const LOOK: Duration = Duration::from_millis(100);
const SNAPSHOT: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Rows that are handed over together.
const TOGETHER_MAX: usize = 8_192;

type Core = (SinkCore, Option<Vec<u8>>);

pub async fn run(job: Job, sink: usize) {
    let Some(log) = job.part.log() else { return };
    // What a file has, only its last snapshot tells.
    let may = if matches!(job.graph.sinks[sink].to, To::File { .. }) { May::Neither } else { May::PassOver };
    loop {
        let fresh = || (SinkCore::of(&job.graph, sink), None);
        let restore = |bytes: &[u8]| {
            let restored = SinkCore::restore(&job.graph, sink, bytes).map_err(|error| error.to_string());
            restored.map(|(core, position)| (core, Some(position)))
        };
        let ready = async {
            let begun = begin(&job, &log, may, fresh, restore).await;
            let outlet = open(&job, sink, begun.core.1.as_deref()).await;
            (begun, outlet)
        };
        let (begun, outlet) = tokio::select! {
            ready = ready => ready,
            _ = job.stopped() => return,
        };
        let mut work = Work::of(&job, &log, begun, outlet);
        if work.outlet.begins_with_a_mark() && !work.begin().await {
            return;
        }
        match work.run().await {
            End::Stopped => return,
            End::Failed(why) => {
                job.status.failed(why);
                job.stopped().await;
                return;
            }
            End::Gone(Gone { wanted, first, next }) => {
                tracing::warn!(log, wanted, first, next, "the log no longer holds what is read next");
            }
        }
    }
}

async fn open(job: &Job, sink: usize, memory: Option<&[u8]>) -> Box<dyn Outlet> {
    let mut pause = PAUSE_MIN;
    loop {
        match sinks::open(&job.graph, sink, &job.part, job.order().epoch, memory, &job.means) {
            Ok(outlet) => return outlet,
            // A secret may be put there.
            Err(why) => job.status.trouble_is(Some(why)),
        }
        job.means.clock.sleep(job.means.dice.jitter(pause)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

enum End {
    Stopped,
    Gone(Gone),
    Failed(String),
}

struct Work<'a> {
    job: &'a Job,
    core: SinkCore,
    outlet: Box<dyn Outlet>,
    reader: Reader,
    tend: Tend<'a>,
    due: Due,
    dead: u64,
}

impl<'a> Work<'a> {
    fn of(job: &'a Job, log: &'a str, begun: Begun<Core>, outlet: Box<dyn Outlet>) -> Self {
        let Begun { core: (core, _), from, end } = begun;
        let (now, next) = (job.means.clock.monotonic(), core.next_offset());
        let offset = from.as_ref().map(|from| from.offset);
        if let Some(from) = from {
            job.status.snapshot_is(from);
        }
        job.status.next_is(next);
        job.status.trouble_is(None);
        let tend = Tend::of(job, log, next, offset, end);
        let reader = Reader::start(log.to_owned(), next, &job.means);
        let due = Due::every(SNAPSHOT, snapshot_bytes(job), now);
        Self { job, core, outlet, reader, tend, due, dead: 0 }
    }

    /// Whether to go on: the manager knows where the other side was before the first row.
    async fn begin(&mut self) -> bool {
        let job = self.job;
        loop {
            if let Err(why) = self.save(true).await {
                job.status.trouble_is(Some(why));
            }
            self.tend.saving.finish(None, job).await;
            match saving::first(job).await {
                First::Known => return true,
                First::Again => {}
                First::Stopped => return false,
            }
        }
    }

    async fn run(&mut self) -> End {
        let clock = self.job.means.clock.clone();
        self.job.status.is(State::CatchingUp);
        loop {
            let until = self.tend.looked.plus(LOOK);
            tokio::select! {
                biased;
                stop = self.job.stopped() => return self.leave(stop).await,
                records = self.reader.next() => match records {
                    Some(Ok(records)) => if let Err(end) = self.hear(records).await {
                        return end;
                    },
                    Some(Err(gone)) => return End::Gone(gone),
                    None => return End::Gone(Gone { wanted: self.core.next_offset(), first: 0, next: 0 }),
                },
                () = clock.sleep_until(until) => {}
            }
            if clock.monotonic() >= self.tend.looked.plus(LOOK) {
                let now = clock.monotonic();
                self.tend.trouble =
                    self.reader.trouble().or_else(|| self.tend.records.stuck(self.job, self.core.gap(), now));
                self.tend.look();
            }
            if self.due.is_due(clock.monotonic())
                && let Err(why) = self.save(false).await
            {
                self.tend.trouble = Some(why);
            }
        }
    }

    async fn hear(&mut self, records: Vec<Record>) -> Result<(), End> {
        let (job, meter) = (self.job, self.job.status.meter.clone());
        let work = Stopwatch::start();
        let (mut rows, mut bytes, mut read) = (Vec::new(), 0, Vec::new());
        for record in records {
            let now_us = job.means.now_us();
            pass_to(&mut self.core, record.offset);
            let before = rows.len();
            let heard = self.core.hear(record.offset, &record.body, &mut rows);
            let heard = heard.map_err(|error| End::Failed(error.to_string()))?;
            self.tend.telling.heard(record.body.len(), heard.facts.as_ref(), now_us);
            bytes += record.body.len() as u64;
            if let Some(facts) = heard.facts.as_ref().filter(|_| rows.len() > before) {
                read.push(((rows.len() - before) as u64, facts.times.sent_us, now_us));
            }
            self.tend.records.note(record.offset, &heard);
        }
        meter.worked(work.took());
        meter.network(bytes);
        meter.events_in(rows.len() as u64);
        self.due.read(bytes);
        for some in rows.chunks(TOGETHER_MAX) {
            self.give(some).await?;
        }
        meter.events_out(rows.len() as u64);
        let now_us = job.means.now_us();
        for (rows, sent_us, taken_us) in read {
            let since = |from: i64, to: i64| u64::try_from(to.saturating_sub(from)).unwrap_or(0);
            self.tend.took.add(
                rows,
                mutirao_streams::part::Latency {
                    latency_us: since(sent_us, now_us),
                    wait_us: since(sent_us, taken_us),
                    service_us: since(taken_us, now_us),
                    whole_us: 0,
                },
            );
        }
        self.tend.next = self.core.next_offset();
        self.tend.ended = self.core.has_ended();
        self.tend.records.came(job.means.clock.monotonic());
        Ok(())
    }

    /// Writes down how far it is and how far the other side is; all that was read is with that by now.
    async fn save(&mut self, first: bool) -> Result<(), String> {
        let next = self.core.next_offset();
        if !self.tend.saving.is_free() || (!first && self.tend.saving.offset == Some(next)) {
            return Ok(());
        }
        self.due.begun(self.job.means.clock.monotonic());
        let position = self.outlet.settle().await?;
        self.tend.saving.offer(next, self.core.snapshot(&position), Mark::none());
        Ok(())
    }

    async fn leave(&mut self, stop: Stop) -> End {
        if stop == Stop::WithSnapshot {
            self.job.status.next_is(self.core.next_offset());
            self.tend.saving.finish(None, self.job).await;
            if self.save(false).await.is_ok() {
                self.tend.saving.finish(None, self.job).await;
            }
        }
        End::Stopped
    }
}
