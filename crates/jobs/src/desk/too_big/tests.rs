use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::envelope::{Beat, Done, Reports};
use mutirao_core::id::{Attempt, QueueName, SessionId, WorkerId};
use mutirao_core::outcome::{Outcome, Verdict};
use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::task::Retry;
use mutirao_core::{Dice, Mono, Timestamp};
use mutirao_elastic::fleet::Activity;
use mutirao_queues::QueueSpec;

use super::*;
use crate::desk::{Desk, Now};

const LEASE: Duration = Duration::from_secs(86_400);

fn at(s: u64) -> Now {
    Now { wall: Timestamp(1_000_000 + s as i64 * 1_000), mono: Mono(Duration::from_secs(1_000 + s)) }
}

fn size(gib: u64) -> Needs {
    Needs { cpus: Cpus { milli: 1_000 }, memory: Bytes(gib << 30) }
}

fn queue() -> QueueName {
    QueueName::default()
}

/// One queue, and workers that turn down what they cannot hold.
struct Stage {
    desk: Desk,
    /// What each task really needs, of jobs whose tasks differ.
    own: BTreeMap<TaskKey, Needs>,
    workers: BTreeMap<String, Needs>,
    /// How often a task was turned down.
    vain: BTreeMap<TaskKey, usize>,
    ran: Vec<TaskKey>,
}

impl Stage {
    fn new() -> Self {
        let mut desk = Desk::new(1, LEASE, 1);
        desk.define(&Arc::new(QueueSpec::new(queue())), 1, at(0));
        Self { desk, own: BTreeMap::new(), workers: BTreeMap::new(), vain: BTreeMap::new(), ran: Vec::new() }
    }

    fn submit(&mut self, job: u64, tasks: u32, needs: Needs) {
        self.desk.admit(JobKey(job), Ledger::new(queue(), 1, tasks, Retry::default(), needs));
    }

    /// Each task says itself what it needs.
    fn submit_varied(&mut self, job: u64, own: &[Needs]) {
        let ledger = Ledger::new(queue(), 1, own.len() as u32, Retry::default(), Needs::default()).varied(true);
        self.desk.admit(JobKey(job), ledger);
        let task = |index| TaskKey { job: JobKey(job), index };
        self.own.extend((1..).zip(own).map(|(index, needs)| (task(index), *needs)));
    }

    fn say(&mut self, worker: &str, now: Now, fill: impl FnOnce(&mut Reports)) {
        let session = SessionId(format!("s-{worker}"));
        let mut reports = Reports::new(session.clone(), WorkerId(worker.into()));
        fill(&mut reports);
        self.desk.report(reports, now);
        self.desk.written(&session);
    }

    fn beat(&mut self, worker: &str, capacity: Needs, leaving: bool, now: Now) {
        match leaving {
            true => self.workers.remove(worker),
            false => self.workers.insert(worker.into(), capacity),
        };
        self.say(worker, now, |reports| {
            reports.beat = Some(Beat {
                queue: queue(),
                host: "h".into(),
                pid: 7,
                capacity,
                draining: leaving,
                leaving,
                held: Vec::new(),
            });
        });
    }

    fn ended(&mut self, worker: &str, task: TaskKey, attempt: Attempt, verdict: Verdict, now: Now) {
        let outcome = Outcome::new(verdict, now.wall);
        self.say(worker, now, |reports| reports.done.push(Done { task, attempt, trace: String::new(), outcome }));
    }

    /// Everything that goes out now comes to this worker, which runs it at once or turns it down.
    fn work(&mut self, worker: &str, now: Now) {
        let capacity = self.workers[worker];
        for parcel in self.desk.hand_out(now) {
            self.say(worker, now, |reports| reports.taken.push(parcel.id));
            for pick in parcel.picks {
                let needs = self.own.get(&pick.task).copied();
                let needs = needs.unwrap_or_else(|| self.desk.jobs[&pick.task.job].needs);
                let fits = holds(capacity, needs);
                self.ended(worker, pick.task, pick.attempt, if fits { Verdict::Ok } else { Verdict::Unfit }, now);
                match fits {
                    true => self.ran.push(pick.task),
                    false => *self.vain.entry(pick.task).or_default() += 1,
                }
            }
        }
        self.desk.effects();
    }

