//! What goes wrong, and to whom. Every kind can be survived without losing or doubling an end; that is what is tested.

use super::flaw::Flaw;
use super::ground::{Event, MS, SECOND, Service};
use super::wire::{ConnId, FromBroker, Pid};
use super::worker::worker_of;
use super::world::World;

/// Kinds of disasters.
pub const KINDS: usize = 21;

/// After this long without a sign of life the broker gives a connection up.
const HEARTBEAT_US: (u64, u64) = (5 * SECOND, 12 * SECOND);

impl World {
    /// One disaster, of a kind that this seed's weather has.
    pub fn disaster(&mut self) {
        let weights = &self.ground.weather.disasters;
        let mut at = self.ground.dice.below(weights.iter().sum::<u64>().max(1));
        let kind = weights.iter().position(|weight| {
            let hit = at < *weight;
            at = at.saturating_sub(*weight);
            hit
        });
        if let Some(kind) = kind {
            self.ground.oracle.tally.disasters += 1;
            self.strike(kind);
        }
    }

    fn strike(&mut self, kind: usize) {
        let short_us = self.ground.between(50 * MS, 3 * SECOND);
        let long_us = self.ground.between(3 * SECOND, 30 * SECOND);
        let some_us = if self.ground.chance(50) { short_us } else { long_us };
        let manager = self.any(self.managers.keys().copied().collect());
        let worker = self.any(self.workers.keys().copied().collect());
        let process = if self.ground.chance(50) { manager.or(worker) } else { worker.or(manager) };
        match (kind, manager, worker, process) {
            (0, Some(pid), ..) => self.kill(pid),
            (1, _, Some(pid), _) => self.kill(pid),
            (2, Some(pid), ..) => self.freeze(pid, short_us),
            (3, Some(pid), ..) => self.freeze(pid, long_us),
            (4, _, Some(pid), _) => self.freeze(pid, some_us),
            (5, ..) => self.suspend(some_us),
            (6, _, _, Some(pid)) => self.cut_from_broker(pid, some_us),
            (7, Some(pid), ..) => {
                self.ground.note(|| format!("{pid:?} is cut off the store for {some_us} us"));
                self.ground.cut(pid, Service::Store, some_us);
            }
            (8, _, _, Some(pid)) => self.reset(pid),
            (9, ..) => {
                self.ground.oracle.tally.outages += u64::from(some_us > 3 * SECOND);
                self.broker.crash(&mut self.ground, some_us);
            }
            (10, ..) => {
                self.ground.note(|| format!("store: away for {short_us} us"));
                self.store.go_away(&self.ground, short_us);
            }
            (11, ..) => {
                self.ground.note(|| format!("store: crashes, away for {some_us} us"));
                self.store.crash(&self.ground, some_us);
            }
            (12, ..) => {
                self.ground.note(|| format!("store: slow for {long_us} us"));
                self.store.slow_down(&self.ground, long_us);
            }
            (13, _, _, Some(pid)) => self.step_wall(pid),
            (14, Some(pid), ..) => self.leave(pid),
            (15, ..) => self.ground.after(0, Event::HireManager),
            (16, _, Some(pid), _) => self.send_home(pid),
            (17, ..) => self.stray(),
            (18, ..) => self.hand_over(),
            (19, ..) => self.damage(some_us),
            (20, _, Some(pid), _) => self.have_rest(pid),
            _ => {}
        }
    }

    fn any(&self, pids: Vec<Pid>) -> Option<Pid> {
        pids.get(self.ground.dice.below(pids.len() as u64) as usize).copied()
    }

    fn kill(&mut self, pid: Pid) {
        self.ground.note(|| format!("{pid:?} is killed"));
        if let Some(manager) = self.managers.remove(&pid) {
            self.is_dead(manager.conn());
            let back_us = self.ground.between(100 * MS, 8 * SECOND);
            if self.ground.chance(50) {
                self.ground.after(back_us, Event::RestartManager(manager.me.clone()));
            } else if self.ground.chance(60) || self.managers.is_empty() {
                self.ground.after(back_us, Event::HireManager);
            }
            if self.ground.has(Flaw::SharesItsFolder) {
                self.managers.insert(pid, manager);
            }
        } else if let Some(worker) = self.workers.remove(&pid) {
            self.is_dead(worker.conn());
            self.ground.oracle.warrants.gone(&worker.session);
            if self.ground.chance(40) {
                let seen_us = self.ground.between(MS, 200 * MS);
                self.ground.after(seen_us, Event::SeenDying(pid));
            }
            self.hire_instead_of(&worker.queue);
        }
    }

    /// The connection of a dead process: closed by its kernel at once, or, when the machine died, found dead later.
    fn is_dead(&mut self, conn: ConnId) {
        let (from, to) = if self.ground.chance(70) { (0, 50 * MS) } else { HEARTBEAT_US };
        let noticed_us = self.ground.between(from, to);
        self.ground.after(noticed_us, Event::Buried(conn));
    }

    fn hire_instead_of(&mut self, queue: &mutirao_core::id::QueueName) {
        let at = self.ground.weather.queues.iter().position(|name| name == queue);
        let back_us = self.ground.between(100 * MS, 10 * SECOND);
        if let Some(at) = at.filter(|_| self.ground.chance(85)) {
            self.ground.after(back_us, Event::HireWorker(at));
        }
    }

