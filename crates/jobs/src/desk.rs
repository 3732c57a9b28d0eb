//! The desk: which task goes next, and what every report means. A pure state machine; time comes in as an argument,
//! what must be written or said comes out as [`Effects`].
//!
//! - [`ledger`]: one job, its tasks and where they stand.
//! - [`definitions`]: queues are defined, changed and deleted.
//! - [`line`]: one queue: its retries by date, how much is out, what its definition lets out.
//! - [`order`]: whose turn it is, by the queue's policy; [`usage`]: what somebody has used lately; [`pace`]: how many may
//!   start in a second.
//! - [`sessions`]: which worker process holds what, and until when its lease runs.
//! - [`sequence`]: which of a session's messages were heard.
//! - [`window`]: how many tasks may be out at once.
//! - [`too_big`]: tasks that no worker can hold.
//! - [`hearing`]: what workers say, and what their silence means.
//! - [`parcels`]: what is on its way to a worker, and what was lost there; [`lost`]: who has it after all.
//! - [`cancelling`]: ending what somebody does not want any more; [`dying`]: what still stops.
//! - [`reviving`]: tasks that had ended, tried anew.
//! - [`balance`]: how queues stand for whoever decides how many workers they get, and which workers are to be handed nothing.
//! - [`looks`], [`facts`]: what others may know of it, and why something does not run.

mod balance;
mod cancelling;
mod definitions;
mod depths;
mod dying;
mod facts;
mod hearing;
pub mod ledger;
pub mod line;
mod looks;
mod lost;
pub mod maps;
pub mod order;
pub mod pace;
pub mod parcels;
mod reviving;
mod sequence;
pub mod sessions;
mod too_big;
pub mod usage;
pub mod window;

#[cfg(test)]
mod queueing;
#[cfg(test)]
mod simulation;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::envelope::ParcelId;
use mutirao_core::id::{Attempt, JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::life::{Change, Event, Final, Life};
use mutirao_core::outcome::{Outcome, Verdict};
use mutirao_core::task::Needs;
use mutirao_core::{Dice, Mono, Timestamp};
use mutirao_queues::QueueSpec;

use dying::Dying;
use ledger::Ledger;
use line::{Gate, Line};
pub use looks::{Standing, UnderWay};
use lost::Lost;
use maps::Map;
use parcels::Posted;
use sessions::Sessions;
use usage::Spent;

/// The two clocks, read once for each thing that happens.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub wall: Timestamp,
    pub mono: Mono,
}

impl Now {
    /// What the wall shows now for a moment that has passed, whatever it showed then.
    pub fn wall_at(&self, at: Mono) -> Timestamp {
        let passed = i64::try_from(self.mono.since(at).as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.wall.0.saturating_sub(passed))
    }
}

/// A task that ended, to be written once.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub task: TaskKey,
    pub how: Final,
    pub attempt: Option<Attempt>,
    pub failures: u32,
    pub losses: u32,
    pub worker: Option<WorkerId>,
    pub outcome: Option<Outcome>,
    pub at: Timestamp,
}

/// A task that will be tried again, with what must not be forgotten about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Again {
    pub task: TaskKey,
    pub tries: u32,
    pub failures: u32,
    pub losses: u32,
    pub not_before: Timestamp,
}

/// What the shell must do: write these, say those.
#[derive(Debug, Default)]
pub struct Effects {
    pub ended: Vec<Ended>,
    /// What cancelled tasks still had to say: their output and cost, when they stopped. Changes no state and no count.
    pub late: Vec<Ended>,
    pub again: Vec<Again>,
    /// What workers must stop: this attempt at a task, and earlier ones.
    pub stop: Vec<(QueueName, Pick)>,
    /// Workers that are to take nothing new and have not said that they do.
    pub rest: Vec<(QueueName, WorkerId)>,
    /// Sessions that came and went, to be remembered over a restart.
    pub sessions: Vec<SessionChange>,
    /// Jobs of which every task has ended.
    pub closed: Vec<JobKey>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SessionChange {
    Came(SessionId, WorkerId, QueueName),
    Went(SessionId),
}

/// A task picked to go out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    pub task: TaskKey,
    pub attempt: Attempt,
}

