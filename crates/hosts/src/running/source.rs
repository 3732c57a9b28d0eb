//! A source at work: what comes is numbered, handed to the logs of those who read it, and settled where it came from once it is
//! durable there.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::clock::ClockExt;
use mutirao_streams::graph::From;
use mutirao_streams::mark::Origin;
use mutirao_streams::part::{Position, RECORD_BYTES, RECORD_ROWS, SourceCore};
use mutirao_streams::wire::{Snapshot, State};

use super::Job;
use super::outputs::{Mark, Outputs};
use super::saving::{self, First, Found, Saving};
use crate::measure::cpu::Stopwatch;
use crate::sources::{self, Came, Taken};

mod feeding;
mod looking;
mod signs;

use feeding::{Fed, Feeding};
use signs::Signs;

const GATHER_MAX: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(100);
const SNAPSHOT: Duration = Duration::from_secs(1);

pub async fn run(job: Job, source: usize) {
    let outputs = tokio::select! {
        outputs = Outputs::open(&job) => outputs,
        _ = job.stopped() => return,
    };
    let from = &job.graph.sources[source].from;
    let origin = match from {
        From::File { .. } | From::Generator { .. } => Origin::Fixed,
        // A queue, a session and a listener hand each message to one of those who take it, and that may be one that was given up
        // and does not know yet: were it not heard, what it acknowledges would be lost.
        From::Mqtt { .. } | From::Amqp { .. } => Origin::Free(job.means.dice.u64()),
        From::Http => {
            // Managers append what is pushed to them.
            job.status.is(State::Running);
            job.stopped().await;
            return;
        }
    };
    let restored = tokio::select! {
        restored = restored(&job, source, origin) => restored,
        _ = job.stopped() => return,
    };
    let (core, position, known) = match restored {
        Some(((core, position), snapshot)) => (core, Some(position), Some(snapshot)),
        None => (SourceCore::of(&job.graph, source, origin), None, None),
    };
    let makes = matches!(from, From::Generator { .. });
    let opening = open(&job, source, position.as_deref());
    let feeding = tokio::select! {
        feeding = opening => feeding,
        _ = job.stopped() => return,
    };
    let now = job.means.clock.monotonic();
    let position = position.filter(|_| !makes).or_else(|| feeding.position());
    let mut work = Work {
        job: &job,
        outputs: &outputs,
        core,
        feeding,
        makes,
        position: position.unwrap_or_default(),
        saving: Saving::default(),
        saved: now,
        changed: false,
        unsettled: VecDeque::new(),
        ticket: 0,
        gathered: None,
        due: None,
        paused: false,
        resuming: None,
        signs: Signs::of(&job, source, &outputs, now),
        looked: now,
    };
    let fresh = known.is_none();
    if let Some(known) = known {
        job.status.snapshot_is(known);
    }
    // What begins now must not begin again later: that is known before anything comes of it.
    if fresh && origin == Origin::Fixed && !work.begin().await {
        return;
    }
    work.run().await;
}

/// What it remembers. One that would say something else under the numbers that it used before does not begin anew.
async fn restored(job: &Job, source: usize, origin: Origin) -> Option<((SourceCore, Position), Snapshot)> {
    let restore =
        |bytes: &[u8]| SourceCore::restore(&job.graph, source, origin, bytes).map_err(|error| error.to_string());
    loop {
        match saving::restore(job, restore).await {
            Found::One(made, snapshot) => return Some((made, snapshot)),
            Found::Unreadable(why) if origin == Origin::Fixed => saving::unreadable(job, &why).await,
            Found::Nothing | Found::Unreadable(_) => return None,
        }
    }
}

