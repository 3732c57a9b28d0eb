//! One owned shard at work in a simulated manager: the real foreman, driven as `jobs::post` drives it. What it says is
//! carried out by models: [`Outbox`] in the place of the dispatch, [`Intake`] in the place of the reports, and questions to
//! the simulated store. Nothing is decided here; what [`Flaw`]s forget, they forget on the way in or out.

mod checks;
mod effects;
mod intake;
mod outbox;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::envelope::Reports;
use mutirao_core::id::{JobKey, QueueName, WorkerId};
use mutirao_core::quantity::Span;
use mutirao_core::task::Retry;
use mutirao_jobs::desk::{Desk, Now};
use mutirao_jobs::foreman::{Ask, Foreman, Found, Input, Reach, Recalled};
use mutirao_jobs::question::Question as Wanted;
use mutirao_jobs::store::queues::{QueueRow, Removed};
use mutirao_jobs::store::{OpenJob, Settling};
use mutirao_shards::{MemberId, ShardId, Tenure};

use super::super::asker::Asker;
use super::super::flaw::Flaw;
use super::super::ground::Ground;
use super::super::link::Link;
use super::super::weather::{LEASE, PATIENCE, shard_of_queue};
use super::super::wire::{Answer, Definition, Loaded, Name, NoAnswer, Pid, Question, ToBroker};
use super::super::worker::worker_of;
use super::{Calls, Purpose};
use checks::Checks;
pub use effects::Turn;
use intake::Intake;
use outbox::Outbox;

const LOAD_PAUSE: Duration = Duration::from_millis(500);
/// Questions that may lie at the door. What finds no place there is asked again, or found in the store.
const ASKS_MAX: usize = 16;
/// For a flaw.
const FOR_EVER: Duration = Duration::from_secs(86_400);

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

pub struct Post {
    pub shard: ShardId,
    pub generation: u64,
    leaving: bool,
    load_at: Mono,
    work: Option<Work>,
}

