//! What parts say each second, and what a mover is shown.

use super::actors::Phase;
use super::world::World;
use super::{host_name, part};
use crate::message::{Message, Own, Use};
use crate::scene::{Host, Scene, Seated};

/// Of a host by itself, and of a replica that remembers nothing and has nothing before it.
const HOST_BYTES: f64 = 600e6;
const REPLICA_BYTES: f64 = 4e6;

impl World<'_> {
    pub fn scene(&self) -> Scene {
        let hosts = (0..self.nodes.len()).filter(|host| self.nodes[*host].alive).map(|host| Host {
            id: host_name(host),
            memory_total_bytes: self.setup.hosts[host].memory_bytes,
            cores: f64::from(self.setup.hosts[host].cores),
            node: None,
            takes: true,
        });
        let seated = |operator: usize, replica: usize, copy: usize| Seated {
            part: part(operator, replica),
            host: host_name(self.copies[copy].host),
            fixed: None,
            barred: Default::default(),
            state_bytes: self.setup.operators[operator].state_bytes,
            cores_max: f64::from(self.setup.operators[operator].threads),
            goal_ms: self.setup.goal_ms,
            links: Vec::new(),
        };
        let under_way = self.transfers.iter().filter(|transfer| !transfer.is_over());
        let moving = under_way.map(|transfer| {
            let copy = &self.copies[transfer.from];
            part(copy.operator, copy.replica)
        });
        Scene {
            now_ms: self.now / 1_000_000,
            hosts: hosts.collect(),
            parts: self.replicas().map(|(operator, replica, copy)| seated(operator, replica, copy)).collect(),
            moving: moving.collect(),
        }
    }

    fn replicas(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let numbered = self.operators.iter().enumerate();
        numbered.flat_map(|(number, operator)| {
            operator.replicas.iter().enumerate().map(move |(replica, copy)| (number, replica, *copy))
        })
    }

    fn off(&self) -> f64 {
        1.0 + self.setup.noise.measures * (2.0 * self.dice.unit() - 1.0)
    }

    fn own(&self, copy: usize) -> Own {
        let copy = &self.copies[copy];
        let queue = self.operators[copy.operator].log.len().saturating_sub(copy.next) as f64;
        let events = f64::from(copy.second.began + copy.second.ended);
        Own {
            cpu: copy.second.busy_ns as f64 / 1e9,
            memory_bytes: REPLICA_BYTES
                + self.setup.operators[copy.operator].state_bytes
                + queue * self.setup.event_bytes,
            disk_bytes: 0.0,
            network_bytes: events * self.setup.event_bytes,
        }
    }

    fn node(&self, host: usize) -> Use {
        let mut sum = Own { memory_bytes: HOST_BYTES, ..Own::default() };
        // Copies that replay work too, and are on the host's account.
        for copy in (0..self.copies.len()).filter(|copy| self.copies[*copy].host == host) {
            let own = self.own(copy);
            sum.cpu += own.cpu;
            if self.copies[copy].phase != Phase::Gone {
                sum.memory_bytes += own.memory_bytes;
                sum.network_bytes += own.network_bytes;
            }
        }
        let cores = f64::from(self.setup.hosts[host].cores);
        let core = |_| (sum.cpu / cores * self.off()).clamp(0.0, 1.0);
        Use {
            cpus: (0..self.setup.hosts[host].cores).map(core).collect(),
            io_wait: vec![0.0; self.setup.hosts[host].cores as usize],
            memory_bytes: sum.memory_bytes * self.off(),
            disk_bytes: 0.0,
            network_bytes: sum.network_bytes,
        }
    }

    pub fn tell(&mut self) {
        let second = self.now / 1_000_000_000;
        let nodes: Vec<Use> = (0..self.nodes.len()).map(|host| self.node(host)).collect();
        let replicas: Vec<_> = self.replicas().collect();
        for (operator, replica, index) in replicas {
            let copy = &self.copies[index];
            if !self.nodes[copy.host].alive || copy.phase == Phase::Gone {
                continue;
            }
            let ended = f64::from(copy.second.ended);
            let latency_ms = (ended > 0.0).then(|| copy.second.latency_ns as f64 / ended.max(1.0) / 1e6);
            let message = Message {
                part: part(operator, replica),
                host: host_name(copy.host),
                at_ms: second * 1_000,
                latency_ms,
                wait_ms: 0.0,
                events_in: f64::from(copy.second.began),
                events_out: ended,
                queue: (self.operators[operator].log.len().saturating_sub(copy.next)) as f64,
                held_back: 0.0,
                own: self.own(index),
                node: nodes[copy.host].clone(),
            };
            self.send(second, message);
        }
        self.copies.iter_mut().for_each(|copy| copy.second = Default::default());
        for message in self.late.remove(&second).unwrap_or_default() {
            self.mover.hear(second * 1_000, message);
        }
    }

    fn send(&mut self, second: u64, message: Message) {
        let bad = self.setup.noise.messages;
        let chance = if bad > 0.0 { self.dice.unit() } else { 1.0 };
        if chance < bad {
            return;
        }
        if chance < 2.0 * bad {
            self.late.entry(second + 3).or_default().push(message);
            return;
        }
        if chance < 3.0 * bad {
            self.mover.hear(second * 1_000, message.clone());
        }
        self.mover.hear(second * 1_000, message);
    }
}
