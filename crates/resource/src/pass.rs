//! One pass of the active resource manager: the balance check, then queue by queue what follows from it. Between any two
//! steps this process may die, be frozen, or lose its lease; the order of the steps is what makes that harmless.
//!
//! Before each step that changes anything the lease is looked at: whoever was frozen stops where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Dice, QueueName, Timestamp, WorkerId};
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::policy::Policy;
use mutirao_elastic::protocol::{Balance, CREATE_MAX, Create, Offer, QueueBalance, Wish};
use mutirao_elastic::{Steady, Terms};

use crate::manager::{self, ManagerError};
use crate::nodes::{Empty, Rooms};
use crate::provider::{self, Have, Launch, ProviderError};
use crate::queue::{Queue, Scene};

/// Nodes that one pass has made or gives back, at most.
const NODES_AT_ONCE: usize = 8;
/// A worker that has had nothing to do for this long ends itself, and for this many times its policy's wait.
const IDLE_END_MIN: Duration = Duration::from_secs(3_600);
const IDLE_END_WAITS: u32 = 4;

/// Says whether the lease of this generation holds at this moment.
pub type Holds = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// What a pass speaks with.
#[derive(Clone)]
pub struct Ports {
    pub manager: manager::Shared,
    pub provider: provider::Shared,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub terms: Terms,
    pub holds: Holds,
}

/// Why a pass ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    #[error("the lease is lost")]
    Lost,
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

/// What came of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// Nothing is waited for but time.
    #[default]
    InAWhile,
    /// There is more to do.
    AtOnce,
}

/// The resource manager while it holds the lease in one generation.
pub struct Active {
    ports: Ports,
    generation: u64,
    steady: Steady,
    queues: BTreeMap<QueueName, Queue>,
    empty: Empty,
    offered: Option<Offer>,
    provider: Patience,
    requests: u64,
    /// What was asked for and not answered: asked again by the same name, so that it can never come about twice.
    unanswered: BTreeMap<QueueName, Create>,
    /// Queues that the provider has workers of and the manager does not speak of, and since when.
    unknown: BTreeMap<QueueName, Timestamp>,
}

/// When to ask a provider again that could not say what it has.
#[derive(Debug, Default)]
struct Patience {
    failures: u32,
    until: Option<Timestamp>,
}

/// What the provider said, as queues need it.
#[derive(Default)]
struct Listed {
    have: Have,
    by_queue: BTreeMap<QueueName, BTreeMap<WorkerId, NodeName>>,
    silent: BTreeSet<NodeName>,
    answering: BTreeSet<NodeName>,
}

impl Listed {
    fn of(have: Have) -> Self {
        let mut listed = Self::default();
        for seen in &have.nodes {
            let set = if seen.node.answers { &mut listed.answering } else { &mut listed.silent };
            set.insert(seen.node.name.clone());
            for (worker, queue) in &seen.workers {
                let workers = listed.by_queue.entry(queue.clone()).or_default();
                workers.insert(worker.clone(), seen.node.name.clone());
            }
        }
        Self { have, ..listed }
    }
}

