//! A store, a provider with processes, a queue of tasks, and a resource manager that may die between any two steps, or in
//! the middle of a call. Second by second, under one seed.
//!
//! At every instant: the provider has no more than the ceiling allows, and no process is ended while it works unless it was
//! told to drain, gave no sign of life, or was never known.

mod manager;
mod process;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mutirao_core::{Dice, Timestamp, WorkerId};
use mutirao_elastic::fleet::{Activity, Life};
use mutirao_elastic::measure::Tasks;
use mutirao_elastic::{Aim, Change, Elastic, Fleet, Listing, Load, Removal, Seen, State, Terms};

pub use manager::{Call, Manager};
pub use process::Process;

/// More of them are looked at when `ELASTIC_SEEDS` says so; a failure names its seed.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let seeds = std::env::var("ELASTIC_SEEDS").ok().and_then(|n| n.parse().ok());
    0..seeds.unwrap_or(default)
}

/// How long a call to the provider may take, also one whose caller has died.
pub const CALL_S_MAX: u64 = 10;

/// What becomes of a call whose caller dies while it is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Landing {
    #[default]
    Never,
    AtOnce,
    Late,
}

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Every n-th call to the provider fails; of these, every other has done its work all the same.
    pub fails_each: Option<u64>,
    /// Every n-th process never reports.
    pub mute_each: Option<u64>,
    /// Of what it has, the provider leaves out of each listing this share.
    pub hides_percent: u64,
    /// So many that never were it lists until it is told twice to end them.
    pub ghosts: u32,
    /// After which steps the resource manager dies.
    pub dies_at: Vec<u64>,
    pub landing: Landing,
}

/// Where the wanted count comes from.
pub enum Want {
    /// From second to count.
    Schedule(Vec<(u64, u32)>),
    Policy(Elastic),
}

pub struct World {
    pub dice: Dice,
    pub terms: Terms,
    pub want: Want,
    pub max: u32,
    pub faults: Faults,
    pub store: Store,
    pub provider: BTreeMap<WorkerId, Process>,
    pub ready: VecDeque<u64>,
    pub done: u64,
    pub history: Vec<Change>,
    pub steps: u64,
    pub deaths: u64,
    pub errors: u64,
    pub peak: usize,
    pub started: Timestamp,
    pub now: Timestamp,
    calls: u64,
    launched: u64,
    issued: u64,
    under_way: Vec<(Timestamp, Call)>,
    ghosts: BTreeMap<WorkerId, u32>,
    manager: Option<Manager>,
    back_at: Timestamp,
}

/// What survives a death.
#[derive(Clone, Default)]
pub struct Store {
    pub fleet: Fleet,
    pub state: State,
}

impl World {
    pub fn new(want: Want, max: u32, faults: Faults, seed: u64) -> Self {
        let started = Timestamp(1_800_000_000_000);
        let ghosts = (0..faults.ghosts).map(|i| (WorkerId(format!("ghost{i}")), 2)).collect();
        Self {
            ghosts,
            dice: Dice::seeded(seed),
            terms: Terms::default(),
            want,
            max,
            faults,
            store: Store::default(),
            provider: BTreeMap::new(),
            ready: VecDeque::new(),
            done: 0,
            history: Vec::new(),
            steps: 0,
            deaths: 0,
            errors: 0,
            peak: 0,
            started,
            now: started,
            calls: 0,
            launched: 0,
            issued: 0,
            under_way: Vec::new(),
            manager: None,
            back_at: started,
        }
    }

    pub fn elapsed_s(&self) -> u64 {
        self.now.since(self.started).as_secs()
    }

    pub fn run_until(&mut self, end_s: u64) -> Result<(), String> {
        while self.elapsed_s() < end_s {
            self.second()?;
        }
        Ok(())
    }

    fn second(&mut self) -> Result<(), String> {
        self.now = self.now.plus(Duration::from_secs(1));
        let due = self.under_way.extract_if(.., |(at, _)| *at <= self.now).map(|(_, call)| call);
        for call in due.collect::<Vec<_>>() {
            self.carry_out(&call)?;
        }
        self.processes_go_on();
        if self.manager.is_none() && self.now >= self.back_at {
            self.manager = Some(Manager::adopting(&self.store));
        }
        if let Some(mut manager) = self.manager.take() {
            match manager.pass(self)? {
                manager::Pass::Over => self.manager = Some(manager),
                manager::Pass::Died => {
                    self.deaths += 1;
                    self.back_at = self.now.plus(Duration::from_secs(3));
                }
            }
        }
        self.within_limits()
    }

