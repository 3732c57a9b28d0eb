//! A thousand machines, their workers and their tasks, by events in simulated time. The resource manager's own passes run
//! against it: its policies, packing, sharing, consolidation and giving back, second by second.
//!
//! Simulated are the manager that keeps what is recorded, and a provider whose machines boot, are paid for and may be taken
//! back. Seconds in which nothing is under way are passed over, up to [`QUIET_PASS_S`].

mod machines;
mod ports;
mod tasks;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use mutirao_core::clock::ManualClock;
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::{Clock, Dice, QueueName, Timestamp, WorkerId};
use mutirao_elastic::fleet::{Member, Trouble};
use mutirao_elastic::packing::{Amounts, Kind, Layer, Market, Need, NodeName};
use mutirao_elastic::policy::Policy;
use mutirao_elastic::{Decision, Elastic, State, Terms};
use mutirao_resource::Ports;
use mutirao_resource::pass::{Active, HalfEmpty};
use parking_lot::Mutex;

use super::outcome::Outcome;
use super::trace::{Arrival, SHAPES};

/// Between two passes while nothing is under way.
const QUIET_PASS_S: u64 = 5;
/// From a worker's start on a node that is there to its first word.
const WORKER_BOOT_MS: u64 = 3_000;
/// From a spot notice to the end of the machine.
const NOTICE_MS: u64 = 120_000;
/// After the last arrival, everything must have ended within this.
const AFTER_S: u64 = 6 * 3_600;

/// One experiment.
#[derive(Clone)]
pub struct Setup {
    pub policy: Policy,
    pub half_empty: HalfEmpty,
    pub kinds: Vec<Kind>,
    /// At most so many workers of a queue.
    pub workers_max: u32,
    pub arrivals: Arc<Vec<Arrival>>,
    pub seed: u64,
}