struct Work {
    foreman: Foreman<Asker>,
    /// What its jobs' tasks do.
    known: BTreeMap<JobKey, Rc<Definition>>,
    intake: Intake,
    /// What is asked and not taken in yet.
    asks: VecDeque<Ask<Asker>>,
    outbox: Outbox,
    /// The calls by which the store will say how a settlement went, and what was read.
    settling: Option<u64>,
    reading: Option<u64>,
    checks: Checks,
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
        let Ok(Answer::Loaded(Loaded { jobs, sessions, queues })) = answer else {
            self.load_at = h.now.mono.plus(LOAD_PAUSE);
            return;
        };
        if self.work.is_some() {
            return;
        }
        let mut known = BTreeMap::new();
        let learn = |(job, definition): (OpenJob, Rc<Definition>)| {
            known.insert(job.key, definition);
            OpenJob { retry: told(job.retry, h.ground), ..job }
        };
        let jobs = jobs.into_iter().map(learn).collect();
        let mut checks = Checks::new(self.shard, self.generation, h.now.mono);
        checks.defined(&queues);
        let queues = if h.ground.has(Flaw::OverlooksDefinitions) { Vec::new() } else { queues };
        let recalled = Recalled { generation: self.generation, jobs, sessions, queues };
        let patience = if h.ground.has(Flaw::WaitsForLostParcels) { FOR_EVER } else { PATIENCE };
        let mut work = Work {
            foreman: Foreman::new(recalled, LEASE, patience, h.ground.dice.u64(), h.now)
                .within(h.ground.weather.budget),
            known,
            intake: Intake::new(self.shard),
            asks: VecDeque::new(),
            outbox: Outbox::new(self.shard),
            settling: None,
            reading: None,
            checks,
        };
        work.connect(self.shard, h);
        self.work = Some(work);
        if self.leaving {
            self.tell(Input::Leave, h);
        }
    }

    fn tell(&mut self, input: Input<Asker>, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work {
            work.foreman.handle(input, h.now);
        }
    }

    pub fn leave(&mut self, h: &mut Hands<'_>) {
        if !std::mem::replace(&mut self.leaving, true) {
            self.tell(Input::Leave, h);
        }
    }

    /// Nothing of what it knows is unfinished, and nobody is believed to hold anything.
    pub fn is_quiet(&self) -> bool {
        let idle = |desk: &Desk| desk.open_tasks() == 0 && desk.sessions().all(|(_, session)| session.held.is_empty());
        self.work.as_ref().is_some_and(|work| idle(work.foreman.desk()) && work.foreman.is_settled())
    }

    pub fn tasks_out(&self) -> usize {
        let held = |work: &Work| work.foreman.desk().sessions().map(|(_, session)| session.held.len()).sum();
        self.work.as_ref().map_or(0, held)
    }

    pub fn tick(&mut self, h: &mut Hands<'_>) {
        match &mut self.work {
            Some(work) if h.now.mono >= work.foreman.wake_at() => {
                work.hear_all(h);
                let broker = if h.link.is_up() { Reach::Near } else { Reach::Away };
                let before = work.foreman.gathered();
                work.foreman.handle(Input::Tick(broker), h.now);
                h.ground.oracle.room.grew(work.foreman.gathered().saturating_sub(before));
                h.ground.oracle.decided(work.foreman.decided());
            }
            None if h.now.mono >= self.load_at => self.load(h),
            _ => {}
        }
    }

    /// The shard is another's, or nobody's: what is here is dropped, and unacknowledged reports go back.
    pub fn close(&mut self, h: &mut Hands<'_>) {
        h.ground.note(|| format!("{}: closes shard {}, generation {}", h.me, self.shard, self.generation));
        if let Some(work) = &mut self.work {
            work.intake.close(h);
        }
    }

    pub fn connected(&mut self, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work {
            work.connect(self.shard, h);
        }
    }

    pub fn disconnected(&mut self, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work {
            work.intake.disconnected();
            let back = work.outbox.disconnected(h.now.mono);
            work.foreman.handle(Input::Back(back), h.now);
        }
    }

    pub fn consumes_as(&self, consumer: u64) -> bool {
        self.work.as_ref().is_some_and(|work| work.intake.consumer() == Some(consumer))
    }

    pub fn hear(&mut self, tag: u64, reports: Rc<Reports>, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work {
            work.intake.arrived(tag, reports);
            work.hear_all(h);
        }
    }

    pub fn confirmed(&mut self, number: u64) {
        if let Some(work) = &mut self.work {
            work.outbox.confirmed(number);
        }
    }

    pub fn counted(&mut self, id: u64, lying: usize, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work {
            let back = work.outbox.counted(id, lying, h.ground);
            work.foreman.handle(Input::Back(back), h.now);
        }
    }

    pub fn bury(&mut self, pid: Pid, h: &mut Hands<'_>) {
        let death = Wanted::Bury { worker: Some(worker_of(pid)), host: "h".into(), pid: pid.0 };
        self.asked(death, Asker::NOBODY, h);
    }

    /// A job that this manager has just had written.
    pub fn admit(&mut self, job: JobKey, definition: Rc<Definition>, h: &mut Hands<'_>) {
        if let Some(work) = &mut self.work {
            let ledger = definition.ledger(told(definition.retry, h.ground));
            work.known.insert(job, definition);
            work.ask(Ask::Admit(job, Box::new(ledger)), h);
        }
    }

    pub fn asked(&mut self, question: Wanted, asker: Asker, h: &mut Hands<'_>) {
        if h.ground.has(Flaw::OverlooksCancels) && matches!(question, Wanted::CancelJob { .. }) {
            return;
        }
        h.ground.note(|| format!("{}: shard {}: is asked {question:?}", h.me, self.shard));
        if let Some(work) = &mut self.work {
            work.ask(Ask::Question(question, asker), h);
        }
    }

    /// Of all queues: those of its shard are the foreman's.
    pub fn follow(
        &mut self,
        defined: &[QueueRow],
        removed: &[Removed],
        resting: &BTreeSet<WorkerId>,
        h: &mut Hands<'_>,
    ) {
        let of_shard = |queue: &QueueName| shard_of_queue(queue) == self.shard;
        let defined: Vec<QueueRow> = defined.iter().filter(|row| of_shard(&row.spec.name)).cloned().collect();
        let removed = removed.iter().filter(|removed| of_shard(&removed.queue)).cloned().collect();
        if let Some(work) = &mut self.work {
            work.ask(Ask::Queues { defined, removed }, h);
            work.ask(Ask::Question(Wanted::Rest { workers: resting.clone() }, Asker::NOBODY), h);
        }
    }

    pub fn settled(&mut self, call: u64, answer: Result<Answer, NoAnswer>, h: &mut Hands<'_>) {
        let Some(work) = &mut self.work else { return };
        if work.settling.take_if(|asked| *asked == call).is_none() {
            return;
        }
        let input = match answer {
            Ok(Answer::Fenced) => Input::Settled(Settling::Fenced),
            Ok(_) => Input::Settled(Settling::Written),
            Err(NoAnswer) if h.ground.has(Flaw::GivesUpSettling) => Input::Settled(Settling::Written),
            Err(NoAnswer) => Input::Unsettled,
        };
        work.foreman.handle(input, h.now);
    }

    pub fn compared(&mut self, call: u64, answer: Result<Answer, NoAnswer>, h: &mut Hands<'_>) {
        let Some(work) = &mut self.work else { return };
        if work.reading.take_if(|asked| *asked == call).is_none() {
            return;
        }
        let found = match answer {
            Ok(Answer::Loaded(Loaded { jobs, .. })) => {
                for (job, definition) in &jobs {
                    h.ground.note(|| format!("{}: finds {:?} in the store", h.me, job.key));
                    work.known.insert(job.key, definition.clone());
                }
                let learn = |job: OpenJob| OpenJob { retry: told(job.retry, h.ground), ..job };
                Found::Jobs(jobs.into_iter().map(|(job, _)| learn(job)).collect())
            }
            Ok(Answer::Keys(open)) if h.ground.has(Flaw::OverlooksCancels) => {
                let kept = work.known.keys().filter(|job| work.foreman.desk().knows_job(**job));
                let mut open: Vec<JobKey> = open.into_iter().chain(kept.copied()).collect();
                open.sort_unstable();
                open.dedup();
                Found::Keys { open, revived: Vec::new() }
            }
            Ok(Answer::Keys(open)) => Found::Keys { open, revived: Vec::new() },
            _ => Found::Nothing,
        };
        work.foreman.handle(Input::Found(found), h.now);
    }
}

