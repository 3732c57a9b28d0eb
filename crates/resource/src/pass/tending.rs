//! One queue's turn in a pass: record, then drain, end, launch, and ask for more, in the order that makes it safe to die in
//! between.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mutirao_core::{QueueName, WorkerId};
use mutirao_elastic::packing::consolidating::Emptied;
use mutirao_elastic::packing::{Need, NodeName};
use mutirao_elastic::policy::Policy;
use mutirao_elastic::protocol::{Balance, CREATE_MAX, Create, QueueBalance};

use super::listing::Listed;
use super::{Active, Cut, NODES_AT_ONCE, Next};
use crate::manager::ManagerError;
use crate::nodes::Rooms;
use crate::provider::{Launch, ProviderError};
use crate::queue::{Queue, Scene};

/// A worker that has had nothing to do for this long ends itself, and for this many times its policy's wait.
const IDLE_END_MIN: Duration = Duration::from_secs(3_600);
const IDLE_END_WAITS: u32 = 4;

/// What one queue's turn is about.
pub(super) struct View<'a> {
    pub balance: &'a Balance,
    pub queue: &'a QueueBalance,
    pub listed: Option<&'a Listed>,
    pub drained: &'a BTreeSet<NodeName>,
    pub emptying: &'a Emptied,
    pub yielding: &'a BTreeSet<WorkerId>,
}

impl Active {
    /// One queue. What fails at the provider ends this queue's pass; what fails at the manager ends the whole.
    pub(super) async fn tend(&mut self, view: &View<'_>, listed: &Listed, rooms: &mut Rooms) -> Result<Next, Cut> {
        let name = &view.queue.queue;
        let mut queue = self.queues.remove(name).unwrap_or_else(|| Queue::adopting(view.queue));
        let done = self.tend_with(&mut queue, view, listed, rooms).await;
        self.queues.insert(name.clone(), queue);
        done
    }

    async fn tend_with(
        &mut self,
        queue: &mut Queue,
        view: &View<'_>,
        listed: &Listed,
        rooms: &mut Rooms,
    ) -> Result<Next, Cut> {
        let name = &view.queue.queue;
        let (ports, generation) = (self.ports.clone(), self.generation);
        let none = BTreeMap::new();
        let scene = Scene {
            balance: view.queue,
            balance_at: view.balance.at,
            listed: view.listed.map(|listed| listed.by_queue.get(name).unwrap_or(&none)),
            drained: view.drained,
            emptying: view.emptying,
            yielding: view.yielding,
            silent: &listed.silent,
            taken: &listed.taken,
            answering: &listed.answering,
            ended: &listed.ended,
            terms: &ports.terms,
            dice: &ports.dice,
            generation,
            now: self.now(),
        };
        if view.listed.is_some() {
            queue.listed();
        }
        if let Some(create) = self.unanswered.get(name).cloned() {
            self.act()?;
            let created = ports.manager.create(name, &create).await?;
            self.unanswered.remove(name);
            queue.created(created.workers, &create, self.now());
            // The balance is from before.
            return Ok(Next::AtOnce);
        }
        let Some(steps) = queue.pass(&scene) else { return Ok(Next::InAWhile) };
        if let Some(record) = &steps.record {
            self.act()?;
            ports.manager.record(name, record).await?;
        }
        queue.kept(&steps, &scene);
        for worker in &steps.drains {
            self.act()?;
            match ports.manager.drain(worker, generation).await {
                Err(ManagerError::Refused(why)) => tracing::warn!(%worker, why, "a worker cannot be told to finish"),
                told => told?,
            }
            queue.told(worker);
        }
        for (n, (worker, node)) in steps.ends.iter().enumerate() {
            self.act()?;
            if let Err(error) = ports.provider.end(worker, node, generation).await {
                queue.not_ended(&steps.ends[n..]);
                return self.stumble(queue, name, &error);
            }
            queue.ended();
        }
        for (worker, node) in &steps.launches {
            if let Err(error) = self.launch(queue, view.queue, worker, node).await? {
                return self.stumble(queue, name, &error);
            }
        }
        if steps.ask == 0 {
            queue.unplaced(None);
            return Ok(Next::InAWhile);
        }
        self.ask(queue, view.queue, steps.ask, rooms).await
    }

    /// Places new workers, has the manager make them known, and launches them.
    async fn ask(
        &mut self,
        queue: &mut Queue,
        balance: &QueueBalance,
        count: u32,
        rooms: &mut Rooms,
    ) -> Result<Next, Cut> {
        let name = &balance.queue;
        let placed = rooms.place(name, &balance.need, count.min(CREATE_MAX));
        queue.unplaced(placed.without);
        for kind in placed.make.iter().take(NODES_AT_ONCE) {
            self.act()?;
            self.requests += 1;
            let node = NodeName(format!("{kind}-{}-{}", self.generation, self.requests));
            if let Err(error) = self.ports.provider.create_node(&node, kind, self.generation).await {
                return self.stumble(queue, name, &error);
            }
            tracing::info!(%node, kind, "a node is made");
        }
        if placed.nodes.is_empty() {
            return Ok(Next::InAWhile);
        }
        self.requests += 1;
        let create = Create {
            generation: self.generation,
            request: format!("r{}", self.requests),
            nodes: placed.nodes,
            need: Some(balance.need.amounts.clone()),
        };
        self.act()?;
        self.unanswered.insert(name.clone(), create.clone());
        let created = self.ports.manager.create(name, &create).await?;
        self.unanswered.remove(name);
        tracing::info!(queue = %name, workers = created.workers.len(), "workers are created");
        queue.created(created.workers.clone(), &create, self.now());
        for (worker, node) in queue.fresh(&created.workers) {
            if let Err(error) = self.launch(queue, balance, &worker, &node).await? {
                return self.stumble(queue, name, &error);
            }
        }
        Ok(Next::AtOnce)
    }

    async fn launch(
        &self,
        queue: &mut Queue,
        balance: &QueueBalance,
        worker: &WorkerId,
        node: &NodeName,
    ) -> Result<Result<(), ProviderError>, Cut> {
        self.act()?;
        let invitation = match self.ports.manager.invitation(worker, self.generation).await {
            Err(ManagerError::Refused(why)) => return Ok(Err(ProviderError::Refused(why))),
            invitation => invitation?,
        };
        let launch = Launch {
            worker: worker.clone(),
            queue: balance.queue.clone(),
            node: node.clone(),
            // What its place was taken for, whatever the definition says by now.
            need: Need { amounts: queue.need_of(worker, balance), ..balance.need.clone() },
            idle_end: idle_end(balance),
            invitation: invitation.token,
        };
        self.act()?;
        let launched = self.ports.provider.launch(&launch, self.generation).await;
        if launched.is_ok() {
            queue.launched(worker, self.now());
        }
        Ok(launched)
    }

    fn stumble(&self, queue: &mut Queue, name: &QueueName, error: &ProviderError) -> Result<Next, Cut> {
        tracing::warn!(queue = %name, provider = self.ports.provider.name(), %error, "the provider fails");
        queue.failed(&error.to_string(), &self.ports.terms, &self.ports.dice, self.now());
        Ok(Next::InAWhile)
    }
}

/// Far above what any policy waits: only those whom everybody has forgotten come to it.
fn idle_end(balance: &QueueBalance) -> Duration {
    let waits = match balance.elastic.as_ref().map(|elastic| &elastic.policy) {
        Some(Policy::NForN(policy)) => policy.idle_wait.0,
        _ => Duration::ZERO,
    };
    waits.saturating_mul(IDLE_END_WAITS).max(IDLE_END_MIN)
}
