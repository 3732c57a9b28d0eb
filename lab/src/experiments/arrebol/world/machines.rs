//! Machines: made, paid for, given back, and taken back by their owner.

use mutirao_elastic::packing::{Market, NodeName};

use super::{Event, Inner, Machine, NOTICE_MS};

impl Inner {
    pub(super) fn node(&self, name: &NodeName) -> Option<u32> {
        self.machines.iter().find(|(_, machine)| machine.name == *name).map(|(node, _)| *node)
    }

    pub(super) fn make(&mut self, name: &NodeName, kind: &str) {
        let Some(kind) = self.kinds.iter().position(|known| known.name == kind) else { return };
        if self.kinds[kind].available == 0 {
            return;
        }
        self.kinds[kind].available -= 1;
        self.made += 1;
        let (node, now_ms) = (self.made, self.now_ms());
        let machine = Machine {
            name: name.clone(),
            kind,
            made_ms: now_ms,
            up: false,
            taken: false,
            workers: Default::default(),
            ended: Default::default(),
        };
        self.machines.insert(node, machine);
        self.outcome.node_starts += 1;
        // From half of what is said to half as much again.
        let boot_ms = self.kinds[kind].boot.0.as_millis() as f64 * (0.5 + self.dice.unit());
        self.later(now_ms + boot_ms as u64, Event::NodeUp(node));
        if let (Market::Spot, Some(every)) = (self.kinds[kind].market, self.kinds[kind].interrupted_every) {
            let lasts_ms = -(1.0 - self.dice.unit()).ln() * every.0.as_millis() as f64;
            self.later(now_ms + lasts_ms as u64, Event::Notice(node));
        }
    }

    pub(super) fn node_up(&mut self, node: u32, _: u64) {
        if let Some(machine) = self.machines.get_mut(&node) {
            machine.up = true;
            self.stirred = true;
        }
    }

    pub(super) fn notice(&mut self, node: u32, at_ms: u64) {
        if let Some(machine) = self.machines.get_mut(&node) {
            machine.taken = true;
            self.stirred = true;
            self.later(at_ms + NOTICE_MS, Event::TakenBack(node));
        }
    }

    pub(super) fn taken_back(&mut self, node: u32, at_ms: u64) {
        let Some(machine) = self.machines.get(&node) else { return };
        for worker in machine.workers.clone() {
            self.worker_gone(worker, at_ms);
        }
        self.outcome.taken_back += 1;
        self.stirred = true;
        self.end_machine(node, at_ms);
    }

    pub(super) fn end_machine(&mut self, node: u32, at_ms: u64) {
        let Some(machine) = self.machines.remove(&node) else { return };
        let kind = &mut self.kinds[machine.kind];
        kind.available += 1;
        let there_ms = at_ms - machine.made_ms;
        self.outcome.node_stops += 1;
        self.outcome.node_ms += there_ms;
        if kind.market != Market::Reserved {
            self.outcome.cost_micros += there_ms as f64 / 3_600_000.0 * kind.price_micros_per_hour as f64;
        }
    }
}
