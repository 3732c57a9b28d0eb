//! The simulated world: who lives in it, what happens next, and when it is over.

use std::collections::BTreeMap;

use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::task::Needs;
use mutirao_shards::MemberId;

use super::broker::Broker;
use super::clients::{self, Clients};
use super::clock::LocalClock;
use super::flaw::Flaw;
use super::ground::{Event, Ground, Recording, SECOND};
use super::manager::Manager;
use super::oracle::Tally;
use super::store::Store;
use super::weather::{Climate, Weather};
use super::wire::{ConnId, Pid};
use super::worker::Worker;

/// How long everything may take to end once the disasters are over.
const CALM_US_MAX: u64 = 900 * SECOND;
/// Events of one history; past it something goes round and round.
const EVENTS_MAX: u64 = 2_000_000;
const MANAGERS_MAX: usize = 4;
const WORKERS_MAX: usize = 9;

/// A process that does not run, and what waits for it, in order.
struct Frozen {
    until_us: u64,
    waiting: Vec<Event>,
}

pub struct World {
    pub ground: Ground,
    pub store: Store,
    pub broker: Broker,
    pub managers: BTreeMap<Pid, Manager>,
    pub workers: BTreeMap<Pid, Worker>,
    frozen: BTreeMap<Pid, Frozen>,
    clients: Clients,
    born: u32,
}

impl World {
    pub fn new(seed: u64, climate: Climate, flaw: Option<Flaw>, recording: Recording) -> Self {
        let mut ground = Ground::new(seed, climate, flaw, recording);
        let clients = Clients::new(&mut ground);
        let mut world = Self {
            ground,
            store: Store::default(),
            broker: Broker::default(),
            managers: BTreeMap::new(),
            workers: BTreeMap::new(),
            frozen: BTreeMap::new(),
            clients,
            born: 0,
        };
        for queue in world.ground.weather.queues.clone() {
            let change = clients::first(queue, &world.ground);
            world.ground.oracle.queues.changed(&change);
            world.store.rows.change_queue(&change);
        }
        for _ in 0..world.ground.weather.managers {
            world.hire_manager();
        }
        for at in 0..world.ground.weather.queues.len() {
            for _ in 0..world.ground.weather.workers_per_queue {
                world.hire_worker(at, 1 + world.ground.dice.below(4) as u32);
            }
        }
        world.ground.after(SECOND, Event::Disaster);
        world
    }

    /// Lives through the disasters and the calm after them.
    pub fn live(&mut self) -> Result<Tally, String> {
        let (chaos_until_us, mut events) = (self.ground.now_us + self.ground.weather.chaos_us, 0);
        while self.ground.now_us < chaos_until_us {
            events += 1;
            self.step()?;
        }
        self.calm_down();
        let calm_until_us = self.ground.now_us + CALM_US_MAX;
        let mut look_at_us = self.ground.now_us;
        loop {
            events += 1;
            self.step()?;
            if self.ground.now_us >= look_at_us {
                look_at_us = self.ground.now_us + SECOND / 2;
                if self.is_over() {
                    break;
                }
                if self.ground.now_us > calm_until_us || events > EVENTS_MAX {
                    return Err(self.what_is_left());
                }
            }
        }
        self.ground.oracle.check_all(&self.store.rows);
        self.ground.oracle.tally.events = events;
        self.ground.oracle.failure().map_or(Ok(self.ground.oracle.tally), |why| Err(why.to_owned()))
    }

    fn calm_down(&mut self) {
        self.ground.note(|| "the disasters are over".into());
        self.ground.calm = true;
        self.ground.oracle.calm_since_us = Some(self.ground.now_us);
        self.ground.heal();
        self.store.recover();
        self.broker.recover();
        self.ground.oracle.queues.let_go();
        self.clients.open_all(&self.ground);
        self.hire_manager();
        // Somebody for every task there is.
        for at in 0..self.ground.weather.queues.len() {
            self.hire_worker(at, 4);
        }
    }

