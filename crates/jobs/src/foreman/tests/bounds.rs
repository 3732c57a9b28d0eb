//! However slow the store is, however far the broker, and whatever is said and asked meanwhile: no more gathers than the
//! budget and one message, and what was taken in is written, each end once, when there is somebody to write it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mutirao_core::Dice;
use mutirao_core::quantity::Span;

use super::*;

const HISTORIES: u64 = 60;
const STEPS: usize = 400;
const TASKS: u32 = 300;
const SESSIONS: u64 = 5;
const BUDGET: Budget = Budget { items_max: 30, output_bytes_max: 4_000 };
/// Ends in one report, each of 100 bytes of output.
const DONE_MAX: usize = 8;
const OUTPUT_BYTES: usize = 100;
/// Of one message: an end and a word to stop for each, and the coming of its session.
const GROWTH_MAX: usize = 2 * DONE_MAX + 1;

/// A shard amid workers, callers, a store that answers when it likes, and a broker that takes words when it likes.
struct Crowd {
    scene: Scene,
    dice: Dice,
    /// What workers said and nobody has heard.
    mail: VecDeque<Reports>,
    held: BTreeMap<u64, Vec<Pick>>,
    writing: Option<Arc<Settlement>>,
    ended: BTreeMap<TaskKey, u32>,
    asked: BTreeSet<u32>,
    /// Times that there was no room.
    full: u32,
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut scene = Scene::new();
        scene.foreman = scene.foreman.within(BUDGET);
        let retry = Retry { retries: 2, backoff: Span::secs(1), ..Retry::default() };
        let ledger = Ledger::new(QueueName::default(), 1, TASKS, retry, Needs::default());
        scene.tell(Input::Asked(Ask::Admit(JobKey(2), Box::new(ledger))));
        let (mail, held, ended) = (VecDeque::new(), BTreeMap::new(), BTreeMap::new());
        let asked = BTreeSet::new();
        Self { scene, dice: Dice::seeded(seed), mail, held, writing: None, ended, asked, full: 0 }
    }

    fn says(&self, session: u64) -> Reports {
        Reports::new(SessionId(format!("s{session}")), WorkerId(format!("w{session}")))
    }

    /// Something that is not asked for by anybody: it adds nothing where there is no room.
    fn happens(&mut self, input: Input<u32>) {
        let (before, room) = (self.scene.foreman.gathered(), self.scene.foreman.has_room());
        self.scene.tell(input);
        assert!(room || self.scene.foreman.gathered() <= before, "more gathers though there is no room");
    }

    /// Something that is taken in only where there is room.
    fn is_taken_in(&mut self, input: Input<u32>) {
        self.scene.tell(input);
        let gathered = self.scene.foreman.gathered();
        assert!(gathered < BUDGET.items_max + GROWTH_MAX, "{gathered} wait");
    }

    fn deliver(&mut self) {
        while self.scene.foreman.hears()
            && let Some(reports) = self.mail.pop_front()
        {
            self.scene.tag += 1;
            let mark = Mark { consumer: 1, tag: self.scene.tag };
            self.is_taken_in(Input::Heard(Incoming { reports, mark }));
        }
        self.full += u32::from(!self.scene.foreman.has_room());
    }

    fn beat(&mut self, session: u64) {
        let held = self.held.get(&session).into_iter().flatten();
        let held = held.map(|pick| Held { task: pick.task, attempt: pick.attempt, running: true }).collect();
        let mut reports = self.says(session);
        reports.beat = Some(Beat {
            queue: QueueName::default(),
            host: "h".into(),
            pid: session as u32,
            capacity: Needs { cpus: Cpus { milli: 9_000 }, memory: Bytes(0) },
            draining: false,
            leaving: false,
            held,
        });
        self.mail.push_back(reports);
    }

    fn finish_some(&mut self, session: u64, ok_percent: u64) {
        let held = self.held.entry(session).or_default();
        let some: Vec<Pick> = held.drain(..held.len().min(DONE_MAX)).collect();
        let mut reports = self.says(session);
        for pick in some {
            let verdict = if self.dice.below(100) < ok_percent { Verdict::Ok } else { Verdict::Failed };
            let mut outcome = Outcome::new(verdict, self.scene.now.wall);
            outcome.stdout.tail = vec![b'x'; OUTPUT_BYTES];
            reports.done.push(Done { task: pick.task, attempt: pick.attempt, trace: String::new(), outcome });
        }
        self.mail.push_back(reports);
    }

    fn ask(&mut self, question: Question, asker: u32) {
        if self.scene.foreman.has_room() {
            self.is_taken_in(Input::Asked(Ask::Question(question, asker)));
        }
    }

    fn turn(&mut self, way: Way) {
        let outside = Outside { now: self.scene.now, tenure: Tenure::Holds, way, inbox: Inbox::Waiting };
        loop {
            let room = self.scene.foreman.has_room();
            match self.scene.foreman.poll(outside) {
                None => return,
                Some(Effect::Settle(settlement)) => self.writing = Some(settlement),
                Some(Effect::Answer(asker, Answer::CancelTask(_))) => drop(self.asked.remove(&asker)),
                Some(Effect::Read(_)) => self.scene.tell(Input::Found(Found::Nothing)),
                Some(Effect::Send(Outgoing::Parcels(parcels))) => {
                    assert!(room, "what ends of this would have to be kept");
                    parcels.into_iter().for_each(|parcel| self.take(parcel));
                }
                Some(_) => {}
            }
        }
    }

    fn take(&mut self, parcel: Handed) {
        let session = self.dice.below(SESSIONS);
        let mut reports = self.says(session);
        reports.taken = vec![parcel.id];
        self.mail.push_back(reports);
        self.held.entry(session).or_default().extend(parcel.picks);
    }

    /// The store has written what it was given.
    fn written(&mut self) {
        if let Some(settlement) = self.writing.take() {
            settlement.ended.iter().for_each(|end| *self.ended.entry(end.task).or_default() += 1);
            self.happens(Input::Settled(Settling::Written));
        }
    }

    fn pass(&mut self, ms: u64) {
        self.scene.pass(Duration::from_millis(ms));
        self.happens(Input::Tick(Reach::Near));
    }

    fn step(&mut self, at: usize) {
        let session = self.dice.below(SESSIONS);
        match self.dice.below(20) {
            0..8 => self.finish_some(session, 60),
            8 | 9 => {
                let task = TaskKey { job: JobKey(2), index: 1 + self.dice.below(u64::from(TASKS)) as u32 };
                let asker = at as u32;
                if self.scene.foreman.has_room() {
                    self.asked.insert(asker);
                    self.ask(Question::CancelTask { task }, asker);
                }
            }
            10..13 => {
                let (job, queue) = (JobKey(1_000 + at as u64), QueueName::default());
                self.ask(Question::CancelJob { job, queue }, 0);
            }
            13 => self.ask(Question::Rest { workers: BTreeSet::from([WorkerId("w0".into())]) }, 0),
            14 => self.ask(Question::Rest { workers: BTreeSet::new() }, 0),
            // A worker that starts and is never heard again.
            15 => self.beat(SESSIONS + at as u64),
            16 => self.written(),
            _ => {
                (0..SESSIONS).for_each(|session| self.beat(session));
                let ms = self.dice.below(900);
                self.pass(ms);
            }
        }
        self.deliver();
        let way = if self.dice.below(3) == 0 { Way::Free } else { Way::Full };
        self.turn(way);
    }

    /// Store and broker are quick again, and nobody asks for anything more.
    fn end(&mut self) {
        self.scene.tell(Input::Asked(Ask::Question(Question::Rest { workers: BTreeSet::new() }, 0)));
        for _ in 0..2_000 {
            if self.scene.foreman.desk().open_tasks() == 0 && self.scene.foreman.is_settled() {
                return;
            }
            self.written();
            (0..SESSIONS).for_each(|session| {
                self.beat(session);
                self.finish_some(session, 100);
            });
            self.pass(300);
            self.deliver();
            self.turn(Way::Free);
        }
    }
}

