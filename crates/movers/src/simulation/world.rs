//! What happens, in its order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use mutirao_core::Dice;

use super::actors::{Copy, Node, Operator, Phase};
use super::setup::{Moving, Setup};
use super::tally::Outcome;
use crate::message::Message;
use crate::mover::Mover;
use crate::settings::Settings;

pub(super) type Nanos = u64;

pub(super) fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

/// Until it is noticed that a host is gone.
const LEASE_S: f64 = 5.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The source of an operator says one.
    Comes {
        operator: usize,
    },
    Done {
        copy: usize,
        row: usize,
        took: Nanos,
    },
    Second,
    /// A move gets to where it is next.
    Goes {
        transfer: usize,
    },
    Resumes {
        copy: usize,
    },
    Lost {
        host: usize,
    },
    /// What was on a lost host begins elsewhere.
    Found {
        host: usize,
    },
}

pub(super) struct World<'a> {
    pub setup: &'a Setup,
    pub mover: Mover,
    pub operators: Vec<Operator>,
    pub copies: Vec<Copy>,
    pub nodes: Vec<Node>,
    pub transfers: Vec<super::moving::Transfer>,
    pub now: Nanos,
    pub outcome: Outcome,
    pub dice: Dice,
    /// Messages on their way, by the second in which they come.
    pub late: BTreeMap<u64, Vec<Message>>,
    service: Dice,
    ahead: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    count: u64,
    /// Seconds and events of this second, of first copies and of last ones.
    course: [(f64, u32); 2],
}

