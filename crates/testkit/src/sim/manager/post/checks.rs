//! What an owner must keep to, checked from outside the foreman: its window, its cancelled jobs, those it must wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use mutirao_core::Mono;
use mutirao_core::envelope::{Control, Reports};
use mutirao_core::id::{JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::outcome::Verdict;
use mutirao_jobs::desk::sessions::Session;
use mutirao_jobs::desk::{Again, Desk, Handed, Pick};
use mutirao_jobs::foreman::Ask;
use mutirao_jobs::question::Question;
use mutirao_jobs::store::queues::QueueRow;
use mutirao_shards::ShardId;

use super::super::super::flaw::Flaw;
use super::super::super::oracle::HandOut;
use super::super::super::window::WindowCheck;
use super::super::super::wire::Definition;
use super::Hands;

pub struct Checks {
    shard: ShardId,
    generation: u64,
    window: WindowCheck,
    loaded_at: Mono,
    /// Sessions that have beaten since.
    heard: BTreeSet<SessionId>,
    /// Jobs it knows to be cancelled.
    cancelled: BTreeSet<JobKey>,
    /// The latest that it was told of each queue.
    queues: BTreeMap<QueueName, QueueRow>,
    /// Workers that are to rest, as it was told.
    resting: BTreeSet<WorkerId>,
    /// Tasks whose failure is being heard.
    failed: BTreeSet<TaskKey>,
    /// Tasks that failed: before when, and as which try, none of them goes out again.
    waits: BTreeMap<TaskKey, (Mono, u32)>,
}

impl Checks {
    pub fn new(shard: ShardId, generation: u64, loaded_at: Mono) -> Self {
        let (heard, cancelled) = (BTreeSet::new(), BTreeSet::new());
        let (queues, resting, waits) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let (window, failed) = (WindowCheck::default(), BTreeSet::new());
        Self { shard, generation, window, loaded_at, heard, cancelled, queues, resting, failed, waits }
    }

    /// Something is asked of it. Whether it hears that.
    pub fn asked<A>(&mut self, ask: &Ask<A>, h: &Hands<'_>) -> bool {
        match ask {
            Ask::Question(Question::Define { queue }, _) => self.defined(std::slice::from_ref(&**queue)),
            Ask::Queues { defined, .. } => self.defined(defined),
            Ask::Question(Question::Rest { workers }, _) => {
                self.resting.clone_from(workers);
                return !h.ground.has(Flaw::OverlooksRest);
            }
            _ => return true,
        }
        !h.ground.has(Flaw::OverlooksDefinitions)
    }

    /// These are to be tried again. After a failure each waits for at least half of what its job says.
    pub fn decided(&mut self, again: &[Again], known: &BTreeMap<JobKey, Rc<Definition>>, now: Mono) {
        for Again { task, tries, failures, not_before, .. } in again {
            let retry = known.get(&task.job).map(|definition| definition.retry);
            match retry.filter(|_| *failures > 0 && self.failed.remove(task)) {
                Some(retry) => drop(self.waits.insert(*task, (now.plus(retry.wait(*failures) / 2), *tries))),
                None if not_before.0 == 0 => drop(self.waits.remove(task)),
                None => {}
            }
        }
        self.failed.clear();
    }

    /// It is told what these queues are.
    pub fn defined(&mut self, rows: &[QueueRow]) {
        for row in rows {
            let known = self.queues.entry(row.spec.name.clone()).or_insert_with(|| row.clone());
            if row.revision > known.revision {
                *known = row.clone();
            }
        }
    }

    pub fn heard(&mut self, reports: &Reports, h: &mut Hands<'_>) {
        self.window.completed(h.now.mono, reports.done.len() as u64);
        let bad =
            reports.done.iter().filter(|done| matches!(done.outcome.verdict, Verdict::Failed | Verdict::TimedOut));
        self.failed = bad.map(|done| done.task).collect();
        // Whoever has an attempt of a former owner goes on with it.
        let held = reports.beat.iter().flat_map(|beat| &beat.held).map(|held| (held.task, held.attempt));
        for (task, attempt) in held.chain(reports.started.iter().map(|started| (started.task, started.attempt))) {
            if attempt.generation < self.generation {
                self.waits.remove(&task);
            }
        }
        if let Some(beat) = &reports.beat {
            self.heard.insert(reports.session.clone());
            if beat.leaving {
                h.ground.oracle.heard_goodbye(&reports.session);
            }
        }
    }

    pub fn told(&mut self, control: &Control, h: &mut Hands<'_>) {
        for job in &control.cancel_jobs {
            h.ground.note(|| format!("{}: knows that {job:?} is cancelled", h.me));
            self.cancelled.insert(*job);
            h.ground.oracle.stops(h.me, *job);
        }
        h.ground.oracle.tally.rested += control.rest.len() as u64;
    }

    pub fn handed_out(
        &mut self,
        parcels: &[Handed],
        desk: &Desk,
        known: &BTreeMap<JobKey, Rc<Definition>>,
        h: &mut Hands<'_>,
    ) {
        let hand_out = HandOut {
            member: h.me,
            shard: self.shard,
            generation: self.generation,
            parcels,
            heard: &self.heard,
            since_load: h.now.mono.since(self.loaded_at),
        };
        h.ground.oracle.handed_out(&hand_out, h.ground.now_us);
        let queues: BTreeSet<&QueueName> = parcels.iter().map(|handed| &handed.queue).collect();
        for queue in queues {
            self.check_window(queue, desk, known, h);
            self.check_definition(queue, desk, h);
            self.check_rest(queue, desk, h);
        }
        for handed in parcels {
            let tasks: Vec<_> = handed.picks.iter().map(|pick| (pick.task, pick.attempt.n)).collect();
            h.ground.note(|| format!("{}: hands out {:?} to {}: {tasks:?}", h.me, handed.id, handed.queue));
            for pick in &handed.picks {
                self.check_wait(pick, h);
                if self.cancelled.contains(&pick.task.job) {
                    h.ground.oracle.fail(|| format!("{} is handed out of a cancelled job", pick.task));
                }
            }
        }
    }

    fn check_wait(&mut self, pick: &Pick, h: &mut Hands<'_>) {
        let Some((due, tries)) = self.waits.remove(&pick.task) else { return };
        h.ground.oracle.tally.retried += 1;
        if h.now.mono < due && pick.attempt.n == tries + 1 {
            let early = due.since(h.now.mono);
            h.ground
                .oracle
                .fail(|| format!("{} goes out {early:?} before its wait after a failure is over", pick.task));
        }
    }

    /// Something of a queue went out: somebody is there who is not to rest.
    fn check_rest(&self, queue: &QueueName, desk: &Desk, h: &mut Hands<'_>) {
        let mut sessions = desk.sessions().map(|(_, session)| session).filter(|session| session.queue == *queue);
        if !sessions.any(|session| !self.resting.contains(&session.worker)) {
            h.ground.oracle.fail(|| format!("{} hands out to {queue}, where everybody is to rest", h.me));
        }
    }

    /// Something of a queue went out: it was not paused, and no more is out than it lets run.
    fn check_definition(&self, queue: &QueueName, desk: &Desk, h: &mut Hands<'_>) {
        let Some(QueueRow { spec, revision, .. }) = self.queues.get(queue) else { return };
        if spec.paused {
            h.ground.oracle.fail(|| format!("{} hands out of {queue}, paused in revision {revision}", h.me));
        }
        let (occupied, running) = (desk.occupied(queue), spec.limits.running);
        if running.is_some_and(|running| occupied > running as usize) {
            h.ground.oracle.fail(|| format!("{occupied} tasks of {queue} are out, {running:?} may run"));
        }
    }

    /// No more is out than the window allows, and the line counts it right.
    fn check_window(
        &mut self,
        queue: &QueueName,
        desk: &Desk,
        known: &BTreeMap<JobKey, Rc<Definition>>,
        h: &mut Hands<'_>,
    ) {
        let seated = desk.sessions().map(|(_, session)| session);
        let seated = seated.filter(|s| s.queue == *queue && s.known_to_store && !s.draining);
        let (sessions, slots) =
            seated.fold((0, 0), |(n, slots), s| (n + 1, slots + s.capacity.cpus.milli as usize / 1_000));
        let (most, line) = (self.window.most(slots, sessions, h.now.mono), desk.out(queue));
        let of_queue = known.iter().filter(|(_, definition)| definition.queue == *queue);
        let under_way = of_queue.filter_map(|(job, _)| desk.under_way(*job));
        let out: u64 = under_way.map(|under_way| under_way.dispatched + under_way.running).sum();
        if out as usize != line {
            h.ground.oracle.fail(|| format!("{out} tasks of {queue} are out, and its line counts {line}"));
        }
        // What a session has beyond its share fills nobody else's place. The window reckons the share more closely than this
        // does, and rounds it up for each session: whatever the one leaves out of account, it is no more than one a session.
        let share = (most - slots.min(most)).div_ceil(sessions.max(1));
        let due = |s: &Session, share| match s.known_to_store && !s.draining && !s.resting {
            true => s.capacity.cpus.milli as usize / 1_000 + share,
            false => 0,
        };
        let of_queue = || desk.sessions().map(|(_, session)| session).filter(|session| session.queue == *queue);
        let over = |session: &Session, share| session.held.len().saturating_sub(due(session, share));
        let hoarded: usize = of_queue().map(|session| over(session, share)).sum();
        let rounded = if of_queue().any(|session| over(session, 0) > 0) { sessions } else { 0 };
        let occupied = desk.occupied(queue).saturating_sub(hoarded + rounded);
        if occupied > most {
            h.ground.oracle.fail(|| {
                format!("{occupied} tasks of {queue} are out, {most} may be with {slots} slots of {sessions} sessions")
            });
        }
    }
}
