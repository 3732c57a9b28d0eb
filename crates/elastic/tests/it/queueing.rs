//! A queue of checks and its workers, second by second. A worker has slots, each busy for the latency of what it asks, and
//! cpu for so many checks a second; whichever is less is its capacity. Workers wanted are there after a start-up time; those
//! no longer wanted finish what they have, which at this grain is at once.

use std::time::Duration;

use mutirao_core::quantity::Span;
use mutirao_core::{Dice, Timestamp};
use mutirao_elastic::measure::{Sample, Stage, Tasks, Use, Workers};
use mutirao_elastic::{Change, Elastic, Load, State, decide};

#[derive(Clone, Copy)]
pub struct Worker {
    pub slots: f64,
    pub latency_s: f64,
    pub cpu_per_s: f64,
}

impl Worker {
    fn capacity_per_s(&self) -> f64 {
        (self.slots / self.latency_s).min(self.cpu_per_s)
    }
}

pub struct Checks<'a> {
    pub elastic: &'a Elastic,
    pub worker: Worker,
    pub start_s: u64,
    /// Between two decisions.
    pub pace_s: u64,
    pub dice: Dice,
    now: Timestamp,
    state: State,
    ready: f64,
    /// In the last second.
    done: f64,
    running: u32,
    /// When each that was asked for will be there.
    creating: Vec<Timestamp>,
    pub history: Vec<Change>,
    pub ready_peak: f64,
}

impl<'a> Checks<'a> {
    pub fn new(elastic: &'a Elastic, worker: Worker, running: u32, seed: u64) -> Self {
        Self {
            elastic,
            worker,
            start_s: 5,
            pace_s: 15,
            dice: Dice::seeded(seed),
            now: Timestamp(1_800_000_000_000),
            state: State::default(),
            ready: 0.0,
            done: 0.0,
            running,
            creating: Vec::new(),
            history: Vec::new(),
            ready_peak: 0.0,
        }
    }

    pub fn run(&mut self, rate_per_s: f64, for_s: u64) {
        for second in 0..for_s {
            self.now = self.now.plus(Duration::from_secs(1));
            let unacknowledged = self.work(rate_per_s);
            let arrived = self.creating.extract_if(.., |at| *at <= self.now).count();
            self.running += arrived as u32;
            if second % self.pace_s == 0 {
                self.balance(unacknowledged);
            }
        }
    }

    /// A second's arrivals, 5 % more or less, against a second's capacity.
    fn work(&mut self, rate_per_s: f64) -> f64 {
        let arrivals = rate_per_s * (0.95 + 0.1 * self.dice.unit());
        let capacity = self.capacity_per_s();
        let offered = self.ready + arrivals;
        self.done = offered.min(capacity);
        self.ready = (offered - capacity).max(0.0);
        self.ready_peak = self.ready_peak.max(self.ready);
        if self.ready > 0.0 {
            // Whoever cannot keep up holds all it may prefetch.
            self.worker.slots * f64::from(self.running)
        } else {
            offered * self.worker.latency_s
        }
    }

    fn balance(&mut self, unacknowledged: f64) {
        let tasks = Tasks {
            ready: self.ready as u64,
            running: unacknowledged as u64,
            unacknowledged: unacknowledged as u64,
            ended: None,
            oldest_wait: Span(Duration::from_secs_f64(self.ready / self.capacity_per_s().max(1.0))),
        };
        let workers = Workers { running: self.running, creating: self.creating.len() as u32, draining: 0 };
        let load = Load { at: self.now, workers, tasks: Some(tasks), samples: self.samples(), ..Load::default() };
        let (decision, state) = decide(self.elastic, std::mem::take(&mut self.state), &load, self.now);
        self.state = state;
        self.history.extend(decision.change(self.now));
        let there = workers.standing();
        if decision.wanted > there {
            let ready_at = self.now.plus(Duration::from_secs(self.start_s));
            self.creating.extend((there..decision.wanted).map(|_| ready_at));
        } else {
            let mut surplus = there - decision.wanted;
            while surplus > 0 && self.creating.pop().is_some() {
                surplus -= 1;
            }
            self.running -= surplus;
        }
    }

    fn capacity_per_s(&self) -> f64 {
        self.worker.capacity_per_s() * f64::from(self.running)
    }

    /// What each of them uses of a cpu that does `cpu_per_s`.
    fn samples(&self) -> Vec<Sample> {
        let share = self.done / (self.worker.cpu_per_s * f64::from(self.running.max(1)));
        let cpu = Use { asked: 1_000, used: Some((share * 1_000.0) as u64) };
        let running = Sample { stage: Stage::Running(Span::secs(60)), cpu, memory: Use::default() };
        let creating = Sample { stage: Stage::Creating, cpu: Use { used: None, ..cpu }, memory: Use::default() };
        let (there, coming) = (self.running as usize, self.creating.len());
        std::iter::repeat_n(running, there).chain(std::iter::repeat_n(creating, coming)).collect()
    }

    pub fn running(&self) -> u32 {
        self.running
    }

    pub fn ready(&self) -> f64 {
        self.ready
    }

    /// The counts that were wanted, in order.
    pub fn counts(&self) -> Vec<u32> {
        self.history.iter().map(|change| change.to).collect()
    }

    /// How often a removal was taken back.
    pub fn flaps(&self) -> usize {
        self.history.windows(2).filter(|pair| pair[0].to < pair[0].from && pair[1].to > pair[1].from).count()
    }

    pub fn span(&self) -> Duration {
        match (self.history.first(), self.history.last()) {
            (Some(first), Some(last)) => last.at.since(first.at),
            _ => Duration::ZERO,
        }
    }
}
