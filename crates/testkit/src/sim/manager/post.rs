//! One owned shard at work in a simulated manager: the real desk, and the shell around it (foreman, settler, dispatch,
//! reports) as one script that keeps their order: what was decided is written, then acknowledged; while it cannot be
//! written nothing is handed out; who could not be heard is not given up.

mod outbox;
mod settling;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::envelope::{Control, Reports};
use mutirao_core::id::{JobKey, QueueName, SessionId, TaskKey};
use mutirao_jobs::desk::ledger::Ledger;
use mutirao_jobs::desk::{Desk, Effects, Handed, Now};
use mutirao_jobs::recall::Round;
use mutirao_jobs::store::OpenJob;
use mutirao_shards::{MemberId, ShardId, Tenure};

use super::super::flaw::Flaw;
use super::super::ground::Ground;
use super::super::link::Link;
use super::super::oracle::HandOut;
use super::super::weather::{LEASE, PATIENCE};
use super::super::window::WindowCheck;
use super::super::wire::{Answer, Ask, Definition, Loaded, Name, NoAnswer, Pid, Question, ToBroker};
use super::super::worker::worker_of;
use super::{Calls, Purpose};
use outbox::{Outbox, Outgoing};
use settling::Settling;

/// As in the real foreman.
const TICK: Duration = Duration::from_millis(200);
const CHECK_OVERDUE: Duration = Duration::from_secs(5);
const DEAF: Duration = Duration::from_secs(1);
const CHECK_DOUBTED: Duration = Duration::from_millis(600);
const COMPARE: Duration = Duration::from_secs(5);
/// Messages in flight between broker and owner.
const CREDIT: usize = 64;
const LOAD_PAUSE: Duration = Duration::from_millis(500);

/// What a post may use of its manager.
pub struct Hands<'a> {
    pub me: &'a MemberId,
    pub now: Now,
    pub tenure: Option<Tenure>,
    pub ground: &'a mut Ground,
    pub link: &'a mut Link,
    pub calls: &'a mut Calls,
}

impl Hands<'_> {
    fn ask_store(&mut self, purpose: Purpose, question: Question) -> u64 {
        self.calls.ask(purpose, question, self.now.mono, self.ground)
    }
}

/// What is to become of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Stay,
    /// Everything is settled: release the shard.
    Release,
    /// It is another's: drop everything.
    Drop,
}

pub struct Post {
    pub shard: ShardId,
    pub generation: u64,
    leaving: bool,
    load_at: Mono,
    work: Option<Work>,
}

struct Work {
    desk: Desk,
    /// What its jobs' tasks do.
    known: BTreeMap<JobKey, Rc<Definition>>,
    /// Jobs it knows to be cancelled.
    cancelled: BTreeSet<JobKey>,
    /// Jobs that are over: whoever speaks of one as new is late.
    graves: BTreeSet<JobKey>,
    settling: Settling,
    outbox: Outbox,
    window: WindowCheck,
    loaded_at: Mono,
    /// Sessions that have beaten since.
    heard: BTreeSet<SessionId>,
    last_tick: Mono,
    last_check: Mono,
    next_compare: Mono,
    /// A comparison with the store under way, and what it waits for.
    comparing: Option<(u64, Round)>,
}

impl Post {
    pub fn open(shard: ShardId, generation: u64, h: &mut Hands<'_>) -> Self {
        h.ground.note(|| format!("{}: opens shard {shard}, generation {generation}", h.me));
        let mut post = Self { shard, generation, leaving: false, load_at: Mono::default(), work: None };
        post.load(h);
        post
    }

    fn load(&mut self, h: &mut Hands<'_>) {
        // Until an answer says otherwise.
        self.load_at = h.now.mono.plus(LEASE);
        h.ask_store(Purpose::Load(self.shard, self.generation), Question::Load(self.shard));
    }