    fn ready(&self, now: Now) -> u64 {
        self.desk.sight(&queue(), now).tasks.ready
    }

    fn idle_since(&self, worker: &str, now: Now) -> Timestamp {
        let sessions = self.desk.sight(&queue(), now).sessions.unwrap();
        let Activity::Idle { since } = sessions[&WorkerId(worker.into())] else { panic!("{sessions:?}") };
        since
    }
}

#[test]
fn what_no_worker_can_hold_is_handed_to_none_calls_for_none_and_keeps_nobody_behind_it_waiting() {
    let mut stage = Stage::new();
    stage.submit(1, 3, size(1_024));
    stage.submit(2, 4, size(1));
    assert_eq!(stage.ready(at(0)), 7, "nothing is known before a worker is there");
    stage.beat("a", size(12), false, at(1));
    for s in 1..20 {
        stage.work("a", at(s));
    }
    assert_eq!((stage.ran.len(), stage.vain.len(), stage.ready(at(20))), (4, 0, 0));
    let facts = stage.desk.facts(&queue(), at(20));
    assert_eq!((facts.too_big, facts.too_big_needs, facts.waiting), (3, Some(size(1_024)), 3));
    let place = |stage: &Stage| stage.desk.place(TaskKey { job: JobKey(1), index: 2 }).unwrap();
    assert!(place(&stage).too_big);
    stage.beat("a", size(12), true, at(21));
    stage.desk.hand_out(at(21));
    assert_eq!((stage.ready(at(21)), place(&stage).too_big), (0, true), "another would be no larger");
    assert_eq!(stage.desk.facts(&queue(), at(21)).largest, Some(size(12)));
    stage.beat("b", size(2_048), false, at(22));
    stage.work("b", at(22));
    stage.work("b", at(23));
    stage.work("b", at(24));
    assert_eq!((stage.ran.len(), stage.desk.open_tasks()), (7, 0), "a larger one takes it");
}

#[test]
fn a_queue_that_is_defined_anew_is_looked_at_anew() {
    let mut stage = Stage::new();
    stage.submit(1, 3, size(1_024));
    stage.submit_varied(2, &[size(64)]);
    stage.beat("a", size(12), false, at(1));
    stage.work("a", at(1));
    stage.work("a", at(2));
    stage.beat("a", size(12), true, at(3));
    assert_eq!(stage.ready(at(3)), 0);
    stage.desk.define(&Arc::new(QueueSpec::new(queue())), 2, at(4));
    assert_eq!(stage.ready(at(4)), 4, "its workers may be larger from now on");
    stage.beat("a", size(12), false, at(5));
    let larger = r#"{"name": "default", "workers": {"memory": "64GiB"}, "elastic": {"preset": "arrebol"}}"#;
    stage.desk.define(&Arc::new(serde_json::from_str(larger).unwrap()), 3, at(6));
    for s in 6..10 {
        stage.work("a", at(s));
    }
    assert_eq!(stage.desk.facts(&queue(), at(9)).too_big, 3, "one fits those that are to come");
    stage.beat("a", size(12), true, at(10));
    stage.desk.hand_out(at(11));
    assert_eq!(stage.ready(at(11)), 1);
}

#[test]
fn what_was_turned_down_by_the_largest_is_not_offered_again_and_was_no_work_to_anybody() {
    let mut stage = Stage::new();
    stage.submit_varied(1, &[size(64), size(1)]);
    stage.beat("a", size(8), false, at(1));
    stage.beat("b", size(12), false, at(1));
    let task = TaskKey { job: JobKey(1), index: 1 };
    for s in 2..6 {
        stage.work("a", at(s));
        assert!(!stage.desk.place(task).unwrap().too_big, "b is larger");
        stage.beat("a", size(8), false, at(s));
    }
    assert_eq!((stage.ran.len(), stage.vain[&task] > 1), (1, true));
    stage.work("b", at(6));
    stage.beat("b", size(12), false, at(6));
    let before = stage.vain[&task];
    for s in 7..20 {
        stage.work("a", at(s));
        stage.work("b", at(s));
    }
    assert_eq!((stage.vain[&task], stage.ready(at(20))), (before, 0));
    assert!(stage.desk.place(task).unwrap().too_big);
    assert_eq!(stage.idle_since("b", at(20)), at(1).wall, "it has done nothing since it came");
    stage.beat("c", size(64), false, at(21));
    stage.work("c", at(21));
    assert_eq!((stage.ran.len(), stage.desk.open_tasks()), (2, 0));
}

