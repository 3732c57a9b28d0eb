//! A manager with its store, a provider with processes on nodes, and time, all in memory. The real passes run against it
//! and may die at each of their calls.
//!
//! At every instant no queue has more processes than its ceiling, and none is ended while it works untold.

mod manager;
mod provider;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::ManualClock;
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::{Clock, Dice, QueueName, Timestamp, WorkerId};
use mutirao_elastic::fleet::{Life, Member};
use mutirao_elastic::packing::{Amounts, Kind, Need, NodeName};
use mutirao_elastic::policy::{NForN, Policy};
use mutirao_elastic::protocol::{Offer, Wish};
use mutirao_elastic::{Decision, Elastic, State, Terms};
use mutirao_resource::pass::{Active, Cut};
use mutirao_resource::{Origin, Ports};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

/// How many seconds after a death the successor comes.
const BACK_AFTER_S: u64 = 3;

#[derive(Clone, Default)]
pub struct Faults {
    /// At which calls the resource manager dies.
    pub dies_at: Vec<u64>,
    /// A call during which it dies has done its work all the same.
    pub lands: bool,
    /// Each n-th call to the provider fails; every other of these has done its work.
    pub provider_fails_each: Option<u64>,
    /// Each n-th time it does not say what it has.
    pub lists_not_each: Option<u64>,
    /// Of each n-th call to the manager the answer is lost.
    pub answers_lost_each: Option<u64>,
    /// Each n-th process never reports.
    pub mute_each: Option<u64>,
    /// Each n-th listing lacks one worker of each node that it has.
    pub forgets_each: Option<u64>,
    /// Each n-th listing has a worker that is not there.
    pub invents_each: Option<u64>,
    /// Nodes do not know whose process has ended.
    pub ends_untold: bool,
}

pub struct Process {
    pub queue: QueueName,
    pub node: NodeName,
    pub reports_at: Option<Timestamp>,
    pub idle_since: Timestamp,
    /// Seconds of its task that are left.
    pub task_left_s: Option<u64>,
    pub drained: bool,
}

pub struct NodeThere {
    pub capacity: Amounts,
    pub origin: Origin,
    pub answers_at: Timestamp,
    pub wish: Wish,
}

/// One queue: what is kept of it, and its tasks by the seconds that they take.
#[derive(Default)]
pub struct Line {
    pub elastic: Option<Elastic>,
    pub state: State,
    pub members: BTreeMap<WorkerId, Member>,
    pub trouble: Option<mutirao_elastic::fleet::Trouble>,
    pub decision: Option<Decision>,
    pub ready: Vec<u64>,
    pub done: u64,
    /// Since when tasks have waited.
    pub waits_since: Option<Timestamp>,
}

pub struct Inner {
    pub clock: Arc<ManualClock>,
    pub dice: Dice,
    pub faults: Faults,
    pub generation: u64,
    pub lines: BTreeMap<QueueName, Line>,
    pub told: BTreeSet<WorkerId>,
    pub requests: BTreeMap<(u64, String), Vec<WorkerId>>,
    pub offer: Option<Offer>,
    pub processes: BTreeMap<WorkerId, Process>,
    /// Those that went by themselves, and where they were.
    pub ended: BTreeMap<WorkerId, NodeName>,
    pub nodes: BTreeMap<NodeName, NodeThere>,
    pub kinds: Vec<Kind>,
    pub calls: u64,
    pub provider_calls: u64,
    pub manager_calls: u64,
    pub lists: u64,
    pub launched: u64,
    pub issued: u64,
    pub records: u64,
    pub errors: u64,
    pub dead: bool,
    pub broken: Option<String>,
}

#[derive(Clone)]
pub struct World(pub Arc<Mutex<Inner>>);

/// What a call is to do.
pub enum Fate {
    Works,
    Lost,
    Dies,
}

pub fn queue() -> QueueName {
    "work".parse().expect("a name")
}

pub fn need() -> Need {
    Need { amounts: Amounts::of(Cpus { milli: 1_000 }, Bytes(0)), ..Need::default() }
}

pub fn capacity(cpus: u32) -> Amounts {
    Amounts::of(Cpus { milli: cpus * 1_000 }, Bytes(1 << 30))
}

pub fn n_for_n(min: u32, max: u32) -> Elastic {
    let policy = Policy::NForN(NForN { idle_wait: Span::secs(10), tasks_per_worker: 1 });
    Elastic { min, max, stale_after: Span::secs(60), policy }
}

impl Inner {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn within_limits(&mut self) {
        for (name, line) in &self.lines {
            let max = line.elastic.as_ref().map_or(u32::MAX, |elastic| elastic.max) as usize;
            let own: Vec<&WorkerId> = self.processes.iter().filter(|(_, p)| p.queue == *name).map(|(w, _)| w).collect();
            if own.len() > max {
                self.broken = Some(format!("{} processes of {name}, {max} allowed: {own:?}", own.len()));
            }
        }
    }

