//! The desk: which task goes next, and what every report means. A pure state machine; time comes in as an argument,
//! what must be written or said comes out as [`Effects`].
//!
//! - [`ledger`]: one job, its tasks and where they stand.
//! - [`line`]: one queue: its jobs in order, its retries by date, how much is out.
//! - [`sessions`]: which worker process holds what, and until when its lease runs.
//! - [`window`]: how many tasks may be out at once.

mod depths;
pub mod ledger;
pub mod line;
pub mod sessions;
pub mod window;

#[cfg(test)]
mod simulation;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use mutirao_core::envelope::{Beat, Done, ParcelId, Reports, Started};
use mutirao_core::id::{Attempt, JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::life::{Change, Event, Final, Life, Phase};
use mutirao_core::outcome::{Outcome, Verdict};
use mutirao_core::task::Needs;
use mutirao_core::{Dice, Mono, Timestamp};

use ledger::Ledger;
use line::Line;
use sessions::{Session, Sessions};

/// The two clocks, read once for each thing that happens.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub wall: Timestamp,
    pub mono: Mono,
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
    /// Tasks that workers must stop.
    pub stop: Vec<(QueueName, TaskKey)>,
    /// Sessions that came and went, to be remembered over a restart.
    pub sessions: Vec<SessionChange>,
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

/// A parcel on its way: published, and no session has said yet that it has it.
struct Posted {
    queue: QueueName,
    picks: Vec<Pick>,
    since: Mono,
    /// When a later parcel of the queue was taken. Queues are first in, first out: this one should have been before.
    passed: Option<Mono>,
}

/// Tasks of an open job, as the desk has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnderWay {
    pub open: u64,
    pub dispatched: u64,
    pub running: u64,
}

/// Where a task that has no final row stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    pub life: Life,
    pub worker: Option<WorkerId>,
    pub started_at: Option<Timestamp>,
}

pub struct Desk {
    generation: u64,
    lease: Duration,
    jobs: HashMap<JobKey, Ledger>,
    lines: BTreeMap<QueueName, Line>,
    sessions: Sessions,
    posted: BTreeMap<ParcelId, Posted>,
    parcels: u64,
    dice: Dice,
    effects: Effects,
    /// Tasks that have not ended, over all jobs.
    open: u64,
}

impl Desk {
    pub fn new(generation: u64, lease: Duration, seed: u64) -> Self {
        Self {
            generation,
            lease,
            jobs: HashMap::new(),
            lines: BTreeMap::new(),
            sessions: Sessions::default(),
            posted: BTreeMap::new(),
            parcels: 0,
            dice: Dice::seeded(seed),
            effects: Effects::default(),
            open: 0,
        }
    }

    /// What has to be done since this was last asked.
    pub fn effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Settled work that waits to be written.
    pub fn unsettled(&self) -> usize {
        self.effects.ended.len() + self.effects.again.len()
    }

    /// Takes a job in: a new one, or an unfinished one after a restart.
    pub fn admit(&mut self, job: JobKey, ledger: Ledger) {
        if ledger.is_over() || self.jobs.contains_key(&job) {
            return;
        }
        let line = self.lines.entry(ledger.queue.clone()).or_default();
        for (index, not_before) in ledger.waiting_until() {
            line.wait(TaskKey { job, index }, not_before);
        }
        line.enter(job);
        self.open += ledger.open();
        self.jobs.insert(job, ledger);
    }

    /// After a restart: sessions that were alive when we went. Until each has spoken or its lease has run out, its queue
    /// hands out nothing, so that what they still run is not run twice.
    pub fn expect(&mut self, session: SessionId, worker: WorkerId, queue: QueueName, now: Now) {
        self.sessions.expect(session, worker, queue, now.mono.plus(self.lease));
    }

    /// Ends every task of a job that has not ended. The store has written it already.
    pub fn cancel_job(&mut self, job: JobKey) {
        let Some(ledger) = self.jobs.remove(&job) else { return };
        self.open -= ledger.open();
        if let Some(line) = self.lines.get_mut(&ledger.queue) {
            line.leave(job);
            line.forget_waits(job);
        }
        for (index, life) in ledger.out() {
            let Some(attempt) = life.attempt() else { continue };
            self.sessions.part(TaskKey { job, index }, attempt);
            if let Some(line) = self.lines.get_mut(&ledger.queue) {
                line.out = line.out.saturating_sub(1);
            }
        }
    }

