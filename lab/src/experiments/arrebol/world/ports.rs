//! What the resource manager speaks with: the manager that keeps, and the provider that has the machines.

use async_trait::async_trait;
use mutirao_core::quantity::Span;
use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::fleet::{Activity, Fleet, Life, Member};
use mutirao_elastic::measure::{Load, Tasks};
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::protocol::{
    Balance, Create, Created, Invitation, LeaseAnswer, LeaseCall, Offer, OfferedNode, QueueBalance, Record,
};
use mutirao_resource::{Have, Launch, Manager, ManagerError, NodeSeen, Origin, Provider, ProviderError};

use super::{Doing, Event, Inner, Line, Machine, WORKER_BOOT_MS, Worker, World};

fn id(worker: u32) -> WorkerId {
    WorkerId(format!("w{worker:07}"))
}

fn number(worker: &WorkerId) -> u32 {
    worker.0[1..].parse().expect("an id of this world")
}

impl Inner {
    fn line(&mut self, queue: &QueueName) -> &mut Line {
        self.lines.iter_mut().find(|line| line.name == *queue).expect("a queue of this world")
    }

    fn balance_of(&self, line: &Line, now_ms: u64) -> QueueBalance {
        let at = self.at(now_ms);
        let session = |worker: &u32| {
            let known = &self.workers[worker];
            let activity = match &known.doing {
                Doing::Busy { since_ms, .. } => Activity::Busy { tasks: 1, since: Some(self.at(*since_ms)) },
                Doing::Starting | Doing::Idle { .. } if known.told => Activity::Drained,
                Doing::Idle { since_ms } => Activity::Idle { since: self.at(*since_ms) },
                Doing::Starting => Activity::Idle { since: at },
            };
            (id(*worker), activity)
        };
        let oldest_ms = line.ready.iter().map(|task| task.came_ms).next();
        let tasks = Tasks {
            ready: line.ready.len() as u64,
            running: line.running,
            unacknowledged: line.running,
            oldest_wait: Span(oldest_ms.map_or_else(Default::default, |came| at.since(self.at(came)))),
            ended: Some(line.ended),
        };
        let fleet = Fleet::of(line.members.clone(), line.trouble.clone());
        QueueBalance {
            queue: line.name.clone(),
            elastic: Some(line.elastic.clone()),
            need: line.need.clone(),
            load: Load { at, workers: fleet.counts(), tasks: Some(tasks), ..Load::default() },
            sessions: Some(line.alive.iter().map(session).collect()),
            state: line.state.clone(),
            fleet,
        }
    }

    fn seen(&self, machine: &Machine) -> NodeSeen {
        let kind = &self.kinds[machine.kind];
        let node = OfferedNode {
            name: machine.name.clone(),
            provider: "simulated".into(),
            kind: Some(kind.name.clone()),
            capacity: kind.capacity.clone(),
            labels: Default::default(),
            layer: kind.layer,
            answers: machine.up,
            note: None,
            stands: None,
        };
        let worker = |worker: &u32| (id(*worker), self.lines[self.workers[worker].queue].name.clone());
        NodeSeen {
            node,
            origin: if machine.taken { Origin::Taken } else { Origin::Made },
            workers: machine.workers.iter().map(worker).collect(),
            ended: machine.ended.iter().map(|worker| id(*worker)).collect(),
        }
    }
}

#[async_trait]
impl Manager for World {
    async fn lease(&self, _: &LeaseCall) -> Result<LeaseAnswer, ManagerError> {
        Err(ManagerError::Refused("nobody else is here".into()))
    }

    async fn balance(&self) -> Result<Balance, ManagerError> {
        let inner = self.0.lock();
        let now_ms = inner.now_ms();
        let queues = inner.lines.iter().map(|line| inner.balance_of(line, now_ms)).collect();
        Ok(Balance { at: inner.at(now_ms), queues, nodes: Vec::new() })
    }

    async fn create(&self, queue: &QueueName, create: &Create) -> Result<Created, ManagerError> {
        let mut inner = self.0.lock();
        inner.stirred = true;
        if let Some(workers) = inner.requests.get(&create.request) {
            return Ok(Created { workers: workers.clone() });
        }
        let at = inner.at(inner.now_ms());
        let mut workers = Vec::new();
        for node in &create.nodes {
            inner.issued += 1;
            let worker = id(inner.issued);
            let member = Member::new(Life::Asked, at, Some(node.clone())).needing(create.need.clone());
            inner.line(queue).members.insert(worker.clone(), member);
            workers.push(worker);
        }
        // Nobody dies here, so nobody asks twice.
        inner.requests.clear();
        inner.requests.insert(create.request.clone(), workers.clone());
        Ok(Created { workers })
    }