    fn second(&mut self) {
        let now = self.now();
        for (worker, process) in &mut self.processes {
            if process.reports_at.is_none_or(|at| now < at) {
                continue;
            }
            let line = self.lines.get_mut(&process.queue).expect("its queue");
            match process.task_left_s {
                Some(0 | 1) => {
                    (process.task_left_s, process.idle_since) = (None, now);
                    line.done += 1;
                }
                Some(left) => process.task_left_s = Some(left - 1),
                None => {}
            }
            let told = self.told.contains(worker);
            if process.task_left_s.is_none() && !told {
                process.task_left_s = line.ready.pop();
            }
            process.drained = told && process.task_left_s.is_none();
        }
        let gone = self.processes.extract_if(.., |_, process| process.drained);
        self.ended.extend(gone.map(|(worker, process)| (worker, process.node)));
        for line in self.lines.values_mut() {
            line.waits_since = if line.ready.is_empty() { None } else { line.waits_since.or(Some(now)) };
        }
    }
}

impl World {
    /// With one queue.
    pub fn new(elastic: Elastic, nodes: &[(&str, u32)], faults: Faults, seed: u64) -> Self {
        Self::of(&[(queue(), elastic)], nodes, faults, seed)
    }

    pub fn of(queues: &[(QueueName, Elastic)], nodes: &[(&str, u32)], faults: Faults, seed: u64) -> Self {
        let line = |elastic: &Elastic| Line { elastic: Some(elastic.clone()), ..Line::default() };
        let clock = ManualClock::starting_at(Timestamp(1_800_000_000_000));
        let there = |cpus: &u32| NodeThere {
            capacity: capacity(*cpus),
            origin: Origin::Standing,
            answers_at: Timestamp(0),
            wish: Wish::Open,
        };
        let nodes = nodes.iter().map(|(name, cpus)| (NodeName((*name).into()), there(cpus))).collect();
        Self(Arc::new(Mutex::new(Inner {
            clock,
            dice: Dice::seeded(seed),
            faults,
            generation: 0,
            lines: queues.iter().map(|(name, elastic)| (name.clone(), line(elastic))).collect(),
            told: BTreeSet::new(),
            requests: BTreeMap::new(),
            offer: None,
            processes: BTreeMap::new(),
            ended: BTreeMap::new(),
            nodes,
            kinds: Vec::new(),
            calls: 0,
            provider_calls: 0,
            manager_calls: 0,
            lists: 0,
            launched: 0,
            issued: 0,
            records: 0,
            errors: 0,
            dead: false,
            broken: None,
        })))
    }

    /// The one queue of most stories.
    pub fn work(&self) -> MappedMutexGuard<'_, Line> {
        MutexGuard::map(self.0.lock(), |inner| inner.lines.get_mut(&queue()).expect("a queue"))
    }

    /// A resource manager that has just come to hold the lease.
    pub fn successor(&self) -> Active {
        let (clock, generation) = {
            let mut inner = self.0.lock();
            inner.generation += 1;
            inner.dead = false;
            (inner.clock.clone(), inner.generation)
        };
        let world = self.clone();
        let ports = Ports {
            manager: Arc::new(self.clone()),
            provider: Arc::new(self.clone()),
            clock,
            dice: Arc::new(Dice::seeded(generation)),
            terms: Terms::default(),
            holds: Arc::new(move |generation| world.0.lock().generation == generation),
        };
        Active::new(ports, generation)
    }

    /// Seconds of life, with whoever acts; deaths are followed by successors. Gives the number of deaths.
    pub async fn live(&self, active: &mut Option<Active>, seconds: u64) -> u64 {
        let (mut deaths, mut back_in) = (0, 0);
        for _ in 0..seconds {
            {
                let mut inner = self.0.lock();
                inner.clock.advance(Duration::from_secs(1));
                inner.second();
            }
            if active.is_none() {
                if back_in > 0 {
                    back_in -= 1;
                } else {
                    *active = Some(self.successor());
                }
            }
            if let Some(acting) = active {
                let passed = acting.pass().await;
                assert!(!matches!(passed, Err(Cut::Lost)), "nobody else acts");
            }
            let dead = self.0.lock().dead;
            if dead && active.take().is_some() {
                deaths += 1;
                back_in = BACK_AFTER_S;
            }
            let (broken, calls) = {
                let inner = self.0.lock();
                (inner.broken.clone(), inner.calls)
            };
            assert_eq!(broken, None, "at call {calls}");
        }
        deaths
    }

    /// What the provider has is what the store says, and all of it works.
    pub fn settled(&self, wanted: usize, how: &str) {
        let inner = self.0.lock();
        let members: BTreeMap<&WorkerId, &Member> = inner.lines.values().flat_map(|line| &line.members).collect();
        let store: Vec<&WorkerId> = members.keys().copied().collect();
        let provider: Vec<&WorkerId> = inner.processes.keys().collect();
        assert_eq!(store, provider, "{how}: the store and the provider differ: {members:?}");
        let decided: Vec<_> = inner.lines.values().map(|line| &line.decision).collect();
        assert_eq!(provider.len(), wanted, "{how}: {decided:?}");
        assert!(members.values().all(|member| member.life == Life::Reported), "{how}: {members:?}");
    }
}