    /// Ends one task. False when there is nothing to end.
    pub fn cancel_task(&mut self, task: TaskKey, now: Now) -> bool {
        let stop_worker = self.jobs.get(&task.job).and_then(|l| l.attempt_of(task.index)).is_some();
        if !self.happen(task, Event::Cancelled, None, None, now) {
            return false;
        }
        if stop_worker && let Some(queue) = self.jobs.get(&task.job).map(|l| l.queue.clone()) {
            self.effects.stop.push((queue, task));
        }
        self.close_if_over(task.job);
        true
    }

    /// Picks what goes out now, in parcels.
    pub fn hand_out(&mut self, now: Now) -> Vec<Handed> {
        let mut handed = Vec::new();
        let queues: Vec<QueueName> = self.lines.keys().cloned().collect();
        for queue in queues {
            let Some(line) = self.lines.get_mut(&queue) else { continue };
            for task in line.due(now.wall) {
                if let Some(ledger) = self.jobs.get_mut(&task.job) {
                    ledger.back_in_line(task.index);
                    line.enter(task.job);
                }
            }
            let Some(needs) = line.first().and_then(|job| self.jobs.get(&job)).map(|ledger| ledger.needs) else {
                continue;
            };
            let seats = self.sessions.seats(&queue, needs);
            if seats.sessions == 0 || seats.awaited {
                continue;
            }
            let room = line.window.room(seats, line.out, now.mono);
            let size = window::parcel_size(line.out + room, seats.sessions);
            let picks = Self::pick(line, &mut self.jobs, room, self.generation, now, &self.dice);
            line.out += picks.len();
            let most = |pick: &Pick| self.jobs.get(&pick.task.job).map_or(size, |ledger| ledger.parcel_max.min(size));
            let mut rest = &picks[..];
            while let Some(first) = rest.first() {
                let (chunk, later) = rest.split_at(most(first).min(rest.len()));
                rest = later;
                self.parcels += 1;
                let id = ParcelId { generation: self.generation, n: self.parcels };
                let (queue, picks) = (queue.clone(), chunk.to_vec());
                let posted = Posted { queue: queue.clone(), picks: picks.clone(), since: now.mono, passed: None };
                self.posted.insert(id, posted);
                handed.push(Handed { id, queue, picks });
            }
        }
        handed
    }

    fn pick(
        line: &mut Line,
        jobs: &mut HashMap<JobKey, Ledger>,
        room: usize,
        generation: u64,
        now: Now,
        dice: &Dice,
    ) -> Vec<Pick> {
        let mut picks = Vec::with_capacity(room.min(4096));
        while picks.len() < room {
            let Some(job) = line.first() else { break };
            let Some(ledger) = jobs.get_mut(&job) else {
                line.leave(job);
                continue;
            };
            match ledger.hand_out_next(generation, now.wall, dice) {
                Some((index, attempt)) => picks.push(Pick { task: TaskKey { job, index }, attempt }),
                None => line.leave(job),
            }
        }
        picks
    }

    /// A parcel could not be published, or was lost on its way: its tasks go back in line.
    pub fn unpost(&mut self, parcel: ParcelId, now: Now) {
        let Some(posted) = self.posted.remove(&parcel) else { return };
        for pick in posted.picks {
            self.finish(pick.task, pick.attempt, Verdict::Returned, None, None, now);
        }
    }

    /// A parcel was too long for the broker: its tasks go out again in smaller ones, and one that is alone never can.
    pub fn split(&mut self, parcel: ParcelId, now: Now) {
        let Some(posted) = self.posted.get(&parcel) else { return };
        let fewer = posted.picks.len() / 2;
        if fewer == 0 {
            return self.refuse(parcel, "it is too large to be sent to a worker", now);
        }
        let jobs: Vec<JobKey> = posted.picks.iter().map(|pick| pick.task.job).collect();
        for job in jobs {
            if let Some(ledger) = self.jobs.get_mut(&job) {
                ledger.parcel_max = ledger.parcel_max.min(fewer);
            }
        }
        self.unpost(parcel, now);
    }