#[test]
fn what_is_cancelled_leaves_nothing_behind() {
    let mut stage = Stage::new();
    stage.submit(1, 3, size(1_024));
    stage.submit_varied(2, &[size(64), size(65)]);
    stage.beat("a", size(12), false, at(1));
    for s in 1..4 {
        stage.work("a", at(s));
    }
    assert_eq!(stage.desk.facts(&queue(), at(4)).too_big, 5);
    assert!(stage.desk.cancel_task(TaskKey { job: JobKey(2), index: 1 }, at(4)));
    stage.desk.cancel_jobs(&[JobKey(1)]);
    assert_eq!(stage.desk.facts(&queue(), at(4)).too_big, 1);
    assert!(stage.desk.cancel_task(TaskKey { job: JobKey(2), index: 2 }, at(4)));
    let line = &stage.desk.lines[&queue()];
    assert!(line.too_big.is_empty() && line.too_big.turned_down.is_empty() && stage.desk.open_tasks() == 0);
}

/// Workers of many sizes come and go, and so do jobs. Once all is calm, what waits is what no worker can hold, nothing is
/// brought to anybody in vain, and with a worker that is large enough all of it runs.
#[test]
fn whoever_comes_and_goes_what_fits_is_run_and_what_does_not_is_told_apart() {
    for seed in 0..100 {
        let (dice, mut stage) = (Dice::seeded(seed), Stage::new());
        let any = |most: u64| size(1 + dice.below(most));
        for step in 0..120u64 {
            let now = at(2 + step);
            match dice.below(6) {
                0 => stage.submit(1_000 + step, 1 + dice.below(5) as u32, any(12)),
                1 => stage.submit_varied(1_000 + step, &[any(12), any(12), any(12)]),
                2 => stage.beat(&format!("w{step}"), any(10), false, now),
                3 if !stage.workers.is_empty() => {
                    let gone = stage.workers.keys().nth(dice.below(stage.workers.len() as u64) as usize).cloned();
                    let gone = gone.unwrap();
                    stage.beat(&gone, stage.workers[&gone], true, now);
                }
                _ if !stage.workers.is_empty() => {
                    let who = stage.workers.keys().nth(dice.below(stage.workers.len() as u64) as usize).cloned();
                    stage.work(&who.unwrap(), now);
                }
                _ => {}
            }
        }
        // Each in turn, until nothing happens any more: what is left fits nobody.
        if stage.workers.is_empty() {
            stage.beat("last", any(10), false, at(200));
        }
        for s in 200..300 {
            let who: Vec<String> = stage.workers.keys().cloned().collect();
            stage.work(&who[s as usize % who.len()], at(s));
        }
        let (vain, largest) = (stage.vain.clone(), *stage.workers.values().max_by_key(|has| has.memory).unwrap());
        for s in 300..320 {
            let who: Vec<String> = stage.workers.keys().cloned().collect();
            stage.work(&who[s as usize % who.len()], at(s));
        }
        assert_eq!(stage.vain, vain, "seed {seed}: nothing is brought to anybody in vain");
        let facts = stage.desk.facts(&queue(), at(320));
        assert_eq!(
            (facts.too_big, facts.retrying, stage.ready(at(320))),
            (stage.desk.open_tasks(), 0, 0),
            "seed {seed}"
        );
        for (task, needs) in &stage.own {
            let right = !stage.desk.is_open(*task) || !holds(largest, *needs);
            assert!(right, "seed {seed}: {task} waits, needs {needs:?} of {largest:?}");
        }
        stage.beat("whale", size(64), false, at(330));
        for s in 330..400 {
            stage.work("whale", at(s));
        }
        assert_eq!(stage.desk.open_tasks(), 0, "seed {seed}");
        assert!(stage.desk.lines[&queue()].too_big.turned_down.is_empty(), "seed {seed}");
    }
}