    pub fn loaded(&mut self, answer: Result<Answer, NoAnswer>, h: &mut Hands<'_>) {
        let Ok(Answer::Loaded(Loaded { jobs, sessions })) = answer else {
            self.load_at = h.now.mono.plus(LOAD_PAUSE);
            return;
        };
        if self.work.is_some() {
            return;
        }
        let now = h.now.mono;
        let mut work = Work {
            desk: Desk::new(self.generation, LEASE, h.ground.dice.u64()),
            known: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            graves: BTreeSet::new(),
            settling: Settling::new(self.shard, self.generation),
            outbox: Outbox::new(self.shard),
            window: WindowCheck::default(),
            loaded_at: now,
            heard: BTreeSet::new(),
            last_tick: now,
            last_check: now,
            next_compare: now.plus(COMPARE),
            comparing: None,
        };
        jobs.into_iter().for_each(|(job, definition)| work.admit(job, definition));
        for (session, worker, queue) in sessions {
            work.desk.expect(session, worker, queue, h.now);
        }
        work.connect(self.shard, h);
        self.work = Some(work);
    }

    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Nothing of what it knows is unfinished, and nobody is believed to hold anything.
    pub fn is_quiet(&self) -> bool {
        let idle = |desk: &Desk| desk.open_tasks() == 0 && desk.sessions().all(|(_, session)| session.held.is_empty());
        self.work.as_ref().is_some_and(|work| idle(&work.desk) && work.settling.is_done())
    }

    /// Everything that can be done now.
    pub fn turn(&mut self, h: &mut Hands<'_>) -> Turn {
        let Some(work) = &mut self.work else {
            return if self.leaving { Turn::Release } else { Turn::Stay };
        };
        work.absorb();
        work.settling.go_on(h);
        if self.leaving && work.settling.is_done() {
            work.settling.disconnect(h);
            return Turn::Release;
        }
        let holds = h.tenure.is_some_and(|tenure| tenure.generation == self.generation && tenure.holds(h.now.mono));
        if !self.leaving && !work.settling.is_in_trouble() && (holds || h.ground.has(Flaw::TrustsItsTenure)) {
            work.hand_out(self.shard, self.generation, h);
        }
        work.outbox.go_on(&mut work.desk, &work.known, h);
        Turn::Stay
    }

    pub fn tick(&mut self, h: &mut Hands<'_>) {
        match &mut self.work {
            Some(work) => work.tick(self.shard, h),
            None if h.now.mono >= self.load_at => self.load(h),
            None => {}
        }
    }

    /// The shard is another's, or nobody's: what is here is dropped, and unacknowledged reports go back.
    pub fn close(&mut self, h: &mut Hands<'_>) {
        h.ground.note(|| format!("{}: closes shard {}, generation {}", h.me, self.shard, self.generation));
        if let Some(work) = &mut self.work {
            work.settling.disconnect(h);
        }
    }

    pub fn connected(&mut self, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work {
            work.connect(self.shard, h);
        }
    }

    pub fn disconnected(&mut self, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work {
            work.settling.disconnected();
            work.outbox.disconnected(&mut work.desk, h);
        }
    }

    pub fn consumes_as(&self, consumer: u64) -> bool {
        self.work.as_ref().is_some_and(|work| work.settling.consumer() == Some(consumer))
    }

    pub fn hear(&mut self, tag: u64, reports: &Reports, h: &mut Hands<'_>) {
        // What comes after it was asked to leave is for the next owner.
        let Some(work) = self.work.as_mut().filter(|_| !self.leaving) else { return };
        work.window.completed(h.now.mono, reports.done.len() as u64);
        if let Some(beat) = &reports.beat {
            work.heard.insert(reports.session.clone());
            if beat.leaving {
                h.ground.oracle.heard_goodbye(&reports.session);
            }
        }
        work.desk.report(reports.clone(), h.now);
        let ended = work.absorb();
        work.settling.heard(tag, ended, h);
    }

    pub fn confirmed(&mut self, number: u64) {
        if let Some(work) = &mut self.work {
            work.outbox.confirmed(number);
        }
    }

    pub fn counted(&mut self, id: u64, lying: usize, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work
            && let Some(queue) =
                work.outbox.counted(id).filter(|_| lying == 0 && !h.ground.has(Flaw::WaitsForLostParcels))
        {
            work.desk.found_empty(&queue, PATIENCE, h.now);
        }
    }

