//! Queues with definitions that change at random, under one seed, with workers that come, work and fail: what a definition
//! says holds at every moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::envelope::{Beat, Done, Reports};
use mutirao_core::id::{QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::outcome::{Outcome, Verdict};
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::task::{Needs, Retry};
use mutirao_core::{Attempt, Dice, JobKey, Mono, Timestamp};
use mutirao_queues::{FairShare, Limits, Policy, QueueSpec};

use super::ledger::Ledger;
use super::order::{Rank, steps};
use super::{Desk, Now, SessionChange};

const QUEUES: [&str; 3] = ["one", "two", "three"];
const LEASE: Duration = Duration::from_secs(86_400);

struct World {
    dice: Dice,
    desk: Desk,
    now: Now,
    specs: BTreeMap<QueueName, Arc<QueueSpec>>,
    revision: u64,
    jobs: u64,
    priorities: BTreeMap<JobKey, i32>,
    held: Vec<(QueueName, TaskKey, Attempt)>,
    /// Held by workers though it was cancelled.
    dying: Vec<(QueueName, TaskKey, Attempt)>,
    /// What went out since the queue got its limit on starts.
    went: BTreeMap<QueueName, Vec<(Mono, usize)>>,
}

fn session_of(queue: &QueueName) -> SessionId {
    SessionId(format!("s-{queue}"))
}

fn worker() -> WorkerId {
    WorkerId("w".into())
}

fn start() -> Now {
    Now { wall: Timestamp(1_000_000), mono: Mono(Duration::from_secs(1)) }
}

/// A worker of this many cpus, with whom the desk may deal.
fn hire(desk: &mut Desk, queue: &QueueName, cpus: u32, now: Now) {
    let mut reports = Reports::new(session_of(queue), worker());
    reports.beat = Some(Beat {
        queue: queue.clone(),
        host: "h".into(),
        pid: 1,
        capacity: Needs { cpus: Cpus { milli: cpus * 1_000 }, memory: Bytes(0) },
        draining: false,
        leaving: false,
        held: Vec::new(),
    });
    desk.report(reports, now);
    for change in desk.effects().sessions {
        if let SessionChange::Came(session, ..) = change {
            desk.written(&session);
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            dice: Dice::seeded(seed),
            desk: Desk::new(1, LEASE, seed),
            now: start(),
            specs: BTreeMap::new(),
            revision: 0,
            jobs: 0,
            priorities: BTreeMap::new(),
            held: Vec::new(),
            dying: Vec::new(),
            went: BTreeMap::new(),
        };
        for queue in QUEUES.map(|name| name.parse::<QueueName>().unwrap()) {
            world.define(&queue);
            hire(&mut world.desk, &queue, 8, world.now);
        }
        world
    }

    fn any_queue(&self) -> QueueName {
        QUEUES[self.dice.below(3) as usize].parse().unwrap()
    }

    fn define(&mut self, queue: &QueueName) {
        let mut spec = QueueSpec::new(queue.clone());
        spec.policy = match self.dice.below(3) {
            0 => Policy::Fifo,
            1 => Policy::Priority,
            _ => Policy::FairShare(FairShare { half_life: Span::secs(5), ..FairShare::default() }),
        };
        spec.paused = self.dice.below(4) == 0;
        spec.limits = Limits {
            running: (self.dice.below(2) == 0).then(|| 1 + self.dice.below(6) as u32),
            starts_per_second: (self.dice.below(2) == 0).then(|| 0.5 + self.dice.below(80) as f64),
            waiting: None,
        };
        self.revision += 1;
        let spec = Arc::new(spec);
        self.desk.define(&spec, self.revision, self.now);
        // A word that is late changes nothing.
        let old = Arc::new(QueueSpec::new(queue.clone()));
        self.desk.define(&old, self.revision - 1, self.now);
        self.specs.insert(queue.clone(), spec);
        self.went.remove(queue);
    }

    fn submit(&mut self) {
        self.jobs += 1;
        let (queue, priority) = (self.any_queue(), self.dice.below(7) as i32 - 3);
        let rank = Rank { priority, owner: format!("o{}", self.dice.below(4)), ..Rank::default() };
        let tasks = 1 + self.dice.below(40) as u32;
        let ledger = Ledger::new(queue, 1, tasks, Retry::default(), Needs::default()).ranked(rank);
        self.priorities.insert(JobKey(self.jobs), priority);
        self.desk.admit(JobKey(self.jobs), ledger);
    }

    fn hand_out(&mut self) {
        let parcels = self.desk.hand_out(self.now);
        let mut sums: BTreeMap<QueueName, usize> = BTreeMap::new();
        let mut lowest: BTreeMap<QueueName, i32> = BTreeMap::new();
        for parcel in parcels {
            let spec = &self.specs[&parcel.queue];
            assert!(!spec.paused, "a paused queue handed out {} tasks", parcel.picks.len());
            *sums.entry(parcel.queue.clone()).or_default() += parcel.picks.len();
            for pick in &parcel.picks {
                let priority = self.priorities[&pick.task.job];
                let before = lowest.entry(parcel.queue.clone()).or_insert(priority);
                assert!(spec.policy != Policy::Priority || priority <= *before, "{priority} after {before}");
                *before = priority;
                self.held.push((parcel.queue.clone(), pick.task, pick.attempt));
            }
            let mut reports = Reports::new(session_of(&parcel.queue), worker());
            reports.taken.push(parcel.id);
            self.desk.report(reports, self.now);
        }
        for (queue, tasks) in sums {
            self.check(&queue, tasks, lowest[&queue]);
        }
    }

    /// After some of a queue went out.
    fn check(&mut self, queue: &QueueName, tasks: usize, lowest: i32) {
        let spec = self.specs[queue].clone();
        let out = self.held.iter().chain(&self.dying).filter(|(of, ..)| of == queue).count();
        assert_eq!(out, self.desk.occupied(queue));
        if let Some(running) = spec.limits.running {
            assert!(out <= running as usize, "{out} out of {running}");
        }
        if let Some(rate) = spec.limits.starts_per_second {
            let went = self.went.entry(queue.clone()).or_default();
            went.push((self.now.mono, tasks));
            let mut sum = 0.0;
            for (at, tasks) in went.iter().rev() {
                sum += *tasks as f64;
                let most = rate * self.now.mono.since(*at).as_secs_f64() + (rate * 0.1).max(1.0);
                assert!(sum <= most + 1e-6, "{sum} went, {most} may");
            }
        }
        if spec.policy == Policy::Priority {
            let first = self.desk.lines[queue].first().map(|job| self.priorities[&job]);
            assert!(first.is_none_or(|first| first <= lowest), "{first:?} waits while {lowest} went");
        }
    }

    fn finish_some(&mut self) {
        for _ in 0..self.dice.below(12) {
            if self.held.is_empty() {
                return;
            }
            let (queue, task, attempt) = self.held.swap_remove(self.dice.below(self.held.len() as u64) as usize);
            let verdict = if self.dice.below(10) == 0 { Verdict::Returned } else { Verdict::Ok };
            self.said(&queue, task, attempt, verdict);
        }
    }

    /// Somebody cancels a job, or one task, that a worker has some of.
    fn cancel_some(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let (_, task, _) = self.held[self.dice.below(self.held.len() as u64) as usize];
        let whole = self.dice.below(2) == 0;
        if whole {
            let at_work = self.desk.cancel_jobs(&[task.job]);
            assert_eq!(at_work.into_values().collect::<Vec<_>>(), [[task.job]]);
        } else {
            assert!(self.desk.cancel_task(task, self.now));
        }
        let cancelled = |other: &TaskKey| if whole { other.job == task.job } else { *other == task };
        self.dying.extend(self.held.extract_if(.., |(_, other, _)| cancelled(other)));
    }

    /// Workers say that what was cancelled has stopped.
    fn stop_some(&mut self) {
        for _ in 0..self.dice.below(6) {
            if self.dying.is_empty() {
                return;
            }
            let (queue, task, attempt) = self.dying.swap_remove(self.dice.below(self.dying.len() as u64) as usize);
            self.said(&queue, task, attempt, Verdict::Cancelled);
        }
    }

    fn said(&mut self, queue: &QueueName, task: TaskKey, attempt: Attempt, verdict: Verdict) {
        let mut outcome = Outcome::new(verdict, self.now.wall);
        outcome.usage.wall_us = self.dice.below(2_000_000);
        let mut reports = Reports::new(session_of(queue), worker());
        reports.done.push(Done { task, attempt, trace: String::new(), outcome });
        self.desk.report(reports, self.now);
    }

    fn pass(&mut self, by: Duration) {
        self.now = Now { wall: self.now.wall.plus(by), mono: self.now.mono.plus(by) };
        self.desk.effects();
    }
}

#[test]
fn what_a_definition_says_holds_at_every_moment_and_nothing_is_forgotten() {
    for seed in 0..200 {
        let mut world = World::new(seed);
        for _ in 0..150 {
            match world.dice.below(10) {
                0 => {
                    let queue = world.any_queue();
                    world.define(&queue);
                }
                1..4 => world.submit(),
                4 => world.cancel_some(),
                5 => world.stop_some(),
                _ => world.finish_some(),
            }
            world.hand_out();
            world.pass(Duration::from_millis(world.dice.below(300)));
        }
        // Once nothing is held back any more, everything is run.
        for queue in QUEUES.map(|name| name.parse::<QueueName>().unwrap()) {
            world.revision += 1;
            let open = Arc::new(QueueSpec::new(queue.clone()));
            world.desk.define(&open, world.revision, world.now);
            world.specs.insert(queue, open);
        }
        let mut rounds = 0;
        while world.desk.open_tasks() > 0 {
            world.hand_out();
            world.finish_some();
            world.stop_some();
            world.pass(Duration::from_millis(50));
            rounds += 1;
            assert!(rounds < 20_000, "seed {seed}: {} tasks never run", world.desk.open_tasks());
        }
        while !world.dying.is_empty() {
            world.stop_some();
        }
        assert!(world.desk.lines.values().all(|line| line.occupied() == 0 && line.open == 0), "seed {seed}");
    }
}

/// Comparisons made for each of the tasks that a queue of so many waiting jobs hands out at once and gets back.
fn steps_per_task(policy: &Policy, jobs: u64, tasks_each: u32) -> f64 {
    let (queue, now) = (QueueName::default(), start());
    let mut desk = Desk::new(1, LEASE, 1);
    desk.define(&Arc::new(QueueSpec { policy: policy.clone(), ..QueueSpec::new(queue.clone()) }), 1, now);
    for job in 1..=jobs {
        let rank = Rank { priority: (job % 21) as i32, owner: format!("o{}", job % 100), ..Rank::default() };
        let ledger = Ledger::new(queue.clone(), 1, tasks_each, Retry::default(), Needs::default()).ranked(rank);
        desk.admit(JobKey(job), ledger);
    }
    assert_eq!(desk.open_tasks(), jobs * u64::from(tasks_each));
    hire(&mut desk, &queue, 400, now);
    let before = steps::taken();
    let mut tasks = 0;
    for parcel in desk.hand_out(now) {
        let mut reports = Reports::new(session_of(&queue), worker());
        reports.taken.push(parcel.id);
        reports.done = parcel
            .picks
            .iter()
            .map(|pick| Done {
                task: pick.task,
                attempt: pick.attempt,
                trace: String::new(),
                outcome: Outcome::new(Verdict::Ok, now.wall),
            })
            .collect();
        tasks += parcel.picks.len();
        desk.report(reports, now);
    }
    assert!(tasks > 300, "{tasks}");
    (steps::taken() - before) as f64 / tasks as f64
}

#[test]
fn handing_out_takes_as_many_steps_from_a_million_waiting_as_from_a_thousand() {
    for policy in [Policy::Fifo, Policy::Priority, Policy::FairShare(FairShare::default())] {
        let few = steps_per_task(&policy, 1_000, 1);
        let many = steps_per_task(&policy, 1_000, 1_000);
        assert!(many <= few + 1.0, "{}: {few} steps, then {many}", policy.word());
        // A tree of a hundred times as many jobs is less than twice as high.
        let jobs = steps_per_task(&policy, 100_000, 10);
        assert!(jobs <= 2.0 * few + 1.0, "{}: {few} steps, then {jobs}", policy.word());
    }
}

#[test]
fn what_is_out_already_does_not_go_before_a_task_that_waits() {
    let (queue, now) = (QueueName::default(), start());
    let mut desk = Desk::new(1, LEASE, 1);
    for job in [1, 2] {
        desk.admit(JobKey(job), Ledger::new(queue.clone(), 1, 20, Retry::default(), Needs::default()));
    }
    hire(&mut desk, &queue, 4, now);
    let out: usize = desk.hand_out(now).iter().map(|parcel| parcel.picks.len()).sum();
    assert!((1..20).contains(&out), "{out}");
    let place = desk.place(TaskKey { job: JobKey(2), index: 1 }).unwrap();
    assert_eq!(place.ahead, 20 - out as u64);
}