/// A parcel to be published.
#[derive(Clone, Debug, PartialEq)]
pub struct Handed {
    pub id: ParcelId,
    pub queue: QueueName,
    pub picks: Vec<Pick>,
}

/// How much goes out of a line, and to whom.
struct Out<'a> {
    room: usize,
    /// Tasks in one parcel.
    parcel: usize,
    workers: &'a [Needs],
}

pub struct Desk {
    generation: u64,
    lease: Duration,
    jobs: Map<JobKey, Ledger>,
    lines: BTreeMap<QueueName, Line>,
    /// What is known of queues, with the revision, also of those where nothing ever waited.
    definitions: HashMap<QueueName, (u64, Arc<QueueSpec>)>,
    /// What goes out of a queue that is not defined here.
    undefined: Gate,
    /// Queues that were deleted, with the revision, until nothing is left of them.
    deleted: BTreeMap<QueueName, u64>,
    /// The last of them that the broker was asked to remove.
    removed_last: Option<QueueName>,
    sessions: Sessions,
    posted: BTreeMap<ParcelId, Posted>,
    lost: Lost,
    dying: Dying,
    parcels: u64,
    dice: Dice,
    effects: Effects,
    /// Tasks that have not ended, over all jobs.
    open: u64,
    /// Jobs taken in so far.
    admitted: u64,
    /// The latest that the clock has shown.
    seen: Mono,
    /// Workers that are to be handed nothing.
    resting: BTreeSet<WorkerId>,
    /// From when on everybody who lives must have been heard.
    settled_at: Mono,
}

impl Desk {
    pub fn new(generation: u64, lease: Duration, seed: u64) -> Self {
        Self {
            generation,
            lease,
            jobs: Map::default(),
            lines: BTreeMap::new(),
            definitions: HashMap::new(),
            undefined: Gate::Open,
            deleted: BTreeMap::new(),
            removed_last: None,
            sessions: Sessions::default(),
            posted: BTreeMap::new(),
            lost: Lost::default(),
            dying: Dying::default(),
            parcels: 0,
            dice: Dice::seeded(seed),
            effects: Effects::default(),
            open: 0,
            admitted: 0,
            seen: Mono::default(),
            resting: BTreeSet::new(),
            settled_at: Mono::default(),
        }
    }

    /// What has to be done since this was last asked.
    pub fn effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Takes a job in: a new one, or an unfinished one after a restart.
    pub fn admit(&mut self, job: JobKey, mut ledger: Ledger) {
        if ledger.is_over() || self.jobs.contains_key(&job) {
            return;
        }
        self.admitted += 1;
        ledger.number = self.admitted;
        ledger.since = self.seen;
        let line = self.lines.entry(ledger.queue.clone()).or_insert_with(|| {
            let mut line = Line::new(self.undefined);
            if let Some((_, spec)) = self.definitions.get(&ledger.queue) {
                line.define(spec, self.seen, |_| None);
            }
            line
        });
        for (index, not_before) in ledger.waiting_until() {
            line.wait_for_date(TaskKey { job, index }, not_before);
        }
        line.enter(job, &ledger.rank);
        line.open += ledger.open();
        self.open += ledger.open();
        self.jobs.insert(job, ledger);
    }

    /// After a restart: sessions that were alive when we went. Until each has spoken or its lease has run out, its queue
    /// hands out nothing, so that what they still run is not run twice.
    pub fn expect(&mut self, session: SessionId, worker: WorkerId, queue: QueueName, now: Now) {
        self.sessions.expect(session, worker, queue, now.mono.plus(self.lease));
    }