    pub fn bury(&mut self, pid: Pid, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work {
            work.desk.bury(&worker_of(pid), pid.0, h.now);
        }
    }

    pub fn asked(&mut self, ask: Ask, h: &mut Hands<'_>) {
        let Some(work) = &mut self.work else { return };
        match ask {
            Ask::Admit(job, definition) => {
                let fresh = Ledger::new(
                    definition.queue.clone(),
                    definition.first,
                    definition.total,
                    definition.retry,
                    definition.needs,
                );
                if !work.graves.contains(&job) {
                    work.desk.admit(job, fresh);
                    work.known.insert(job, definition);
                }
            }
            Ask::CancelJob(job) => work.cancel_job(job, h),
            Ask::CancelTask(task) => {
                h.ground.note(|| format!("{}: told to cancel {task}", h.me));
                work.desk.cancel_task(task, h.now);
            }
        }
    }

    pub fn settled(&mut self, call: u64, answer: Result<Answer, NoAnswer>, h: &mut Hands<'_>) -> Turn {
        let Some(work) = &mut self.work else { return Turn::Stay };
        work.settling.answered(call, answer, &mut work.desk, h)
    }

    /// Goes on with a comparison with the store, as the real foreman does.
    pub fn compared(&mut self, call: u64, answer: Result<Answer, NoAnswer>, h: &mut Hands<'_>) {
        let Some(work) = &mut self.work else { return };
        let Some((_, round)) = work.comparing.take_if(|(asked, _)| *asked == call) else { return };
        match answer {
            Ok(Answer::Loaded(Loaded { jobs, .. })) => {
                for (job, definition) in &jobs {
                    h.ground.note(|| format!("{}: finds {:?} in the store", h.me, job.key));
                    work.known.insert(job.key, definition.clone());
                }
                round.take_in(&mut work.desk, jobs.into_iter().map(|(job, _)| job).collect());
            }
            Ok(Answer::Keys(open)) => {
                for job in round.cancelled(&work.desk, &open) {
                    work.cancel_job(job, h);
                }
                let unknown = round.unknown(&work.desk, &open);
                if !unknown.is_empty() {
                    let question = Question::Jobs(self.shard, unknown);
                    let call = h.ask_store(Purpose::Compare(self.shard), question);
                    work.comparing = Some((call, round));
                }
            }
            _ => {}
        }
    }
}

impl Work {
    fn admit(&mut self, job: OpenJob, definition: Rc<Definition>) {
        let ledger = Ledger::new(job.queue, job.first, job.total, job.retry, job.needs).recall(job.traces);
        self.desk.admit(job.key, ledger);
        self.known.insert(job.key, definition);
    }

    fn cancel_job(&mut self, job: JobKey, h: &mut Hands<'_>) {
        if h.ground.has(Flaw::OverlooksCancels) {
            return;
        }
        h.ground.note(|| format!("{}: knows that {job:?} is cancelled", h.me));
        self.desk.cancel_job(job);
        self.cancelled.insert(job);
        self.bury(job);
        if let Some(definition) = self.known.get(&job) {
            let control = Control { cancel_jobs: vec![job], ..Control::default() };
            self.outbox.push(Outgoing::Control(definition.queue.clone(), control));
        }
    }

    fn bury(&mut self, job: JobKey) {
        self.graves.insert(job);
        if let Some((_, round)) = &mut self.comparing {
            round.is_over(job);
        }
    }

    /// Moves what the desk decided to where it is written or said; says which tasks ended.
    fn absorb(&mut self) -> Vec<TaskKey> {
        let Effects { ended, late, again, stop, sessions, closed } = self.desk.effects();
        let tasks = ended.iter().map(|ended| ended.task).collect();
        self.settling.add(ended, late, again, sessions);
        for job in closed {
            self.bury(job);
            self.settling.closed(job);
        }
        self.outbox.stop(stop);
        tasks
    }