    async fn invitation(&self, _: &WorkerId, _: u64) -> Result<Invitation, ManagerError> {
        Ok(Invitation { token: String::new(), expires_at: Timestamp(i64::MAX) })
    }

    async fn drain(&self, worker: &WorkerId, _: u64) -> Result<(), ManagerError> {
        let mut inner = self.0.lock();
        inner.stirred = true;
        let worker = number(worker);
        if let Some(known) = inner.workers.get_mut(&worker) {
            known.told = true;
            let queue = known.queue;
            inner.lines[queue].idle.retain(|(_, idle)| *idle != worker);
        }
        Ok(())
    }

    async fn record(&self, queue: &QueueName, record: &Record) -> Result<(), ManagerError> {
        let mut inner = self.0.lock();
        let moved = !(record.members.is_empty() && record.gone.is_empty());
        inner.stirred |= moved;
        let line = inner.line(queue);
        line.state = record.state.clone();
        line.trouble = record.trouble.clone();
        line.decision = Some(record.decision.clone());
        line.members.extend(record.members.iter().map(|(worker, member)| (worker.clone(), member.clone())));
        for worker in &record.gone {
            line.members.remove(worker);
        }
        for worker in record.gone.iter().map(number) {
            for machine in inner.machines.values_mut() {
                machine.ended.remove(&worker);
            }
        }
        Ok(())
    }

    async fn offer(&self, _: &Offer) -> Result<(), ManagerError> {
        Ok(())
    }
}

#[async_trait]
impl Provider for World {
    fn name(&self) -> &str {
        "simulated"
    }

    async fn list(&self, _: u64) -> Result<Have, ProviderError> {
        let inner = self.0.lock();
        Ok(Have { nodes: inner.machines.values().map(|machine| inner.seen(machine)).collect() })
    }

    async fn launch(&self, launch: &Launch, _: u64) -> Result<(), ProviderError> {
        let mut inner = self.0.lock();
        let (worker, now_ms) = (number(&launch.worker), inner.now_ms());
        if inner.workers.contains_key(&worker) {
            return Ok(());
        }
        let silent = || ProviderError::NoSuchNode { node: launch.node.clone() };
        let node = inner.node(&launch.node).ok_or_else(silent)?;
        let queue = inner.lines.iter().position(|line| line.name == launch.queue).expect("a queue of this world");
        inner.workers.insert(worker, Worker { queue, node, doing: Doing::Starting, runs: 0, told: false });
        inner.machines.get_mut(&node).expect("it was found").workers.insert(worker);
        inner.outcome.worker_starts += 1;
        inner.stirred = true;
        inner.later(now_ms + WORKER_BOOT_MS, Event::WorkerUp(worker));
        Ok(())
    }

    async fn end(&self, worker: &WorkerId, _: &NodeName, _: u64) -> Result<(), ProviderError> {
        let mut inner = self.0.lock();
        let (worker, now_ms) = (number(worker), inner.now_ms());
        let Some(node) = inner.workers.get(&worker).map(|known| known.node) else { return Ok(()) };
        inner.stirred = true;
        if inner.worker_gone(worker, now_ms) {
            inner.outcome.killed += 1;
        }
        if let Some(machine) = inner.machines.get_mut(&node) {
            machine.workers.remove(&worker);
            machine.ended.insert(worker);
        }
        Ok(())
    }

    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        Ok(self.0.lock().kinds.clone())
    }

    async fn create_node(&self, node: &NodeName, kind: &str, _: u64) -> Result<(), ProviderError> {
        let mut inner = self.0.lock();
        inner.stirred = true;
        inner.make(node, kind);
        Ok(())
    }

    async fn remove_node(&self, node: &NodeName, _: u64) -> Result<(), ProviderError> {
        let mut inner = self.0.lock();
        let now_ms = inner.now_ms();
        if let Some(node) = inner.node(node) {
            inner.end_machine(node, now_ms);
        }
        Ok(())
    }
}
