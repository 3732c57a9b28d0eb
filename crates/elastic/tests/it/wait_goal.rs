//! A goal for the wait against queues whose tasks come evenly, by chance and in bursts: second by second, with workers that
//! take a while to come.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::quantity::Span;
use mutirao_core::{Dice, Timestamp};
use mutirao_elastic::measure::{Tasks, Workers};
use mutirao_elastic::policy::{NForN, Policy, WaitGoal};
use mutirao_elastic::{Elastic, Load, Removal, State, decide};

const BOOT_S: u64 = 60;

struct Queue {
    elastic: Elastic,
    state: State,
    dice: Dice,
    second: u64,
    waiting: VecDeque<u64>,
    /// When each worker's task ends, or since when it has been idle.
    workers: Vec<Result<u64, u64>>,
    coming: Vec<u64>,
    ended: u64,
    waits: Vec<u64>,
    worker_s: u64,
    wanted: Vec<u32>,
}

impl Queue {
    fn new(policy: Policy, seed: u64) -> Self {
        let elastic = Elastic { min: 0, max: 2_000, stale_after: Span::secs(60), policy };
        Self {
            elastic,
            state: State::default(),
            dice: Dice::seeded(seed),
            second: 0,
            waiting: VecDeque::new(),
            workers: Vec::new(),
            coming: Vec::new(),
            ended: 0,
            waits: Vec::new(),
            worker_s: 0,
            wanted: Vec::new(),
        }
    }

    /// One second, in which so many come that take so long each, in the mean.
    fn live(&mut self, arrivals: u64, task_s: f64) {
        self.second += 1;
        let now = self.second;
        self.waiting.extend((0..arrivals).map(|_| now));
        let here = self.coming.extract_if(.., |at| *at <= now).count();
        self.workers.extend((0..here).map(|_| Err(now)));
        for worker in &mut self.workers {
            if worker.is_ok_and(|ends| ends <= now) {
                *worker = Err(now);
                self.ended += 1;
            }
            if worker.is_err()
                && let Some(since) = self.waiting.pop_front()
            {
                self.waits.push(now - since);
                let takes = (-task_s * (1.0 - self.dice.unit()).ln()).max(1.0);
                *worker = Ok(now + takes as u64);
            }
        }
        self.worker_s += (self.workers.len() + self.coming.len()) as u64;
        self.decide(now);
    }

    fn decide(&mut self, now: u64) {
        let running = self.workers.iter().filter(|worker| worker.is_ok()).count() as u64;
        let tasks = Tasks {
            ready: self.waiting.len() as u64,
            running,
            unacknowledged: running,
            oldest_wait: Span::secs(self.waiting.front().map_or(0, |since| now - since)),
            ended: Some(self.ended),
        };
        let workers = Workers { running: self.workers.len() as u32, creating: self.coming.len() as u32, draining: 0 };
        let at = Timestamp(1_800_000_000_000).plus(Duration::from_secs(now));
        let load = Load { at, workers, tasks: Some(tasks), boot: Some(Span::secs(BOOT_S)), ..Load::default() };
        let (decision, state) = decide(&self.elastic, std::mem::take(&mut self.state), &load, at);
        self.state = state;
        self.wanted.push(decision.wanted);
        let there = workers.standing();
        if decision.wanted > there {
            self.coming.extend((there..decision.wanted).map(|_| now + BOOT_S));
        }
        let Removal::Idle(wait) = decision.removal else { panic!("busy ones would go") };
        for _ in decision.wanted..there {
            let long = |worker: &Result<u64, u64>| worker.is_err_and(|since| now - since >= wait.0.as_secs());
            let Some(goes) = self.workers.iter().position(long) else { break };
            let _idle = self.workers.remove(goes);
        }
    }

    /// Tasks that come evenly, or by chance, at so many a second.
    fn steady(&mut self, rate: f64, task_s: f64, chance: bool, for_s: u64) {
        let mut owed = 0.0;
        for _ in 0..for_s {
            let mut arrivals = 0;
            if chance {
                let (mut left, none) = (self.dice.unit(), (-rate).exp());
                let mut share = none;
                while left > share && arrivals < 1_000 {
                    left -= share;
                    arrivals += 1;
                    share *= rate / arrivals as f64;
                }
            } else {
                owed += rate;
                arrivals = owed as u64;
                owed -= arrivals as f64;
            }
            self.live(arrivals, task_s);
        }
    }

    /// How often fewer were wanted and then more again, since then.
    fn turns(&self, since: usize) -> usize {
        let (mut fell, mut turns) = (false, 0);
        for pair in self.wanted[since..].windows(2) {
            if pair[1] < pair[0] {
                fell = true;
            } else if pair[1] > pair[0] && fell {
                (fell, turns) = (false, turns + 1);
            }
        }
        turns
    }

    fn waited(&self, share: f64) -> u64 {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits[((waits.len() - 1) as f64 * share) as usize]
    }

    fn late(&self, than_s: u64) -> f64 {
        let late = self.waits.iter().filter(|wait| **wait > than_s).count();
        late as f64 / self.waits.len().max(1) as f64
    }
}