async fn open(job: &Job, source: usize, position: Option<&[u8]>) -> Feeding {
    let mut pause = Duration::from_millis(250);
    loop {
        match sources::open(&job.graph, source, &job.part, position, &job.means) {
            Ok(feed) => {
                job.status.trouble_is(None);
                return Feeding::start(feed, &job.means);
            }
            // A secret may be put there, a folder made.
            Err(why) => job.status.trouble_is(Some(why)),
        }
        job.means.clock.sleep(job.means.dice.jitter(pause)).await;
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

struct Work<'a> {
    job: &'a Job,
    outputs: &'a Outputs,
    core: SourceCore,
    feeding: Feeding,
    /// It makes its events itself.
    makes: bool,
    position: Vec<u8>,
    saving: Saving,
    saved: Mono,
    /// Since the last snapshot.
    changed: bool,
    /// What is to be settled once this much is durable.
    unsettled: VecDeque<(Mark, u64)>,
    /// Of what was taken last.
    ticket: u64,
    gathered: Option<Mono>,
    /// When a generator is due next.
    due: Option<i64>,
    paused: bool,
    /// A generator that was paused, until its manager knows how long.
    resuming: Option<Resuming>,
    signs: Signs,
    looked: Mono,
}

#[derive(Clone, Copy, Default)]
struct Resuming {
    /// The offset of the snapshot that says so.
    offered: Option<u64>,
}

impl Work<'_> {
    /// Whether to go on: its first snapshot is there, and the manager knows of it.
    async fn begin(&mut self) -> bool {
        let job = self.job;
        if self.makes {
            self.core.begin(job.means.now_us());
        }
        loop {
            self.offer();
            self.saving.finish(None, job).await;
            match saving::first(job).await {
                First::Known => return true,
                First::Again => {}
                First::Stopped => return false,
            }
        }
    }

    async fn run(&mut self) {
        let clock = self.job.means.clock.clone();
        self.look();
        loop {
            let running = !self.paused && self.resuming.is_none() && !self.core.has_ended();
            let has_room = self.outputs.has_room();
            let mut until = self.looked.plus(LOOK);
            if let Some(since) = self.gathered {
                until = until.min(since.plus(GATHER_MAX));
            }
            if self.makes && running && has_room {
                let now_us = self.job.means.now_us();
                if self.due.is_none_or(|due| due <= now_us) {
                    let work = Stopwatch::start();
                    self.due = self.core.generate(now_us);
                    self.changed = true;
                    self.job.status.meter.worked(work.took());
                    self.flush_if_due();
                    if !self.core.has_ended() && self.due.is_none_or(|due| due <= now_us) {
                        tokio::task::yield_now().await;
                        if clock.monotonic() >= self.looked.plus(LOOK) {
                            self.look();
                        }
                        if self.job.stop.borrow().is_none() {
                            continue;
                        }
                    }
                }
                let wait = self.due.map_or(LOOK, |due| Duration::from_micros(due.saturating_sub(now_us).max(0) as u64));
                until = until.min(clock.monotonic().plus(wait));
            }
            let before = clock.monotonic();
            tokio::select! {
                biased;
                stop = self.job.stopped() => return self.leave(stop).await,
                fed = self.feeding.next(), if running && has_room => self.take(fed),
                () = self.outputs.moved() => {}
                () = clock.sleep_until(until) => {}
            }
            if !has_room {
                self.job.status.meter.held_back(clock.monotonic().since(before));
            }
            self.settle();
            self.flush_if_due();
            if clock.monotonic() >= self.looked.plus(LOOK) {
                self.look();
            }
        }
    }

    fn take(&mut self, fed: Fed) {
        let (Taken { came, ticket, at_us }, position) = match fed {
            Fed::Taken(taken, position) => (taken, position),
            Fed::Trouble(why) => return self.job.status.trouble_is(Some(why)),
        };
        let work = Stopwatch::start();
        let (mut events, mut unfit, mut bytes) = (0, 0, 0);
        match came {
            Came::Messages(messages) => {
                for message in messages {
                    let taken = self.core.message(&message, at_us);
                    (events, unfit, bytes) = (events + taken.events, unfit + taken.unfit, bytes + message.len() as u64);
                }
            }
            Came::Lines(lines) => {
                let taken = self.core.lines(lines.iter().map(|line| &line[..]), at_us);
                bytes = lines.iter().map(|line| line.len() as u64).sum();
                (events, unfit) = (taken.events, taken.unfit);
            }
        }
        let meter = &self.job.status.meter;
        meter.worked(work.took());
        meter.events_in(events);
        meter.unfit(unfit);
        if self.feeding.is_settled() {
            meter.network(bytes)
        } else {
            meter.disk(bytes)
        }
        self.ticket = ticket;
        self.position = position.unwrap_or_default();
        self.changed = true;
        // What nothing came of needs no record to be settled.
        if !self.core.has_something_to_say() {
            self.unsettled.push_back((self.outputs.mark(), ticket));
        }
        let (rows, bytes) = self.core.waiting();
        if rows >= RECORD_ROWS as u64 || bytes >= RECORD_BYTES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let said = self.core.cut(self.job.means.now_us());
        if self.makes {
            self.job.status.meter.events_in(said.iter().map(|said| u64::from(said.rows)).sum());
        }
        self.outputs.give(said);
        self.gathered = None;
        self.unsettled.push_back((self.outputs.mark(), self.ticket));
    }

    fn flush_if_due(&mut self) {
        if !self.core.has_something_to_say() {
            self.gathered = None;
            return;
        }
        let now = self.job.means.clock.monotonic();
        let since = *self.gathered.get_or_insert(now);
        let quiet = self.feeding.is_empty() && self.outputs.is_idle();
        let (rows, bytes) = self.core.waiting();
        if quiet || rows >= RECORD_ROWS as u64 || bytes >= RECORD_BYTES || now.since(since) >= GATHER_MAX {
            self.cut();
        }
    }

    fn settle(&mut self) {
        let mut settled = None;
        while self.unsettled.front().is_some_and(|(mark, _)| self.outputs.is_durable(mark)) {
            settled = self.unsettled.pop_front().map(|(_, ticket)| ticket).or(settled);
        }
        if let Some(ticket) = settled {
            self.feeding.settle(ticket);
        }
    }
}