    /// Picks what goes out now, in parcels.
    pub fn hand_out(&mut self, now: Now) -> Vec<Handed> {
        let mut handed = Vec::new();
        self.seen = self.seen.max(now.mono);
        for (queue, line) in &mut self.lines {
            line.pass(now.mono);
            for (task, date) in line.take_dated() {
                // Another machine's clock may have set the date: a wait is never longer than the retry's own.
                let longest = self.jobs.get(&task.job).map_or(Duration::ZERO, |ledger| ledger.longest_wait(task.index));
                line.wait(task, now.mono.plus(date.since(now.wall).min(longest)));
            }
            for task in line.due(now.mono) {
                if let Some(ledger) = self.jobs.get_mut(&task.job) {
                    ledger.back_in_line(task.index);
                    line.enter(task.job, &ledger.rank);
                }
            }
            if line.first().is_none() && line.too_big.is_empty() {
                continue;
            }
            let workers = too_big::sizes(&self.sessions, self.definitions.get(queue), queue);
            line.look_again(&mut self.jobs, &workers);
            let first = line.first_that_fits(&self.jobs, &workers);
            let Some(needs) = first.and_then(|job| self.jobs.get(&job)).map(|ledger| ledger.needs) else {
                continue;
            };
            let seats = self.sessions.seats(queue, needs);
            if seats.sessions == 0 || seats.awaited {
                continue;
            }
            let hoarded = self.sessions.hoarded(queue, needs, line.share(seats, now.mono));
            let room = line.room(seats, hoarded, now.mono);
            let size = window::parcel_size(line.out + room, seats.sessions);
            let out = Out { room, parcel: size, workers: &workers };
            let picks = Self::pick(line, &mut self.jobs, out, self.generation, now, &self.dice);
            let most = |pick: &Pick| self.jobs.get(&pick.task.job).map_or(size, |ledger| ledger.parcel_max.min(size));
            let mut rest = &picks[..];
            while let Some(first) = rest.first() {
                let (chunk, later) = rest.split_at(most(first).min(rest.len()));
                rest = later;
                self.parcels += 1;
                let id = ParcelId { generation: self.generation, n: self.parcels };
                let (queue, picks) = (queue.clone(), chunk.to_vec());
                self.posted.insert(id, Posted::new(queue.clone(), picks.clone(), now.mono));
                handed.push(Handed { id, queue, picks });
            }
        }
        handed
    }

    fn pick(
        line: &mut Line,
        jobs: &mut Map<JobKey, Ledger>,
        Out { room, parcel, workers }: Out<'_>,
        generation: u64,
        now: Now,
        dice: &Dice,
    ) -> Vec<Pick> {
        let mut picks = Vec::with_capacity(room.min(4096));
        while picks.len() < room {
            let Some(job) = line.first_that_fits(jobs, workers) else { break };
            let Some(ledger) = jobs.get_mut(&job) else {
                line.leave(job);
                continue;
            };
            let (before, turn) = (picks.len(), line.turn(room - picks.len(), parcel));
            let next = || ledger.hand_out_next(generation, now.wall, dice);
            let tasks = std::iter::from_fn(next).take(turn);
            picks.extend(tasks.map(|(index, attempt)| Pick { task: TaskKey { job, index }, attempt }));
            let went = picks.len() - before;
            line.handed_out(job, went, ledger.needs.cpus);
            if went < turn {
                line.leave(job);
            }
        }
        picks
    }

    fn finish(
        &mut self,
        task: TaskKey,
        attempt: Attempt,
        verdict: Verdict,
        worker: Option<&WorkerId>,
        outcome: Option<Outcome>,
        now: Now,
    ) {
        let turned_down_by = match verdict {
            Verdict::Unfit => self.sessions.turned_down(task, attempt),
            _ => {
                self.sessions.drop_hold(task, attempt);
                None
            }
        };
        if let Some(line) = self.jobs.get(&task.job).and_then(|l| self.lines.get_mut(&l.queue)) {
            line.window.completed(verdict, now.mono);
            line.ended += u64::from(verdict != Verdict::Unfit);
        }
        let changed = self.happen(task, Event::Ended(attempt, verdict), worker, outcome, now);
        if let Some(had) = turned_down_by.filter(|_| changed) {
            self.turn_down(task, had);
        }
        self.close_if_over(task.job);
    }