/// A machine of four cpus and 16 GiB.
pub fn machine(name: &str, market: Market, price: u64, boot_s: u64, lasts_s: Option<u64>, available: u32) -> Kind {
    Kind {
        name: name.into(),
        capacity: Amounts::of(Cpus { milli: 4_000 }, Bytes(16 << 30)),
        labels: Default::default(),
        layer: Layer::Cloud,
        price_micros_per_hour: price,
        market,
        boot: Span::secs(boot_s),
        interrupted_every: lasts_s.map(Span::secs),
        available,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    NodeUp(u32),
    WorkerUp(u32),
    /// The n-th task that this worker runs.
    TaskEnds(u32, u32),
    Notice(u32),
    TakenBack(u32),
}

#[derive(Clone, Copy)]
struct Task {
    came_ms: u64,
    takes_ms: u64,
    /// It was begun before, in vain.
    again: bool,
}

enum Doing {
    Starting,
    Idle { since_ms: u64 },
    Busy { task: Task, since_ms: u64 },
}

struct Worker {
    queue: usize,
    node: u32,
    doing: Doing,
    runs: u32,
    told: bool,
}

struct Machine {
    name: NodeName,
    kind: usize,
    made_ms: u64,
    up: bool,
    taken: bool,
    workers: BTreeSet<u32>,
    ended: BTreeSet<u32>,
}

/// One queue: what is kept of it, and its tasks.
struct Line {
    name: QueueName,
    elastic: Elastic,
    need: Need,
    state: State,
    members: BTreeMap<WorkerId, Member>,
    trouble: Option<Trouble>,
    decision: Option<Decision>,
    ready: VecDeque<Task>,
    running: u64,
    ended: u64,
    alive: BTreeSet<u32>,
    /// Who has been idle longest is given something first, as a broker does that goes round.
    idle: BTreeSet<(u64, u32)>,
}

struct Inner {
    clock: Arc<ManualClock>,
    began: Timestamp,
    arrivals: Arc<Vec<Arrival>>,
    kinds: Vec<Kind>,
    dice: Dice,
    lines: Vec<Line>,
    workers: BTreeMap<u32, Worker>,
    machines: BTreeMap<u32, Machine>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    requests: BTreeMap<String, Vec<WorkerId>>,
    issued: u32,
    made: u32,
    /// Something was changed since the last pass.
    stirred: bool,
    outcome: Outcome,
}

#[derive(Clone)]
pub struct World(Arc<Mutex<Inner>>);

/// Lives through it to the end: until every task has ended and every machine was given back.
pub fn run(setup: Setup) -> Outcome {
    let world = World::new(&setup);
    let last_s = setup.arrivals.last().map_or(0, |arrival| arrival.at_ms / 1_000);
    let (clock, tasks) = (world.0.lock().clock.clone(), setup.arrivals.len() as u64);
    let mut active = world.active(&setup, clock.clone());
    for second in 1..last_s + AFTER_S {
        clock.advance(Duration::from_secs(1));
        {
            let mut inner = world.0.lock();
            inner.until(second * 1_000);
            if !std::mem::take(&mut inner.stirred) && !second.is_multiple_of(QUIET_PASS_S) {
                continue;
            }
        }
        let passed = active.pass().now_or_never();
        assert!(matches!(passed, Some(Ok(_))), "a pass in memory ends at once and well: {passed:?}");
        let mut inner = world.0.lock();
        inner.watch(second);
        if second > last_s && inner.outcome.ended == tasks && inner.machines.is_empty() {
            break;
        }
    }
    let mut inner = world.0.lock();
    inner.outcome.lost = tasks - inner.outcome.ended;
    std::mem::take(&mut inner.outcome)
}

impl World {
    fn new(setup: &Setup) -> Self {
        let began = Timestamp(1_800_000_000_000);
        let line = |shape: &super::trace::Shape| Line {
            name: shape.name.parse().expect("a name"),
            elastic: Elastic {
                min: 0,
                max: setup.workers_max,
                stale_after: Span::secs(60),
                policy: setup.policy.clone(),
            },
            need: Need {
                amounts: Amounts::of(Cpus { milli: shape.cpu_milli }, Bytes(shape.memory_gib << 30)),
                ..Need::default()
            },
            state: State::default(),
            members: BTreeMap::new(),
            trouble: None,
            decision: None,
            ready: VecDeque::new(),
            running: 0,
            ended: 0,
            alive: BTreeSet::new(),
            idle: BTreeSet::new(),
        };
        let first = setup.arrivals.first().map(|arrival| Reverse((arrival.at_ms, Event::Arrive(0))));
        Self(Arc::new(Mutex::new(Inner {
            clock: ManualClock::starting_at(began),
            began,
            arrivals: setup.arrivals.clone(),
            kinds: setup.kinds.clone(),
            dice: Dice::seeded(setup.seed),
            lines: SHAPES.iter().map(line).collect(),
            workers: BTreeMap::new(),
            machines: BTreeMap::new(),
            events: first.into_iter().collect(),
            requests: BTreeMap::new(),
            issued: 0,
            made: 0,
            stirred: false,
            outcome: Outcome::default(),
        })))
    }

    fn active(&self, setup: &Setup, clock: Arc<dyn Clock>) -> Active {
        let ports = Ports {
            manager: Arc::new(self.clone()),
            provider: Arc::new(self.clone()),
            clock,
            dice: Arc::new(Dice::seeded(setup.seed)),
            terms: Terms::default(),
            holds: Arc::new(|_| true),
        };
        Active::new(ports, 1).with_half_empty(setup.half_empty)
    }
}

impl Inner {
    fn at(&self, ms: u64) -> Timestamp {
        self.began.plus(Duration::from_millis(ms))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now().since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    fn later(&mut self, at_ms: u64, event: Event) {
        self.events.push(Reverse((at_ms, event)));
    }

    /// Everything that happens up to then.
    fn until(&mut self, ms: u64) {
        while let Some(Reverse((at_ms, event))) = self.events.peek().copied()
            && at_ms <= ms
        {
            self.events.pop();
            match event {
                Event::Arrive(n) => self.arrive(n),
                Event::NodeUp(node) => self.node_up(node, at_ms),
                Event::WorkerUp(worker) => self.worker_up(worker, at_ms),
                Event::TaskEnds(worker, run) => self.task_ends(worker, run, at_ms),
                Event::Notice(node) => self.notice(node, at_ms),
                Event::TakenBack(node) => self.taken_back(node, at_ms),
            }
        }
    }

    /// What is there in this second.
    fn watch(&mut self, second: u64) {
        let wanted = self.lines.iter().filter_map(|line| line.decision.as_ref()).map(|d| d.wanted).sum();
        let waiting = self.lines.iter().map(|line| line.ready.len() as u32).sum();
        self.outcome.look(second, wanted, waiting, self.machines.len() as u32);
    }
}