    fn is_over(&self) -> bool {
        self.clients.are_content()
            && self.store.rows.all_finished()
            && self.workers.values().all(Worker::is_idle)
            && self.managers.values().all(Manager::is_quiet)
            && self.broker.leftovers().is_empty()
    }

    fn what_is_left(&self) -> String {
        let mut left = Vec::new();
        if !self.clients.are_content() {
            left.push("a client was not answered".to_owned());
        }
        for (job, row) in self.store.rows.jobs.iter().filter(|(_, row)| !row.finished) {
            left.push(format!("{job:?} has ended {:?} of {} tasks", row.counts.ended(), row.definition.total));
        }
        for worker in self.workers.values().filter(|worker| !worker.is_idle()) {
            left.push(format!("{} is not idle", worker.session));
        }
        for manager in self.managers.values().filter(|manager| !manager.is_quiet()) {
            left.push(format!("{} has tasks open", manager.me));
        }
        for (name, ready, unacked) in self.broker.leftovers() {
            left.push(format!("{ready} and {unacked} messages are left in {name:?}"));
        }
        format!("it does not end: {}", left.join("; "))
    }

    fn step(&mut self) -> Result<(), String> {
        let Some(event) = self.ground.next() else { return Err("nothing happens any more".into()) };
        match self.asleep(&event) {
            Some(frozen) => frozen.waiting.push(event),
            None => self.happen(event),
        }
        self.ground.oracle.failure().map_or(Ok(()), |why| Err(why.to_owned()))
    }

    /// Whoever this happens to, if it is frozen.
    fn asleep(&mut self, event: &Event) -> Option<&mut Frozen> {
        let pid = match event {
            Event::Tick(pid) | Event::Alarm(pid, _) | Event::Answered(pid, ..) | Event::Asked(pid, ..) => pid,
            Event::FromBroker(conn, _) => &conn.pid,
            _ => return None,
        };
        self.frozen.get_mut(pid)
    }

    /// From now on a process does not run, though its clock does.
    pub fn put_to_sleep(&mut self, pid: Pid, for_us: u64) {
        let until_us = self.ground.now_us + for_us;
        let frozen = self.frozen.entry(pid).or_insert(Frozen { until_us, waiting: Vec::new() });
        frozen.until_us = frozen.until_us.max(until_us);
        self.ground.at(until_us, Event::Thaw(pid));
    }

    fn wake(&mut self, pid: Pid) {
        if self.frozen.get(&pid).is_some_and(|frozen| frozen.until_us <= self.ground.now_us)
            && let Some(frozen) = self.frozen.remove(&pid)
        {
            self.ground.note(|| format!("{pid:?} goes on"));
            frozen.waiting.into_iter().for_each(|event| self.ground.after(0, event));
        }
    }

    fn happen(&mut self, event: Event) {
        let ground = &mut self.ground;
        match event {
            Event::AtBroker(conn, letter) => self.broker.hear(conn, letter, ground),
            Event::Durable(conn, confirm) => self.broker.confirm(conn, confirm, ground),
            Event::Buried(conn) => self.broker.bury(conn, ground),
            Event::AtStore(call) => self.store.hear(call, ground),
            Event::Commit(call, life) => self.store.commit(call, life, ground),
            Event::FromBroker(conn, letter) => {
                if let Some(manager) = self.managers.get_mut(&conn.pid) {
                    manager.hear(conn, letter, ground);
                } else if let Some(worker) = self.workers.get_mut(&conn.pid) {
                    worker.hear(conn, letter, ground);
                }
            }
            Event::Answered(pid, id, answer) => {
                if let Some(manager) = self.managers.get_mut(&pid) {
                    manager.answered(id, answer, ground);
                }
            }
            Event::Asked(pid, request, what) => {
                if let Some(manager) = self.managers.get_mut(&pid) {
                    manager.asked(request, what, ground);
                }
            }
            Event::Responded(request, response) => self.clients.hear(request, response, ground),
            Event::Tick(pid) => self.tick(pid),
            Event::Alarm(pid, alarm) => {
                if let Some(worker) = self.workers.get_mut(&pid) {
                    worker.alarm(alarm, ground);
                }
            }
            Event::Thaw(pid) => self.wake(pid),
            Event::SeenDying(pid) => {
                for manager in self.managers.values_mut() {
                    manager.bury(pid, ground);
                }
            }
            Event::ClientTick => {
                let managers: Vec<Pid> = self.managers.keys().copied().collect();
                self.clients.tick(&managers, ground);
            }
            Event::HireManager if self.managers.len() < MANAGERS_MAX => self.hire_manager(),
            Event::RestartManager(name) if self.managers.len() < MANAGERS_MAX => self.restart_manager(name),
            Event::HireWorker(at) if self.workers.len() < WORKERS_MAX => {
                self.hire_worker(at, 1 + self.ground.dice.below(4) as u32);
            }
            Event::HireManager | Event::RestartManager(_) | Event::HireWorker(_) => {}
            Event::Disaster if !self.ground.calm => {
                let next_us = self.ground.dice.below(self.ground.weather.disaster_every_us);
                self.ground.after(next_us, Event::Disaster);
                self.disaster();
            }
            Event::Disaster => {}
        }
    }