    /// Takes back the parcels that were passed by later ones and not taken for longer than `patience`, and says how
    /// many. They were lost on their way, or with the worker that had just received them.
    pub fn take_back_lost(&mut self, patience: Duration, now: Now) -> usize {
        let lost = |posted: &Posted| posted.passed.is_some_and(|passed| now.mono.since(passed) > patience);
        let lost: Vec<ParcelId> = self.posted.iter().filter(|(_, p)| lost(p)).map(|(id, _)| *id).collect();
        for parcel in &lost {
            self.unpost(*parcel, now);
        }
        lost.len()
    }

    /// Queues in which a parcel has not been taken for longer than `patience`, though none has passed it.
    pub fn overdue(&self, patience: Duration, now: Now) -> BTreeSet<QueueName> {
        let late = |posted: &&Posted| now.mono.since(posted.since) > patience;
        self.posted.values().filter(late).map(|posted| posted.queue.clone()).collect()
    }

    /// Nothing lies in this queue of the broker: what is overdue there is lost.
    pub fn found_empty(&mut self, queue: &QueueName, patience: Duration, now: Now) -> usize {
        let lost = |posted: &Posted| posted.queue == *queue && now.mono.since(posted.since) > patience;
        let lost: Vec<ParcelId> = self.posted.iter().filter(|(_, p)| lost(p)).map(|(id, _)| *id).collect();
        for parcel in &lost {
            self.unpost(*parcel, now);
        }
        lost.len()
    }

    /// What these tasks need is gone from the store: no worker can ever run them.
    pub fn refuse(&mut self, parcel: ParcelId, reason: &str, now: Now) {
        let Some(posted) = self.posted.remove(&parcel) else { return };
        for pick in posted.picks {
            let outcome = Outcome::new(Verdict::Refused, now.wall).because(reason);
            self.finish(pick.task, pick.attempt, Verdict::Refused, None, Some(outcome), now);
        }
    }

    /// Takes in what a worker says.
    pub fn report(&mut self, reports: Reports, now: Now) {
        // A session belongs to the worker that opened it; whoever else uses its name is not heard.
        if self.sessions.worker_of(&reports.session).is_some_and(|worker| *worker != reports.worker) {
            return;
        }
        for parcel in reports.taken {
            self.taken(&reports.session, &reports.worker, parcel, now);
        }
        for Started { task, attempt, at } in reports.started {
            self.started(&reports.session, task, attempt, at, now);
        }
        for Done { task, attempt, outcome, .. } in reports.done {
            if !self.may_speak_of(&reports.session, task, attempt) {
                continue;
            }
            if outcome.verdict == Verdict::Cancelled && !self.is_open(task) {
                self.late(task, attempt, &reports.worker, outcome, now);
                continue;
            }
            let verdict = outcome.verdict;
            self.finish(task, attempt, verdict, Some(&reports.worker), Some(outcome), now);
        }
        if let Some(beat) = reports.beat {
            self.beat(reports.session, reports.worker, beat, now);
        }
    }

    fn is_open(&self, task: TaskKey) -> bool {
        self.jobs.get(&task.job).is_some_and(|ledger| !ledger.has_ended(task.index))
    }

    fn late(&mut self, task: TaskKey, attempt: Attempt, worker: &WorkerId, outcome: Outcome, now: Now) {
        self.effects.late.push(Ended {
            task,
            how: Final::Cancelled,
            attempt: Some(attempt),
            failures: 0,
            losses: 0,
            worker: Some(worker.clone()),
            outcome: Some(outcome),
            at: now.wall,
        });
    }

    fn taken(&mut self, session: &SessionId, worker: &WorkerId, parcel: ParcelId, now: Now) {
        let Some(posted) = self.posted.remove(&parcel) else { return };
        for (id, other) in &mut self.posted {
            if other.queue == posted.queue && *id < parcel {
                other.passed.get_or_insert(now.mono);
            }
        }
        if !self.sessions.knows(session) {
            self.sessions.came(session, worker, &posted.queue, now.mono.plus(self.lease));
            self.effects.sessions.push(SessionChange::Came(session.clone(), worker.clone(), posted.queue.clone()));
        }
        for pick in posted.picks {
            let current = self.jobs.get(&pick.task.job).and_then(|l| l.attempt_of(pick.task.index));
            if current == Some(pick.attempt) {
                self.sessions.hold(session, pick.task, pick.attempt);
            } else {
                // Cancelled, or ended by an older attempt, while the parcel was on its way.
                self.effects.stop.push((posted.queue.clone(), pick.task));
            }
        }
    }