    fn connect(&mut self, shard: ShardId, h: &mut Hands<'_>) {
        self.settling.connect(h);
        h.link.send(ToBroker::Subscribe(Name::Asks(shard)), h.ground);
    }

    fn tick(&mut self, shard: ShardId, h: &mut Hands<'_>) {
        let now = h.now;
        let elapsed = now.mono.since(self.last_tick);
        if elapsed < TICK {
            return;
        }
        let stuck = self.settling.is_stuck(now.mono, DEAF);
        if elapsed > DEAF || stuck {
            self.desk.forgive(elapsed);
        }
        self.last_tick = now.mono;
        self.desk.tick(now);
        let check = if self.desk.is_in_doubt() { CHECK_DOUBTED } else { CHECK_OVERDUE };
        // While reports are left lying, what seems lost may lie there.
        if !stuck && now.mono.since(self.last_check) >= check {
            self.last_check = now.mono;
            if !h.ground.has(Flaw::WaitsForLostParcels) {
                self.desk.take_back_lost(PATIENCE, now);
            }
            for queue in self.desk.overdue(PATIENCE, now) {
                self.outbox.push(Outgoing::Look(queue));
            }
        }
        if now.mono >= self.next_compare && !h.ground.has(Flaw::NeverReconciles) {
            self.next_compare = now.mono.plus(COMPARE);
            if self.comparing.is_none() {
                let round = Round::begin(&self.desk, self.settling.unwritten());
                let call = h.ask_store(Purpose::Compare(shard), Question::Keys(shard));
                self.comparing = Some((call, round));
            }
        }
    }

    fn hand_out(&mut self, shard: ShardId, generation: u64, h: &mut Hands<'_>) {
        if !self.outbox.has_room() {
            return;
        }
        let parcels = self.desk.hand_out(h.now);
        if parcels.is_empty() {
            return;
        }
        let hand_out = HandOut {
            member: h.me,
            shard,
            generation,
            parcels: &parcels,
            heard: &self.heard,
            since_load: h.now.mono.since(self.loaded_at),
        };
        h.ground.oracle.handed_out(&hand_out, h.ground.now_us);
        self.check_bounds(&parcels, h);
        for handed in &parcels {
            let tasks: Vec<_> = handed.picks.iter().map(|pick| (pick.task, pick.attempt.n)).collect();
            h.ground.note(|| format!("{}: hands out {:?} to {}: {tasks:?}", h.me, handed.id, handed.queue));
        }
        self.outbox.parcels(parcels);
    }

    /// No more is out than the window allows, and nothing of a job that this owner knows to be cancelled.
    fn check_bounds(&mut self, parcels: &[Handed], h: &mut Hands<'_>) {
        let queues: BTreeSet<&QueueName> = parcels.iter().map(|handed| &handed.queue).collect();
        for queue in queues {
            let seated = self.desk.sessions().map(|(_, session)| session);
            let seated = seated.filter(|s| s.queue == *queue && s.known_to_store && !s.draining);
            let (sessions, slots) =
                seated.fold((0, 0), |(n, slots), s| (n + 1, slots + s.capacity.cpus.milli as usize / 1_000));
            let (most, line) = (self.window.most(slots, sessions, h.now.mono), self.desk.out(queue));
            let of_queue = self.known.iter().filter(|(_, definition)| definition.queue == *queue);
            let under_way = of_queue.filter_map(|(job, _)| self.desk.under_way(*job));
            let out: u64 = under_way.map(|under_way| under_way.dispatched + under_way.running).sum();
            if out as usize != line {
                h.ground.oracle.fail(|| format!("{out} tasks of {queue} are out, and its line counts {line}"));
            }
            if line > most {
                h.ground.oracle.fail(|| {
                    format!("{line} tasks of {queue} are out, {most} may be with {slots} slots of {sessions} sessions")
                });
            }
        }
        for pick in parcels.iter().flat_map(|handed| &handed.picks) {
            if self.cancelled.contains(&pick.task.job) {
                h.ground.oracle.fail(|| format!("{} is handed out of a cancelled job", pick.task));
            }
        }
    }
}
