//! The provider's part: processes on nodes, calls that fail or land although nobody waits for them.

use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::{Timestamp, WorkerId};
use mutirao_elastic::packing::{Kind, Layer, NodeName};
use mutirao_elastic::protocol::{OfferedNode, Wish};
use mutirao_resource::{Have, Launch, NodeSeen, Origin, Provider, ProviderError};

use super::{Inner, NodeThere, Process, World};

fn refused<T>() -> Result<T, ProviderError> {
    Err(ProviderError::Refused("the provider is out of order".into()))
}

impl Inner {
    fn call(&mut self, work: impl FnOnce(&mut Inner)) -> Result<(), ProviderError> {
        if self.dead {
            return refused();
        }
        self.calls += 1;
        self.provider_calls += 1;
        if self.faults.dies_at.contains(&self.calls) {
            if self.faults.lands {
                work(self);
                self.within_limits();
            }
            self.dead = true;
            return refused();
        }
        let fails = self.faults.provider_fails_each.is_some_and(|each| self.provider_calls.is_multiple_of(each));
        if !fails || self.provider_calls.is_multiple_of(2) {
            work(self);
            self.within_limits();
        }
        if fails {
            self.errors += 1;
            return refused();
        }
        Ok(())
    }

    fn start(&mut self, launch: &Launch) {
        if self.processes.contains_key(&launch.worker) || !self.nodes.contains_key(&launch.node) {
            return;
        }
        self.launched += 1;
        let mute = self.faults.mute_each.is_some_and(|each| self.launched.is_multiple_of(each));
        let (now, after) = (self.now(), Duration::from_secs(1 + self.dice.below(8)));
        let process = Process {
            queue: launch.queue.clone(),
            node: launch.node.clone(),
            reports_at: (!mute).then(|| now.plus(after)),
            idle_since: now.plus(after),
            task_left_s: None,
            drained: false,
        };
        self.processes.insert(launch.worker.clone(), process);
    }

    fn stop(&mut self, worker: &WorkerId) {
        let Some(process) = self.processes.remove(worker) else { return };
        if process.task_left_s.is_some() && !self.told.contains(worker) {
            self.broken = Some(format!("{worker} was ended while it worked"));
        }
        self.back(&process);
    }

    /// What it ran waits again.
    fn back(&mut self, process: &Process) {
        self.lines.get_mut(&process.queue).expect("its queue").ready.extend(process.task_left_s);
    }

    /// A node dies with all that is on it.
    pub fn kill_node(&mut self, name: &str) {
        let on_it = |process: &Process| process.node.0 == name;
        let dead: Vec<WorkerId> = self.processes.iter().filter(|(_, p)| on_it(p)).map(|(w, _)| w.clone()).collect();
        for worker in dead {
            let process = self.processes.remove(&worker).expect("it was there");
            self.back(&process);
        }
    }
}

#[async_trait]
impl Provider for World {
    fn name(&self) -> &str {
        "world"
    }

    async fn list(&self, _: u64) -> Result<Have, ProviderError> {
        let mut inner = self.0.lock();
        inner.lists += 1;
        let silent = inner.faults.lists_not_each.is_some_and(|each| inner.lists.is_multiple_of(each));
        if inner.dead || silent {
            return refused();
        }
        let seen = |(name, there): (&NodeName, &NodeThere)| NodeSeen {
            node: OfferedNode {
                name: name.clone(),
                provider: "world".into(),
                kind: None,
                capacity: there.capacity.clone(),
                labels: Default::default(),
                layer: Layer::Cloud,
                answers: inner.now() >= there.answers_at,
                note: None,
                stands: None,
            },
            origin: there.origin,
            workers: inner
                .processes
                .iter()
                .filter(|(_, p)| p.node == *name)
                .map(|(w, p)| (w.clone(), p.queue.clone()))
                .collect(),
            ended: inner
                .ended
                .iter()
                .filter(|(_, on)| *on == name && !inner.faults.ends_untold)
                .map(|(worker, _)| worker.clone())
                .collect(),
        };
        let mut nodes: Vec<NodeSeen> = inner.nodes.iter().map(seen).collect();
        let each = |fault: Option<u64>| fault.is_some_and(|each| inner.lists.is_multiple_of(each));
        for seen in &mut nodes {
            if each(inner.faults.forgets_each) {
                seen.workers.pop_first();
            }
            if each(inner.faults.invents_each) {
                seen.workers.insert(WorkerId(format!("nobody-{}", inner.lists)), super::queue());
            }
        }
        Ok(Have { nodes })
    }

    async fn launch(&self, launch: &Launch, _: u64) -> Result<(), ProviderError> {
        self.0.lock().call(|inner| inner.start(launch))
    }

    async fn end(&self, worker: &WorkerId, _: &NodeName, _: u64) -> Result<(), ProviderError> {
        self.0.lock().call(|inner| inner.stop(worker))
    }

    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        Ok(self.0.lock().kinds.clone())
    }

    async fn create_node(&self, node: &NodeName, kind: &str, _: u64) -> Result<(), ProviderError> {
        self.0.lock().call(|inner| {
            let Some(at) = inner.kinds.iter().position(|k| k.name == kind && k.available > 0) else { return };
            inner.kinds[at].available -= 1;
            let capacity = inner.kinds[at].capacity.clone();
            let answers_at = Timestamp(inner.now().0 + 20_000);
            inner.nodes.entry(node.clone()).or_insert(NodeThere {
                capacity,
                origin: Origin::Made,
                answers_at,
                wish: Wish::Open,
            });
        })
    }

    async fn remove_node(&self, node: &NodeName, _: u64) -> Result<(), ProviderError> {
        self.0.lock().call(|inner| {
            inner.kill_node(&node.0);
            inner.nodes.remove(node);
        })
    }
}