fn goal(wait_s: u64) -> Policy {
    Policy::WaitGoal(WaitGoal::of(Span::secs(wait_s)))
}

/// From one task in twenty minutes to ten a second.
const RATES: [f64; 12] =
    [1.0 / 1_200.0, 1.0 / 300.0, 1.0 / 120.0, 1.0 / 60.0, 0.03, 0.06, 0.1, 0.3, 0.7, 1.0, 3.0, 10.0];
const WARM_S: u64 = 3_600;

#[test]
fn under_an_even_load_nothing_goes_to_and_fro_at_any_level() {
    for rate in RATES {
        for wait_s in [20, 90] {
            let mut queue = Queue::new(goal(wait_s), 1);
            queue.steady(rate, 20.0, false, WARM_S + 3_600);
            // What comes so rarely that a worker would stand idle for most of the time has one made for it each time.
            let most = if rate < 1.0 / 240.0 { (3_600.0 * rate) as usize } else { 0 };
            assert!(queue.turns(WARM_S as usize) <= most, "{rate}/s, {wait_s} s: {}", queue.turns(WARM_S as usize));
        }
    }
}

#[test]
fn under_a_load_that_comes_by_chance_it_hardly_ever_turns_and_the_goal_is_kept() {
    let (mut turns, mut hours) = (0, 0);
    for rate in RATES.into_iter().filter(|rate| *rate >= 1.0 / 120.0) {
        for seed in 1..4 {
            let mut queue = Queue::new(goal(20), seed);
            queue.steady(rate, 20.0, true, WARM_S);
            queue.waits.clear();
            queue.steady(rate, 20.0, true, 3_600);
            println!(
                "{rate:.4}/s seed {seed}: {} turns, {:.3} late, wanted {:?}",
                queue.turns(WARM_S as usize),
                queue.late(20),
                queue.wanted.last()
            );
            (turns, hours) = (turns + queue.turns(WARM_S as usize), hours + 1);
            assert!(queue.late(20) <= 0.06, "{rate}/s: {} late", queue.late(20));
        }
    }
    assert!(turns * 10 <= hours, "{turns} turns in {hours} hours");
}

#[test]
fn bursts_of_short_tasks_cost_far_less_than_one_worker_each_and_wait_no_longer_than_the_goal() {
    let run = |policy| {
        let mut queue = Queue::new(policy, 7);
        for _ in 0..6 {
            queue.live(300, 15.0);
            queue.steady(0.0, 15.0, false, 1_200);
        }
        assert_eq!(queue.ended, 1_800);
        assert_eq!(queue.wanted.last(), Some(&0), "to nothing between them");
        queue
    };
    let each = run(Policy::NForN(NForN { idle_wait: Span::secs(60), tasks_per_worker: 1 }));
    for wait_s in [60, 70, 80] {
        println!("{}", beside(&run(goal(wait_s)), &each, wait_s));
    }
    let goal = run(goal(90));
    println!("{}", beside(&goal, &each, 90));
    assert!(goal.late(90) < 0.05, "{}", goal.late(90));
    let share = goal.worker_s as f64 / each.worker_s as f64;
    assert!(share < 0.6, "{share}");
}

#[test]
fn under_bursts_that_overlap_it_takes_fewer_and_tasks_wait_no_longer() {
    let run = |policy| {
        let mut queue = Queue::new(policy, 11);
        for _ in 0..90 {
            let burst = 20 + queue.dice.below(300);
            queue.live(burst, 15.0);
            let pause = 20 + queue.dice.below(140);
            queue.steady(0.3, 15.0, true, pause);
        }
        queue.steady(0.0, 15.0, false, 1_200);
        assert!(queue.waiting.is_empty());
        queue
    };
    let each = run(Policy::NForN(NForN { idle_wait: Span::secs(60), tasks_per_worker: 1 }));
    let goals: Vec<Queue> = [30, 60].into_iter().map(|wait_s| run(goal(wait_s))).collect();
    println!("{}", beside(&goals[0], &each, 30));
    println!("{}", beside(&goals[1], &each, 60));
    for goal in &goals {
        assert!(goal.waited(0.95) <= each.waited(0.95));
        assert!(goal.worker_s * 10 < each.worker_s * 9);
    }
}

/// The goal's figures beside those of a worker for each task.
fn beside(goal: &Queue, each: &Queue, wait_s: u64) -> String {
    let (p95, p95_each) = (goal.waited(0.95), each.waited(0.95));
    let share = goal.worker_s as f64 / each.worker_s as f64;
    format!("wait {wait_s} s: p95 {p95} s beside {p95_each} s, {share:.2} of the worker-hours")
}

#[test]
fn a_successor_goes_on_where_its_predecessor_was() {
    let mut one = Queue::new(goal(30), 3);
    one.steady(0.5, 20.0, true, 900);
    let written = serde_json::to_string(&one.state).unwrap();
    assert_eq!(serde_json::from_str::<State>(&written).unwrap(), one.state);
    assert!(written.len() < 16_000, "{} bytes of state", written.len());
}