    fn freeze(&mut self, pid: Pid, for_us: u64) {
        self.ground.note(|| format!("{pid:?} freezes for {for_us} us"));
        self.put_to_sleep(pid, for_us);
        let heartbeat_us = self.ground.between(HEARTBEAT_US.0, HEARTBEAT_US.1);
        if for_us > heartbeat_us
            && let Some(conn) = self.conn_of(pid)
        {
            self.ground.after(heartbeat_us, Event::Buried(conn));
            self.ground.after(heartbeat_us, Event::FromBroker(conn, FromBroker::Lost));
        }
    }

    /// The whole machine sleeps.
    fn suspend(&mut self, for_us: u64) {
        let pids: Vec<Pid> = self.managers.keys().chain(self.workers.keys()).copied().collect();
        for pid in pids {
            self.freeze(pid, for_us);
        }
    }

    fn cut_from_broker(&mut self, pid: Pid, for_us: u64) {
        self.ground.note(|| format!("{pid:?} is cut off the broker for {for_us} us"));
        self.ground.cut(pid, Service::Broker, for_us);
        // A short cut only delays; a long one breaks the connection, and each side finds out by itself.
        if for_us > 3 * SECOND
            && let Some(conn) = self.conn_of(pid)
        {
            if self.managers.contains_key(&pid) {
                self.ground.oracle.warrants.excuse("an owner heard nothing and could not know");
            }
            self.ground.doomed.insert(conn);
            let (broker_us, process_us) =
                (self.ground.between(2 * SECOND, 10 * SECOND), self.ground.between(2 * SECOND, 10 * SECOND));
            self.ground.after(broker_us, Event::Buried(conn));
            self.ground.after(process_us, Event::FromBroker(conn, FromBroker::Lost));
        }
    }

    /// A connection breaks, and one side knows before the other: what is on its way may still arrive.
    fn reset(&mut self, pid: Pid) {
        let Some(conn) = self.conn_of(pid) else { return };
        self.ground.note(|| format!("{conn:?} is reset"));
        let later_us = self.ground.between(0, 5 * SECOND);
        let (broker_us, process_us) = if self.ground.chance(60) { (later_us, 0) } else { (0, later_us) };
        self.ground.after(broker_us, Event::Buried(conn));
        self.ground.after(process_us, Event::FromBroker(conn, FromBroker::Lost));
    }

    fn step_wall(&mut self, pid: Pid) {
        let most_ms = if self.ground.chance(50) { 10_000 } else { 3_600_000 };
        let by_ms = self.ground.dice.below(2 * most_ms) as i64 - most_ms as i64;
        self.ground.note(|| format!("{pid:?}: the wall clock steps by {by_ms} ms"));
        if let Some(manager) = self.managers.get_mut(&pid) {
            manager.clock.step(by_ms);
        }
        if let Some(worker) = self.workers.get_mut(&pid) {
            worker.clock.step(by_ms);
        }
    }

    fn leave(&mut self, pid: Pid) {
        if let Some(manager) = self.managers.get_mut(&pid).filter(|manager| !manager.is_leaving()) {
            manager.leave(&mut self.ground);
            if self.managers.values().all(|manager| manager.is_leaving()) || self.ground.chance(60) {
                let back_us = self.ground.between(0, 8 * SECOND);
                self.ground.after(back_us, Event::HireManager);
            }
        }
    }

    /// An upgrade: whoever has most work out leaves, and another is there at once.
    fn hand_over(&mut self) {
        let busiest = self.managers.iter().filter(|(_, manager)| !manager.is_leaving());
        let busiest = busiest.max_by_key(|(_, manager)| manager.tasks_out()).map(|(pid, _)| *pid);
        if let Some(manager) = busiest.and_then(|pid| self.managers.get_mut(&pid)) {
            self.ground.oracle.tally.handovers += u64::from(manager.tasks_out() > 0);
            manager.leave(&mut self.ground);
            self.ground.after(0, Event::HireManager);
        }
    }

    /// A row of a job cannot be read for a while: damaged, or written by a newer version.
    fn damage(&mut self, for_us: u64) {
        let jobs = self.store.rows.unfinished();
        if let Some(job) = jobs.get(self.ground.dice.below(jobs.len() as u64) as usize) {
            self.ground.note(|| format!("store: {job:?} cannot be read for {for_us} us"));
            self.ground.oracle.tally.damaged += 1;
            self.store.rows.damage(*job, self.ground.now_us + for_us);
        }
    }

    /// Somebody has it written that a worker shall take nothing new.
    fn have_rest(&mut self, pid: Pid) {
        let worker = worker_of(pid);
        self.ground.note(|| format!("store: {worker} is to rest"));
        self.store.rows.resting.insert(worker);
    }

    fn send_home(&mut self, pid: Pid) {
        let Some(worker) = self.workers.get_mut(&pid) else { return };
        match self.ground.chance(60) {
            true => worker.drain(&mut self.ground),
            false => worker.halt(&mut self.ground),
        }
        let queue = worker.queue.clone();
        self.hire_instead_of(&queue);
    }
}