impl Active {
    pub fn new(ports: Ports, generation: u64) -> Self {
        let steady = Steady::starting(&*ports.clock);
        Self {
            ports,
            generation,
            steady,
            queues: BTreeMap::new(),
            empty: Empty::default(),
            offered: None,
            provider: Patience::default(),
            requests: 0,
            unanswered: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn now(&self) -> Timestamp {
        self.steady.now(&*self.ports.clock)
    }

    fn act(&self) -> Result<(), Cut> {
        if (self.ports.holds)(self.generation) { Ok(()) } else { Err(Cut::Lost) }
    }

    pub async fn pass(&mut self) -> Result<Next, Cut> {
        self.act()?;
        // The provider first: what it lists was recorded before, so the balance cannot lack it.
        let listed = self.list().await;
        let balance = self.ports.manager.balance().await?;
        self.act()?;
        let kinds = match &listed {
            Ok(_) => self.ports.provider.kinds().await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        if let Ok(listed) = &listed {
            self.offer(&listed.have, &kinds).await?;
        }
        let drained = balance.nodes.iter().filter(|record| record.wish == Wish::Drained);
        let drained: BTreeSet<NodeName> = drained.map(|record| record.node.name.clone()).collect();
        let nothing = Listed::default();
        let mut rooms = match &listed {
            Ok(listed) => Rooms::of(&listed.have, &balance, kinds),
            Err(_) => Rooms::of(&nothing.have, &balance, Vec::new()),
        };
        self.queues.retain(|name, _| balance.queues.iter().any(|queue| queue.queue == *name));
        let mut next = Next::InAWhile;
        for queue in in_turn(&balance) {
            let view = View { balance: &balance, queue, listed: listed.as_ref().ok(), drained: &drained };
            if let Err(error) = &listed {
                self.note_failure(queue, error);
            }
            match self.tend(&view, listed.as_ref().unwrap_or(&nothing), &mut rooms).await {
                Ok(Next::InAWhile) => {}
                Ok(Next::AtOnce) => next = Next::AtOnce,
                // About one queue; the others need not suffer from it.
                Err(Cut::Manager(ManagerError::Refused(why))) => {
                    tracing::warn!(queue = %queue.queue, why, "the manager refuses what was decided");
                }
                Err(cut) => return Err(cut),
            }
        }
        if let Ok(listed) = &listed {
            self.end_strays(listed, &balance).await?;
            self.give_back(&listed.have, &balance).await?;
        }
        Ok(next)
    }

    async fn list(&mut self) -> Result<Listed, Option<ProviderError>> {
        let now = self.now();
        if self.provider.until.is_some_and(|until| now < until) {
            return Err(None);
        }
        match self.ports.provider.list().await {
            Ok(have) => {
                self.provider = Patience::default();
                Ok(Listed::of(have))
            }
            Err(error) => {
                tracing::warn!(provider = self.ports.provider.name(), %error, "the provider does not say what it has");
                self.provider.failures = self.provider.failures.saturating_add(1);
                let doubled = 1u32.checked_shl(self.provider.failures - 1).unwrap_or(u32::MAX);
                let pause = self.ports.terms.pause_first.saturating_mul(doubled).min(Terms::PAUSE_MAX);
                self.provider.until = Some(self.now().plus(self.ports.dice.jitter(pause)));
                Err(Some(error))
            }
        }
    }

    /// Shown where it holds somebody up.
    fn note_failure(&mut self, queue: &QueueBalance, error: &Option<ProviderError>) {
        let now = self.now();
        let Some(error) = error else { return };
        let known = self.queues.entry(queue.queue.clone()).or_insert_with(|| Queue::adopting(queue));
        let floor = queue.elastic.as_ref().map_or(0, |elastic| elastic.min);
        let waiting = queue.load.tasks.map_or(0, |tasks| tasks.ready);
        if floor > 0 || waiting > 0 || !known.fleet().members.is_empty() {
            known.not_listed(&error.to_string(), &self.ports.terms, &self.ports.dice, now);
        }
    }

    async fn offer(&mut self, have: &Have, kinds: &[Kind]) -> Result<(), Cut> {
        let nodes = have.nodes.iter().map(|seen| seen.node.clone()).collect();
        let offer = Offer { generation: self.generation, nodes, kinds: kinds.to_vec() };
        if self.offered.as_ref() != Some(&offer) {
            self.ports.manager.offer(&offer).await?;
            self.offered = Some(offer);
        }
        Ok(())
    }

    /// One queue. What fails at the provider ends this queue's pass; what fails at the manager ends the whole.
    async fn tend(&mut self, view: &View<'_>, listed: &Listed, rooms: &mut Rooms) -> Result<Next, Cut> {
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
            silent: &listed.silent,
            answering: &listed.answering,
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
            queue.created(created.workers, create.nodes, self.now());
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
            if let Err(error) = ports.provider.end(worker, node).await {
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
        let placed = rooms.place(&balance.need, count.min(CREATE_MAX));
        queue.unplaced(placed.without);
        for kind in placed.make.iter().take(NODES_AT_ONCE) {
            self.act()?;
            self.requests += 1;
            let node = NodeName(format!("{kind}-{}-{}", self.generation, self.requests));
            if let Err(error) = self.ports.provider.create_node(&node, kind).await {
                return self.stumble(queue, name, &error);
            }
            tracing::info!(%node, kind, "a node is made");
        }
        if placed.nodes.is_empty() {
            return Ok(Next::InAWhile);
        }
        self.requests += 1;
        let create =
            Create { generation: self.generation, request: format!("r{}", self.requests), nodes: placed.nodes };
        self.act()?;
        self.unanswered.insert(name.clone(), create.clone());
        let created = self.ports.manager.create(name, &create).await?;
        self.unanswered.remove(name);
        tracing::info!(queue = %name, workers = created.workers.len(), "workers are created");
        queue.created(created.workers.clone(), create.nodes, self.now());
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
            need: balance.need.clone(),
            idle_end: idle_end(balance),
            invitation: invitation.token,
        };
        self.act()?;
        let launched = self.ports.provider.launch(&launch).await;
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

    /// Workers of queues that the manager has not spoken of for long enough that it cannot be a slip.
    async fn end_strays(&mut self, listed: &Listed, balance: &Balance) -> Result<(), Cut> {
        let now = self.now();
        let known: BTreeSet<&QueueName> = balance.queues.iter().map(|queue| &queue.queue).collect();
        let unknown = listed.by_queue.keys().filter(|queue| !known.contains(queue));
        let since = |queue: &QueueName| self.unknown.get(queue).map_or(now, |at| (*at).min(now));
        self.unknown = unknown.map(|queue| (queue.clone(), since(queue))).collect();
        let long = self.unknown.iter().filter(|(_, at)| now.since(**at) >= self.ports.terms.silent_for);
        let strays: Vec<(WorkerId, NodeName)> = long
            .filter_map(|(queue, _)| listed.by_queue.get(queue))
            .flatten()
            .map(|(worker, node)| (worker.clone(), node.clone()))
            .collect();
        for (worker, node) in strays {
            self.act()?;
            if let Err(error) = self.ports.provider.end(&worker, &node).await {
                tracing::warn!(%worker, %error, "a worker of a queue that nobody knows cannot be ended");
                return Ok(());
            }
        }
        Ok(())
    }

    async fn give_back(&mut self, have: &Have, balance: &Balance) -> Result<(), Cut> {
        let now = self.now();
        // What was placed in this very pass is not in the balance yet.
        let busy = |node: &NodeName| {
            let members = self.queues.values().flat_map(|queue| queue.fleet().members.values());
            members.filter_map(|member| member.node.as_ref()).any(|used| used == node)
        };
        let empty = self.empty.look(have, balance, now);
        for node in empty.into_iter().take(NODES_AT_ONCE) {
            if busy(&node) {
                continue;
            }
            self.act()?;
            match self.ports.provider.remove_node(&node).await {
                Ok(()) => tracing::info!(%node, "an empty node is given back"),
                Err(error) => tracing::warn!(%node, %error, "a node cannot be given back"),
            }
        }
        Ok(())
    }
}

/// What one queue's turn is about.
struct View<'a> {
    balance: &'a Balance,
    queue: &'a QueueBalance,
    listed: Option<&'a Listed>,
    drained: &'a BTreeSet<NodeName>,
}

/// Far above what any policy waits: only those whom everybody has forgotten come to it.
fn idle_end(balance: &QueueBalance) -> Duration {
    let waits = match balance.elastic.as_ref().map(|elastic| &elastic.policy) {
        Some(Policy::NForN(policy)) => policy.idle_wait.0,
        _ => Duration::ZERO,
    };
    waits.saturating_mul(IDLE_END_WAITS).max(IDLE_END_MIN)
}

/// Where room is short, floors come first, then those who have the fewest.
fn in_turn(balance: &Balance) -> Vec<&QueueBalance> {
    let mut queues: Vec<&QueueBalance> = balance.queues.iter().collect();
    queues.sort_by_key(|queue| {
        let standing = queue.fleet.counts().standing();
        (standing >= queue.elastic.as_ref().map_or(0, |elastic| elastic.min), standing)
    });
    queues
}
