//! A manager and a provider that say what was kept, agree to everything, and take note of it.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::fleet::Life;
use mutirao_elastic::packing::consolidating::Emptied;
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::protocol::{
    Balance, Create, Created, Invitation, LeaseAnswer, LeaseCall, Offer, OfferedNode, Record, Stands,
};
use parking_lot::Mutex;

use crate::manager::{Manager, ManagerError};
use crate::provider::{Have, Launch, NodeSeen, Origin, Provider, ProviderError};

pub struct Desk {
    pub balance: Balance,
    pub kinds: Vec<Kind>,
    notes: Mutex<Notes>,
}

/// What was asked for in one pass.
#[derive(Clone, Default)]
pub struct Notes {
    pub records: BTreeMap<QueueName, Record>,
    /// Where new workers were put.
    pub placed: BTreeMap<QueueName, Vec<NodeName>>,
    /// Those that were recorded before and are started now.
    pub started: BTreeMap<QueueName, Vec<(WorkerId, NodeName)>>,
    /// Kinds of nodes that were made.
    pub made: BTreeMap<QueueName, Vec<String>>,
    pub ended: Vec<WorkerId>,
    pub emptied: Emptied,
    /// Whose turn it is: each begins with its record.
    turn: Option<QueueName>,
    issued: usize,
}

impl Desk {
    pub fn of(balance: Balance, kinds: Vec<Kind>) -> Self {
        Self { balance, kinds, notes: Mutex::default() }
    }

    /// Nobody has said which nodes there are, or could be had.
    pub fn is_bare(&self) -> bool {
        self.balance.nodes.is_empty() && self.kinds.is_empty()
    }

    pub fn begin(&self) {
        *self.notes.lock() = Notes::default();
    }

    pub fn emptied(&self, emptied: Emptied) {
        self.notes.lock().emptied = emptied;
    }

    pub fn notes(&self) -> Notes {
        self.notes.lock().clone()
    }

    /// As the provider would list it, as far as its last offer and the records of workers tell.
    pub fn have(&self) -> Have {
        let mut workers: BTreeMap<&NodeName, BTreeMap<WorkerId, QueueName>> = BTreeMap::new();
        for queue in &self.balance.queues {
            for (worker, member) in queue.fleet.members.iter().filter(|(_, member)| member.life > Life::Asked) {
                let Some(node) = &member.node else { continue };
                workers.entry(node).or_default().insert(worker.clone(), queue.queue.clone());
            }
        }
        let seen = |node: &OfferedNode| NodeSeen {
            origin: origin(node),
            workers: workers.remove(&node.name).unwrap_or_default(),
            ended: BTreeSet::new(),
            node: node.clone(),
        };
        Have { nodes: self.balance.nodes.iter().map(|record| &record.node).map(seen).collect() }
    }
}

/// As the offer said it; of a version that did not, what was made has a kind.
fn origin(node: &OfferedNode) -> Origin {
    match (node.stands, &node.kind) {
        (Some(Stands::Made), _) | (None, Some(_)) => Origin::Made,
        (Some(Stands::Anyway), _) | (None, None) => Origin::Standing,
        (Some(Stands::Taken), _) => Origin::Taken,
        (Some(Stands::Away), _) => Origin::Away,
    }
}

#[async_trait]
impl Manager for Desk {
    async fn lease(&self, _: &LeaseCall) -> Result<LeaseAnswer, ManagerError> {
        Err(ManagerError::Refused("there is no lease on paper".into()))
    }

    async fn balance(&self) -> Result<Balance, ManagerError> {
        Ok(self.balance.clone())
    }

    async fn create(&self, queue: &QueueName, create: &Create) -> Result<Created, ManagerError> {
        let mut notes = self.notes.lock();
        notes.placed.entry(queue.clone()).or_default().extend(create.nodes.iter().cloned());
        let first = notes.issued;
        notes.issued += create.nodes.len();
        // No id that is given out looks like this.
        Ok(Created { workers: (first..notes.issued).map(|n| WorkerId(format!("new {n}"))).collect() })
    }

    async fn invitation(&self, _: &WorkerId, _: u64) -> Result<Invitation, ManagerError> {
        Ok(Invitation { token: String::new(), expires_at: Timestamp(i64::MAX) })
    }

    async fn drain(&self, _: &WorkerId, _: u64) -> Result<(), ManagerError> {
        Ok(())
    }

    async fn record(&self, queue: &QueueName, record: &Record) -> Result<(), ManagerError> {
        let mut notes = self.notes.lock();
        notes.turn = Some(queue.clone());
        notes.records.insert(queue.clone(), record.clone());
        Ok(())
    }

    async fn offer(&self, _: &Offer) -> Result<(), ManagerError> {
        Ok(())
    }
}

#[async_trait]
impl Provider for Desk {
    fn name(&self) -> &str {
        "paper"
    }

    async fn list(&self, _: u64) -> Result<Have, ProviderError> {
        Ok(self.have())
    }

    async fn launch(&self, launch: &Launch, _: u64) -> Result<(), ProviderError> {
        let known = self.balance.queues.iter().any(|queue| queue.fleet.members.contains_key(&launch.worker));
        if known {
            let started = (launch.worker.clone(), launch.node.clone());
            self.notes.lock().started.entry(launch.queue.clone()).or_default().push(started);
        }
        Ok(())
    }

    async fn end(&self, worker: &WorkerId, _: &NodeName, _: u64) -> Result<(), ProviderError> {
        self.notes.lock().ended.push(worker.clone());
        Ok(())
    }

    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        Ok(self.kinds.clone())
    }

    async fn create_node(&self, _: &NodeName, kind: &str, _: u64) -> Result<(), ProviderError> {
        let mut notes = self.notes.lock();
        if let Some(turn) = notes.turn.clone() {
            notes.made.entry(turn).or_default().push(kind.into());
        }
        Ok(())
    }

    async fn remove_node(&self, _: &NodeName, _: u64) -> Result<(), ProviderError> {
        Ok(())
    }
}