    fn started(&mut self, session: &SessionId, task: TaskKey, attempt: Attempt, at: Timestamp, now: Now) {
        // A task runs only under a session whose lease can run out: one that nobody answers for would run for ever.
        self.adopt(session, task, attempt, now);
        if self.sessions.holder(task, attempt) != Some(session) {
            return;
        }
        self.happen(task, Event::Started(attempt), None, None, now);
        if let Some(ledger) = self.jobs.get_mut(&task.job) {
            ledger.began(task.index, at);
        }
    }

    /// Whether a session's word about an attempt counts: it holds it, or held it until its lease ran out, or was alive
    /// under an earlier owner, which handed it out. Whoever else speaks of it is mistaken or lying.
    fn may_speak_of(&self, session: &SessionId, task: TaskKey, attempt: Attempt) -> bool {
        match self.sessions.holder(task, attempt) {
            Some(holder) => holder == session,
            None => self.sessions.held_once(session, task, attempt) || self.may_inherit(session, task, attempt),
        }
    }

    fn may_inherit(&self, session: &SessionId, task: TaskKey, attempt: Attempt) -> bool {
        let queue = self.jobs.get(&task.job).map(|ledger| &ledger.queue);
        let recalled = |known: &Session| known.recalled && Some(&known.queue) == queue;
        attempt.generation < self.generation && self.sessions.get(session).is_some_and(recalled)
    }

    fn beat(&mut self, session: SessionId, worker: WorkerId, beat: Beat, now: Now) {
        if !self.sessions.knows(&session) {
            if beat.leaving {
                return;
            }
            self.sessions.came(&session, &worker, &beat.queue, now.mono.plus(self.lease));
            self.effects.sessions.push(SessionChange::Came(session.clone(), worker, beat.queue.clone()));
        }
        for held in &beat.held {
            self.adopt(&session, held.task, held.attempt, now);
        }
        let listed: std::collections::HashSet<TaskKey> = beat.held.iter().map(|h| h.task).collect();
        for (task, attempt) in self.sessions.beaten(&session, &beat, now.mono.plus(self.lease)) {
            if !listed.contains(&task) {
                self.finish(task, attempt, Verdict::Lost, None, None, now);
            }
        }
        if beat.leaving {
            self.gone(&session, now);
        }
    }

    /// A session holds an attempt that we did not know was out: our predecessor handed it out.
    fn adopt(&mut self, session: &SessionId, task: TaskKey, attempt: Attempt, now: Now) {
        let Some(known) = self.sessions.get(session) else { return };
        if self.sessions.holder(task, attempt).is_some() {
            return;
        }
        let queue = known.queue.clone();
        let may = self.may_inherit(session, task, attempt);
        let Some(ledger) = self.jobs.get_mut(&task.job).filter(|ledger| ledger.queue == queue) else {
            self.effects.stop.push((queue, task));
            return;
        };
        match ledger.attempt_of(task.index) {
            Some(_) => {}
            None if ledger.has_ended(task.index) => self.effects.stop.push((queue, task)),
            None if !may => {}
            None => {
                ledger.adopt(task.index);
                if self.happen(task, Event::Started(attempt), None, None, now) {
                    self.sessions.hold(session, task, attempt);
                    if let Some(line) = self.lines.get_mut(&queue) {
                        line.out += 1;
                        line.forget_wait(task);
                    }
                }
            }
        }
    }

    fn gone(&mut self, session: &SessionId, now: Now) {
        for (task, attempt) in self.sessions.remove(session) {
            self.finish(task, attempt, Verdict::Lost, None, None, now);
        }
        self.effects.sessions.push(SessionChange::Went(session.clone()));
    }

    /// A worker process is known to be dead, and its children with it: no need to wait for its lease.
    pub fn bury(&mut self, host: &str, pid: u32, now: Now) {
        for session in self.sessions.of_process(host, pid) {
            self.gone(&session, now);
        }
    }