    fn tick(&mut self, pid: Pid) {
        if let Some(manager) = self.managers.get_mut(&pid) {
            manager.tick(&mut self.ground);
            if manager.is_gone(&self.ground) {
                self.ground.note(|| format!("{pid:?} has left"));
                let conn = manager.conn();
                self.managers.remove(&pid);
                self.broker.bury(conn, &mut self.ground);
            }
        } else if let Some(worker) = self.workers.get_mut(&pid) {
            worker.tick(&mut self.ground);
            // Whoever had to rest does so for as long as it lives; in the end another takes its place.
            let replaced = (self.ground.calm && worker.is_resting()).then(|| {
                worker.drain(&mut self.ground);
                worker.queue.clone()
            });
            if worker.is_gone() {
                self.ground.note(|| format!("{pid:?} has gone home"));
                self.ground.oracle.warrants.gone(&worker.session);
                let conn = worker.conn();
                self.workers.remove(&pid);
                self.broker.bury(conn, &mut self.ground);
            }
            self.ground.oracle.look_at(&self.workers, self.ground.now_us);
            let at = replaced.and_then(|queue| self.ground.weather.queues.iter().position(|name| *name == queue));
            if let Some(at) = at {
                self.hire_worker(at, 4);
            }
        }
    }

    pub fn conn_of(&self, pid: Pid) -> Option<ConnId> {
        let manager = self.managers.get(&pid).map(Manager::conn);
        manager.or_else(|| self.workers.get(&pid).map(Worker::conn))
    }

    /// A new machine: its clock has a rate of its own and has run for a while.
    fn birth(&mut self) -> (Pid, LocalClock) {
        self.born += 1;
        let up_us = self.ground.dice.below(900 * SECOND);
        (Pid(self.born), LocalClock::new(Weather::rate(&self.ground.dice), self.ground.now_us - up_us))
    }

    fn hire_manager(&mut self) {
        let (pid, clock) = self.birth();
        self.managers.insert(pid, Manager::start(pid, clock, &mut self.ground));
    }

    /// Another life under the same name, on a machine that may have been restarted with it.
    fn restart_manager(&mut self, name: MemberId) {
        self.ground.oracle.tally.restarts += 1;
        let (pid, clock) = self.birth();
        self.managers.insert(pid, Manager::start_again(pid, name, clock, &mut self.ground));
    }

    fn hire_worker(&mut self, at: usize, cpus: u32) {
        let (pid, clock) = self.birth();
        let queue = self.ground.weather.queues[at].clone();
        let capacity = Needs { cpus: Cpus { milli: 1_000 * cpus }, memory: Bytes(1 << 30) };
        self.workers.insert(pid, Worker::start(pid, queue, capacity, clock, &mut self.ground));
    }
}