#[test]
fn whatever_comes_while_the_store_is_slow_no_more_gathers_than_a_bound_and_everything_ends_once() {
    let mut full = 0;
    for seed in 0..HISTORIES {
        let mut crowd = Crowd::new(seed);
        (0..STEPS).for_each(|at| crowd.step(at));
        crowd.end();
        assert_eq!(crowd.scene.foreman.desk().open_tasks(), 0, "seed {seed}");
        assert_eq!(crowd.ended.len(), TASKS as usize + 2, "seed {seed}");
        assert!(crowd.ended.values().all(|times| *times == 1), "seed {seed}: an end was written twice");
        assert!(crowd.asked.is_empty(), "seed {seed}: {:?} were not answered", crowd.asked);
        full += crowd.full;
    }
    assert!(full > HISTORIES as u32, "the bound was hardly ever met: {full}");
}

#[test]
fn each_kind_of_what_waits_counts_against_the_budget() {
    type Feed = fn(&mut Scene, u32);
    let a_session: Feed = |scene, n| {
        let mut reports = Reports::new(SessionId(format!("s{n}")), WorkerId("w".into()));
        reports.beat = Some(Beat {
            queue: QueueName::default(),
            host: "h".into(),
            pid: n,
            capacity: Needs::default(),
            draining: false,
            leaving: false,
            held: Vec::new(),
        });
        scene.hear(reports);
    };
    let an_end: Feed = |scene, n| {
        let task = TaskKey { job: JobKey(2), index: n };
        scene.tell(Input::Asked(Ask::Question(Question::CancelTask { task }, n)));
    };
    let a_word: Feed = |scene, n| {
        let (job, queue) = (JobKey(u64::from(100 + n)), QueueName::default());
        scene.tell(Input::Asked(Ask::Question(Question::CancelJob { job, queue }, n)));
    };
    for feed in [a_session, an_end, a_word] {
        let mut scene = Scene::new();
        scene.foreman = scene.foreman.within(BUDGET);
        let ledger = Ledger::new(QueueName::default(), 1, 100, Retry::default(), Needs::default());
        scene.tell(Input::Asked(Ask::Admit(JobKey(2), Box::new(ledger))));
        let fed = (1..100).take_while(|n| {
            let room = scene.foreman.has_room();
            feed(&mut scene, *n);
            room
        });
        let fed = fed.count();
        assert!((BUDGET.items_max / 2..=BUDGET.items_max).contains(&fed), "{fed}");
    }
}