    /// A worker that has this much turned a task down, which waits to be offered to another.
    fn turn_down(&mut self, task: TaskKey, had: Needs) {
        let Some(ledger) = self.jobs.get(&task.job).filter(|ledger| ledger.varied) else { return };
        let Some(line) = self.lines.get_mut(&ledger.queue) else { return };
        let workers = too_big::sizes(&self.sessions, self.definitions.get(&ledger.queue), &ledger.queue);
        if line.too_big.turn_down(task, had, &workers) {
            line.forget_wait(task);
        }
    }

    /// Lets one event happen to one task and books what follows. False when it changed nothing.
    fn happen(
        &mut self,
        task: TaskKey,
        event: Event,
        worker: Option<&WorkerId>,
        outcome: Option<Outcome>,
        now: Now,
    ) -> bool {
        let Some(ledger) = self.jobs.get_mut(&task.job) else { return false };
        let Some(line) = self.lines.get_mut(&ledger.queue) else { return false };
        let before = ledger.attempt_of(task.index);
        let (change, life) = ledger.apply(task.index, event, now.wall, &self.dice);
        let freed = before.filter(|_| life.attempt().is_none());
        if let Some(attempt) = freed {
            line.came_back(&ledger.rank, ledger.needs.cpus, spent(event, outcome.as_ref()));
            // It was dropped when its end was heard, unless it ends without a word of its own.
            if !matches!(event, Event::Ended(ended, _) if ended == attempt) {
                self.dying.begin(task, attempt, &ledger.queue, line, &self.sessions);
                match event {
                    // Whoever runs it will say how it stopped.
                    Event::Cancelled => self.sessions.part(task, attempt),
                    _ => self.sessions.drop_hold(task, attempt),
                }
            }
        }
        match change {
            Change::None => return false,
            Change::Moved => {}
            Change::Again { not_before, durable } => {
                let Life { tries, failures, losses, .. } = life;
                if not_before.0 == 0 {
                    ledger.back_in_line(task.index);
                    line.enter(task.job, &ledger.rank);
                } else {
                    line.wait(task, now.mono.plus(not_before.since(now.wall)));
                }
                if durable {
                    self.effects.again.push(Again { task, tries, failures, losses, not_before });
                }
            }
            Change::Ended(how) => {
                self.open -= 1;
                line.open -= 1;
                line.forget_wait(task);
                line.too_big.forget(task);
                if let (Event::Ended(by, _), Some(other)) = (event, before)
                    && by != other
                {
                    // An older attempt did it after all; the newer one works in vain.
                    self.effects.stop.push((ledger.queue.clone(), Pick { task, attempt: other }));
                }
                let attempt = match event {
                    Event::Ended(attempt, _) => Some(attempt),
                    _ => before,
                };
                let outcome = outcome.or_else(|| {
                    let why = match (how, life.losses) {
                        (Final::Dead | Final::Lost, 1) => "its worker vanished".to_owned(),
                        (Final::Dead | Final::Lost, n) => format!("{n} workers vanished under it"),
                        _ => return None,
                    };
                    Some(Outcome::new(Verdict::Lost, now.wall).because(why))
                });
                self.effects.ended.push(Ended {
                    task,
                    how,
                    attempt,
                    failures: life.failures,
                    losses: life.losses,
                    worker: worker.cloned(),
                    outcome,
                    at: now.wall,
                });
            }
        }
        true
    }

    fn close_if_over(&mut self, job: JobKey) {
        if self.jobs.get(&job).is_some_and(Ledger::is_over)
            && let Some(ledger) = self.jobs.remove(&job)
            && let Some(line) = self.lines.get_mut(&ledger.queue)
        {
            line.leave(job);
            line.too_big.forget_job(job);
            self.effects.closed.push(job);
        }
    }
}

/// What a task took, when it is not out any more.
fn spent(event: Event, outcome: Option<&Outcome>) -> Spent {
    match (event, outcome) {
        (Event::Ended(_, Verdict::Returned), _) => Spent::Nothing,
        (Event::Ended(..), Some(outcome)) => Spent::Time(outcome.usage.wall()),
        _ => Spent::Unknown,
    }
}