    fn within_limits(&mut self) -> Result<(), String> {
        self.peak = self.peak.max(self.provider.len());
        if self.provider.len() > self.max as usize {
            return Err(format!("{} processes, {} allowed: {:?}", self.provider.len(), self.max, self.provider.keys()));
        }
        Ok(())
    }

    /// The provider does what it was asked to; both calls may be repeated.
    pub fn carry_out(&mut self, call: &Call) -> Result<(), String> {
        match call {
            Call::Launch(worker) => {
                if !self.provider.contains_key(worker) {
                    self.launched += 1;
                    let mute = self.faults.mute_each.is_some_and(|each| self.launched.is_multiple_of(each));
                    let process = Process::new(self.now, &self.dice, mute);
                    self.provider.insert(worker.clone(), process);
                }
            }
            Call::End(worker) => {
                if let Some(times) = self.ghosts.get_mut(worker) {
                    *times -= 1;
                    self.ghosts.retain(|_, times| *times > 0);
                }
                let Some(process) = self.provider.remove(worker) else { return Ok(()) };
                if process.is_at_work() && !process.told_to_drain {
                    return Err(format!("{worker} was ended while it worked"));
                }
                self.ready.extend(process.task_left_s);
            }
        }
        self.within_limits()
    }

    fn processes_go_on(&mut self) {
        let lives: BTreeMap<&WorkerId, Life> = self.store.fleet.members.iter().map(|(w, m)| (w, m.life)).collect();
        for (worker, process) in &mut self.provider {
            process.told_to_drain |= lives.get(worker).is_some_and(|life| *life >= Life::Draining);
            self.done += process.go_on(self.now, &mut self.ready);
        }
        self.provider.retain(|_, process| !process.has_left());
    }

    pub fn seen(&self) -> Seen {
        let reporting = self.provider.iter().filter_map(|(worker, p)| Some((worker.clone(), p.activity()?)));
        // A worker whose identity was revoked is refused.
        let known = |worker: &WorkerId| self.store.fleet.members.get(worker).is_none_or(|m| m.life < Life::Ending);
        let shown = self.provider.keys().filter(|_| self.dice.below(100) >= self.faults.hides_percent);
        Seen {
            listing: Listing::Has(shown.chain(self.ghosts.keys()).cloned().collect()),
            sessions: reporting.filter(|(worker, _)| known(worker)).collect(),
            ended: Default::default(),
        }
    }

    pub fn load(&self, fleet: &Fleet) -> Load {
        let running = self.provider.values().filter(|p| p.is_at_work()).count() as u64;
        let tasks = Tasks { ready: self.ready.len() as u64, running, unacknowledged: running, ..Tasks::default() };
        Load { at: self.now, workers: fleet.counts(), tasks: Some(tasks), ..Load::default() }
    }

    /// What the provider has is what the store says, all of it reporting, as many as wanted.
    pub fn is_settled(&self, wanted: usize) -> Result<(), String> {
        let store: Vec<&WorkerId> = self.store.fleet.members.keys().collect();
        let provider: Vec<&WorkerId> = self.provider.keys().collect();
        if store != provider {
            return Err(format!("the store has {store:?}, the provider {provider:?}"));
        }
        let working = self
            .provider
            .values()
            .filter(|p| matches!(p.activity(), Some(Activity::Idle { .. } | Activity::Busy { .. })));
        let working = working.count();
        if working != wanted {
            return Err(format!("{working} of {} work, {wanted} are wanted", provider.len()));
        }
        Ok(())
    }

    pub fn aim(&self, wanted: u32, removal: Removal) -> Aim {
        Aim { wanted, max: self.max, removal }
    }

    /// The next step begins; this may be where the resource manager dies.
    fn step(&mut self) -> manager::Pass {
        self.steps += 1;
        if self.faults.dies_at.contains(&self.steps) { manager::Pass::Died } else { manager::Pass::Over }
    }
}