impl<'a> World<'a> {
    pub fn new(setup: &'a Setup, settings: Settings, seed: u64) -> Self {
        let mut copies = Vec::new();
        let mut operators = Vec::new();
        for (number, operator) in setup.operators.iter().enumerate() {
            let mut replicas = Vec::new();
            for (replica, host) in operator.hosts.iter().enumerate() {
                replicas.push(copies.len());
                copies.push(Copy::new(number, replica, *host, 0, Phase::Serving));
            }
            // Of its own, so that the same events come whoever moves what.
            let arrivals = Dice::seeded(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
            operators.push(Operator { log: Vec::new(), first: Vec::new(), replicas, quiet_until: 0, arrivals });
        }
        let node = |host: &super::HostSetup| Node { free: host.cores, alive: true, turn: Default::default() };
        let mut world = Self {
            setup,
            mover: Mover::new(settings),
            operators,
            copies,
            nodes: setup.hosts.iter().map(node).collect(),
            transfers: Vec::new(),
            now: 0,
            outcome: Outcome::default(),
            dice: Dice::seeded(seed ^ 0x5eed),
            late: BTreeMap::new(),
            service: Dice::seeded(seed ^ 0xface),
            ahead: BinaryHeap::new(),
            count: 0,
            course: Default::default(),
        };
        for operator in 0..world.operators.len() {
            world.next_event(operator);
        }
        world.at(1_000_000_000, Event::Second);
        for (host, lost) in setup.hosts.iter().enumerate().filter_map(|(host, one)| Some((host, one.lost_s?))) {
            world.at(nanos(lost), Event::Lost { host });
            world.at(nanos(lost + LEASE_S), Event::Found { host });
        }
        world
    }

    pub fn run(mut self) -> Outcome {
        let end = nanos(f64::from(self.setup.seconds));
        while let Some(Reverse((at, _, event))) = self.ahead.pop() {
            if at > end {
                break;
            }
            self.now = at;
            match event {
                Event::Comes { operator } => self.comes(operator),
                Event::Done { copy, row, took } => self.done(copy, row, took),
                Event::Second => self.second(),
                Event::Goes { transfer } => self.goes(transfer),
                Event::Resumes { copy } => self.resume(copy),
                Event::Lost { host } => self.lost(host),
                Event::Found { host } => self.found(host),
            }
        }
        self.outcome
    }

    pub fn at(&mut self, at: Nanos, event: Event) {
        self.count += 1;
        self.ahead.push(Reverse((at, self.count, event)));
    }

    pub fn after(&mut self, seconds: f64, event: Event) {
        self.at(self.now + nanos(seconds), event);
    }

    fn next_event(&mut self, operator: usize) {
        let from = self.now.max(self.operators[operator].quiet_until);
        let rate = self.setup.operators[operator].load.rate(from as f64 / 1e9).max(0.001);
        let chance = 1.0 - self.operators[operator].arrivals.unit();
        self.at(from + nanos(-chance.ln() / rate), Event::Comes { operator });
    }

    fn comes(&mut self, operator: usize) {
        // Whoever was silenced since it was to be said does not say it afterwards.
        if self.now >= self.operators[operator].quiet_until {
            let now = self.now;
            let this = &mut self.operators[operator];
            this.log.push(now);
            this.first.push(false);
            self.outcome.said += 1;
            for replica in 0..self.operators[operator].replicas.len() {
                self.offer(self.operators[operator].replicas[replica]);
            }
            self.offer_followers(operator);
        }
        self.next_event(operator);
    }

    fn takes(&self, copy: &Copy) -> bool {
        let said = self.operators[copy.operator].log.len();
        let until = match copy.phase {
            Phase::Serving | Phase::Replaying => said,
            Phase::Until(row) => row.min(said),
            Phase::Stopped | Phase::Gone => return false,
        };
        copy.next < until && copy.running < self.setup.operators[copy.operator].threads
    }

    /// There may be something for it to do.
    pub fn offer(&mut self, copy: usize) {
        let this = &self.copies[copy];
        let host = this.host;
        if !this.waiting && self.takes(this) {
            self.copies[copy].waiting = true;
            self.nodes[host].turn.push_back(copy);
        }
        self.feed(host);
    }

    /// Parts take turns at the cores, an event each.
    fn feed(&mut self, host: usize) {
        while self.nodes[host].alive && self.nodes[host].free > 0 {
            let Some(copy) = self.nodes[host].turn.pop_front() else { return };
            self.copies[copy].waiting = false;
            if !self.takes(&self.copies[copy]) {
                continue;
            }
            let took = nanos(self.work(copy));
            let this = &mut self.copies[copy];
            let row = this.next;
            this.next += 1;
            this.running += 1;
            this.second.began += 1;
            self.nodes[host].free -= 1;
            self.at(self.now + took, Event::Done { copy, row, took });
            if self.takes(&self.copies[copy]) {
                self.copies[copy].waiting = true;
                self.nodes[host].turn.push_back(copy);
            }
            self.follows(copy);
        }
    }

    fn work(&self, copy: usize) -> f64 {
        let Copy { operator, host, .. } = self.copies[copy];
        let spread = self.setup.noise.service * (2.0 * self.service.unit() - 1.0);
        let slow = self.setup.hosts[host].slow.filter(|(from, _)| self.now >= nanos(*from)).map_or(1.0, |slow| slow.1);
        self.setup.operators[operator].service_s * (1.0 + spread) * slow
    }

    fn done(&mut self, copy: usize, row: usize, took: Nanos) {
        let this = &mut self.copies[copy];
        let (operator, host) = (this.operator, this.host);
        if !self.nodes[host].alive {
            return;
        }
        this.running -= 1;
        self.nodes[host].free += 1;
        this.second.busy_ns += took;
        if row >= this.heard_from {
            let latency = self.now - self.operators[operator].log[row] + 2 * nanos(self.setup.network_s);
            this.second.ended += 1;
            this.second.latency_ns += latency;
            let seconds = latency as f64 / 1e9;
            let first = &mut self.operators[operator].first[row];
            let again = std::mem::replace(first, true);
            if again {
                self.outcome.slow.add(seconds);
            } else {
                self.outcome.fast.add(seconds);
                self.outcome.processed += 1;
            }
            let course = &mut self.course[usize::from(again)];
            *course = (course.0 + seconds, course.1 + 1);
        }
        self.stops(copy);
        self.offer(copy);
    }

    fn second(&mut self) {
        let [first, last] =
            std::mem::take(&mut self.course).map(|(sum, count)| sum / f64::from(count.max(1)) * 1_000.0);
        self.outcome.course.push((first, last));
        self.tell();
        self.snapshots();
        self.hiccups();
        let scene = self.scene();
        if let Some(round) = self.mover.round(&scene) {
            self.outcome.asked += u32::from(round.asks_for_host.is_some());
            for one in round.moves() {
                self.begin(&one);
            }
            self.outcome.rounds.push(round);
        }
        self.after(1.0, Event::Second);
    }

    fn snapshots(&mut self) {
        let Moving::Live { snapshot_s, .. } = self.setup.moving else { return };
        if (self.now / 1_000_000_000).is_multiple_of(u64::from(snapshot_s.max(1))) {
            self.copies
                .iter_mut()
                .filter(|copy| copy.phase == Phase::Serving)
                .for_each(|copy| copy.snapshot = copy.next);
        }
    }

    fn hiccups(&mut self) {
        for copy in 0..self.copies.len() {
            let stops = self.setup.noise.hiccups > 0.0 && self.dice.unit() < self.setup.noise.hiccups;
            if stops && self.copies[copy].phase == Phase::Serving {
                self.copies[copy].phase = Phase::Stopped;
                self.after(self.setup.noise.hiccup_s * 2.0 * self.dice.unit(), Event::Resumes { copy });
            }
        }
    }

    fn resume(&mut self, copy: usize) {
        if self.copies[copy].phase == Phase::Stopped && !self.is_copied(copy) {
            self.copies[copy].phase = Phase::Serving;
            self.offer(copy);
        }
    }
}