    /// Time during which nobody could be heard, because we were frozen or could not write, counts against no lease.
    pub fn forgive(&mut self, by: Duration) {
        self.sessions.forgive(by);
    }

    /// A session is in the store: a next owner will wait for it, so it may be given work.
    pub fn written(&mut self, session: &SessionId) {
        self.sessions.written(session);
    }

    /// Lets the leases run out.
    pub fn tick(&mut self, now: Now) {
        for session in self.sessions.expired(now.mono) {
            self.gone(&session, now);
        }
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
        self.sessions.drop_hold(task, attempt);
        if let Some(line) = self.jobs.get(&task.job).and_then(|l| self.lines.get_mut(&l.queue)) {
            line.window.completed(verdict, now.mono);
        }
        self.happen(task, Event::Ended(attempt, verdict), worker, outcome, now);
        self.close_if_over(task.job);
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
            line.out = line.out.saturating_sub(1);
            match event {
                // Whoever runs it will say how it stopped.
                Event::Cancelled => self.sessions.part(task, attempt),
                _ => self.sessions.drop_hold(task, attempt),
            }
        }
        match change {
            Change::None => return false,
            Change::Moved => {}
            Change::Again { not_before, durable } => {
                let Life { tries, failures, losses, .. } = life;
                if not_before.0 == 0 {
                    ledger.back_in_line(task.index);
                    line.enter(task.job);
                } else {
                    line.wait(task, not_before);
                }
                if durable {
                    self.effects.again.push(Again { task, tries, failures, losses, not_before });
                }
            }
            Change::Ended(how) => {
                self.open -= 1;
                line.forget_wait(task);
                if let (Event::Ended(by, _), Some(other)) = (event, before)
                    && by != other
                {
                    // An older attempt did it after all; the newer one works in vain.
                    self.effects.stop.push((ledger.queue.clone(), task));
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
        }
    }

    // ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// When something will happen by itself: the next retry that is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.lines.values().filter_map(Line::next_due).min()
    }

    pub fn standing(&self, task: TaskKey) -> Option<Standing> {
        let ledger = self.jobs.get(&task.job)?;
        let life = ledger.life_of(task.index)?;
        let worker =
            life.attempt().and_then(|a| self.sessions.holder(task, a)).and_then(|s| self.sessions.worker_of(s));
        Some(Standing { life, worker: worker.cloned(), started_at: ledger.began_at(task.index) })
    }

    /// How an open job's tasks stand, if the desk knows it.
    pub fn under_way(&self, job: JobKey) -> Option<UnderWay> {
        let ledger = self.jobs.get(&job)?;
        let mut counts = UnderWay { open: ledger.open(), ..UnderWay::default() };
        for (_, life) in ledger.out() {
            match life.phase {
                Phase::Running(_) => counts.running += 1,
                _ => counts.dispatched += 1,
            }
        }
        Some(counts)
    }

    /// Whether a worker may write the log of an attempt: it holds it, or held it until it was cancelled or given up.
    pub fn holds(&self, worker: &WorkerId, task: TaskKey, attempt: Attempt) -> bool {
        self.sessions.holds_or_held(worker, task, attempt)
    }

    pub fn sessions(&self) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.sessions.iter()
    }

    /// Tasks that have not ended, over all jobs.
    pub fn open_tasks(&self) -> u64 {
        self.open
    }

    pub fn knows_queue(&self, queue: &QueueName) -> bool {
        *queue == QueueName::default() || self.lines.contains_key(queue) || self.sessions.largest(queue).is_some()
    }

    /// The most that one worker of a queue can give a task; none when it has no workers now.
    pub fn largest_worker(&self, queue: &QueueName) -> Option<Needs> {
        self.sessions.largest(queue)
    }

    pub fn lease(&self) -> Duration {
        self.lease
    }

    pub fn is_running(&self, task: TaskKey) -> bool {
        let life = self.jobs.get(&task.job).and_then(|l| l.life_of(task.index));
        life.is_some_and(|life| matches!(life.phase, Phase::Running(_)))
    }

    pub fn queue_of(&self, job: JobKey) -> Option<&QueueName> {
        self.jobs.get(&job).map(|l| &l.queue)
    }
}