/// How often and when an owner tries a task again, as it is told.
fn told(retry: Retry, ground: &Ground) -> Retry {
    match ground.has(Flaw::RetriesAtOnce) {
        true => Retry { backoff: Span::default(), ..retry },
        false => retry,
    }
}

impl Work {
    fn connect(&mut self, shard: ShardId, h: &mut Hands<'_>) {
        self.intake.connect(h);
        h.link.send(ToBroker::Subscribe(Name::Asks(shard)), h.ground);
    }

    /// Puts a question at the door.
    fn ask(&mut self, ask: Ask<Asker>, h: &mut Hands<'_>) {
        if self.asks.len() < ASKS_MAX {
            self.asks.push_back(ask);
        }
        self.answer_all(h);
    }

    /// Gives the foreman what was asked, as long as it has room. Whether it did.
    fn answer_all(&mut self, h: &mut Hands<'_>) -> bool {
        let mut any = false;
        while (self.foreman.has_room() || h.ground.has(Flaw::TakesInEverything))
            && let Some(ask) = self.asks.pop_front()
        {
            any = true;
            if self.checks.asked(&ask, h) {
                let before = self.foreman.gathered();
                self.foreman.handle(Input::Asked(ask), h.now);
                h.ground.oracle.room.grew(self.foreman.gathered().saturating_sub(before));
            }
        }
        any
    }

    /// Gives the foreman what has come, as long as it wants to hear.
    fn hear_all(&mut self, h: &mut Hands<'_>) {
        while (self.foreman.hears() || h.ground.has(Flaw::TakesInEverything))
            && let Some((mark, reports)) = self.intake.next()
        {
            self.checks.heard(&reports, h);
            let (before, gathered) = (self.foreman.decided().ended.len(), self.foreman.gathered());
            let again = self.foreman.decided().again.len();
            let incoming = mutirao_jobs::reports::Incoming { reports: (*reports).clone(), mark };
            self.foreman.handle(Input::Heard(incoming), h.now);
            let ended = self.foreman.decided().ended[before..].iter().map(|ended| ended.task).collect();
            h.ground.oracle.room.grew(self.foreman.gathered().saturating_sub(gathered));
            self.checks.decided(&self.foreman.decided().again[again..], &self.known, h.now.mono);
            self.intake.heard(mark, ended, h);
        }
    }
}
