//! The resource manager's side of local nodes: each configured node has a folder, and in it an agent that answers. How agents
//! are kept there is [`care`](super::care).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use mutirao_core::check::{MANAGERS, POOL, SCHEDULERS};
use mutirao_core::clock::ClockExt;
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::{Clock, WorkerId};
use mutirao_elastic::packing::amounts::{CPU_MILLI, MEMORY_BYTES};
use mutirao_elastic::packing::{Kind, NodeName};
use parking_lot::Mutex;

use super::care::{Care, is_held};
use super::wire::{self, Answer, Haste, Order, Question, Request, Words};
use crate::provider::{Have, Launch, Provider, ProviderError};

pub(super) const NAME: &str = "local";
/// How long an agent may take to answer. All are asked at once, so this is how long a listing may take.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// How often agents are told to go that have not gone yet.
const LEAVE_EVERY: Duration = Duration::from_millis(100);

/// A node as it is configured.
pub type NodeShape = Words;

/// What every worker is started with.
#[derive(Clone, Debug)]
pub struct Workers {
    pub url: String,
    pub pin: PathBuf,
    pub way: String,
    pub ca: Option<PathBuf>,
    pub collector: Option<String>,
    /// Settings that checkers are started with.
    pub checkers: Vec<String>,
    /// What schedulers are started with; none where this process cannot open the database and the broker to them.
    pub schedulers: Option<Trusted>,
    /// What managers are started with that share this machine's address with the first.
    pub managers: Option<Trusted>,
}

/// How those are started that open the database and the broker themselves. Holds secrets, so it is never printed.
#[derive(Clone)]
pub struct Trusted {
    pub settings: Vec<String>,
    /// What opens the database and the broker to them, as one line that each gets over its stdin.
    pub keys: String,
}

impl std::fmt::Debug for Trusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trusted").field("settings", &self.settings).finish_non_exhaustive()
    }
}

const NO_KEYS: &str = "a scheduler needs the PostgreSQL and the RabbitMQ of its managers, and this resource manager was not \
    told where they are: give it MUTIRAO_DATABASE and MUTIRAO_BROKER";

const NOT_HERE: &str = "a manager that shares another's address has to be on its machine, and this resource manager was not told \
    of one here: it has to be `mutirao up` itself, with api.managers";

pub struct LocalParts {
    /// The program whose `role node` is an agent.
    pub program: PathBuf,
    /// Where each node has its folder.
    pub dir: PathBuf,
    pub nodes: Vec<NodeShape>,
    pub workers: Workers,
    pub clock: Arc<dyn Clock>,
}

pub struct Local {
    pub(super) parts: LocalParts,
    pub(super) care: Mutex<BTreeMap<NodeName, Care>>,
    /// Agents that this process started and that have not ended.
    pub(super) started: Arc<AtomicUsize>,
}

impl Local {
    pub fn new(parts: LocalParts) -> Self {
        Self { parts, care: Mutex::default(), started: Arc::default() }
    }

    pub(super) fn folder(&self, node: &NodeName) -> PathBuf {
        self.parts.dir.join(&node.0)
    }

    /// Sends every node home, also those of a former configuration, and returns when they are gone. Said again and again:
    /// one that has only just been started does not listen yet. Cancel-safe.
    pub async fn leave(&self, haste: Haste) {
        while self.left() > 0 {
            let held = self.folders().into_iter().filter(|folder| is_held(folder).is_some());
            let told = held.map(|folder| async move { self.ask_in(&folder, Request::Leave { haste }, None).await });
            // One that is frozen keeps the others from nothing.
            join_all(told).await;
            self.parts.clock.sleep(LEAVE_EVERY).await;
        }
    }

    /// Nodes whose agents are there, or about to be.
    pub fn left(&self) -> usize {
        let held = self.folders().iter().filter(|folder| is_held(folder).is_some()).count();
        held.max(self.started.load(Ordering::Relaxed))
    }

    pub(super) fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.parts.dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// Without a generation for what anybody may ask for who may open the socket at all.
    pub(super) async fn ask_in(
        &self,
        folder: &Path,
        request: Request,
        generation: Option<u64>,
    ) -> Result<Answer, String> {
        let question = Question { request, generation };
        match self.parts.clock.timeout(ANSWER_MAX, wire::ask(folder, &question)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", ANSWER_MAX.as_secs())),
        }
    }

    /// Also for nodes of a former configuration, as long as they are there.
    async fn tell(&self, node: &NodeName, request: Request, generation: u64) -> Result<(), ProviderError> {
        let folder = self.folder(node);
        if !self.folders().contains(&folder) {
            return Err(ProviderError::NoSuchNode { node: node.clone() });
        }
        match self.ask_in(&folder, request, Some(generation)).await {
            Ok(Answer::Failed { why }) => Err(ProviderError::Refused(format!("{node}: {why}"))),
            Ok(_) => Ok(()),
            Err(why) => Err(ProviderError::Silent { node: node.clone(), why }),
        }
    }
}

#[async_trait]
impl Provider for Local {
    fn name(&self) -> &str {
        NAME
    }

    async fn list(&self, generation: u64) -> Result<Have, ProviderError> {
        std::fs::create_dir_all(&self.parts.dir)
            .map_err(|error| ProviderError::Refused(format!("{}: {error}", self.parts.dir.display())))?;
        let wanted = join_all(self.parts.nodes.iter().map(|shape| self.look_at(shape, generation)));
        let former = join_all(self.former().into_iter().map(|folder| self.dismiss(folder, generation)));
        let (mut nodes, former) = futures_util::future::join(wanted, former).await;
        nodes.extend(former.into_iter().flatten());
        Ok(Have { nodes })
    }

    async fn launch(&self, launch: &Launch, generation: u64) -> Result<(), ProviderError> {
        let Some(shape) = self.parts.nodes.iter().find(|shape| shape.name == launch.node) else {
            return Err(ProviderError::NoSuchNode { node: launch.node.clone() });
        };
        let order = order(&self.parts.workers, shape, launch)?;
        self.tell(&launch.node, Request::Launch(Box::new(order)), generation).await
    }

    async fn end(&self, worker: &WorkerId, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        self.tell(node, Request::End { worker: worker.clone() }, generation).await
    }

    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        Ok(Vec::new())
    }

    async fn create_node(&self, _: &NodeName, kind: &str, _: u64) -> Result<(), ProviderError> {
        Err(ProviderError::NoSuchKind { provider: NAME.into(), kind: kind.into() })
    }

    async fn remove_node(&self, node: &NodeName, _: u64) -> Result<(), ProviderError> {
        Err(ProviderError::Refused(format!("{node} is part of this machine; change elastic.nodes")))
    }
}

/// What a node is told to start.
pub fn order(workers: &Workers, shape: &NodeShape, launch: &Launch) -> Result<Order, ProviderError> {
    let (cpus, memory) = share(shape, launch);
    let Workers { url, pin, way, ca, collector, checkers, schedulers, managers } = workers.clone();
    let trusted = |given: Option<Trusted>, none: &str| {
        let Trusted { settings, keys } = given.ok_or_else(|| ProviderError::Refused(none.into()))?;
        let own = ["--worker".to_owned(), launch.worker.0.clone()];
        Ok::<_, ProviderError>((set(&settings).chain(own).collect(), Some(keys)))
    };
    let (flags, keys) = match launch.queue.as_str() {
        POOL => (stands(shape, &checkers), None),
        SCHEDULERS => trusted(schedulers, NO_KEYS)?,
        MANAGERS => trusted(managers, NOT_HERE)?,
        _ => (Vec::new(), None),
    };
    Ok(Order {
        worker: launch.worker.clone(),
        queue: launch.queue.clone(),
        cpus,
        memory,
        token: launch.invitation.clone(),
        url,
        pin,
        way,
        ca,
        collector,
        idle_end: Span(launch.idle_end),
        flags,
        keys,
    })
}

/// A checker stands where its node stands.
fn stands(shape: &NodeShape, settings: &[String]) -> Vec<String> {
    let labels: Vec<String> = shape.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let layer = serde_json::to_value(shape.layer).ok().and_then(|layer| layer.as_str().map(str::to_owned));
    let mut flags: Vec<String> = set(settings).collect();
    flags.extend(layer.into_iter().flat_map(|layer| ["--layer".to_owned(), layer]));
    if !labels.is_empty() {
        flags.extend(["--labels".to_owned(), labels.join(",")]);
    }
    flags
}

fn set(settings: &[String]) -> impl Iterator<Item = String> {
    settings.iter().flat_map(|set| ["--set".to_owned(), set.clone()])
}

/// What the worker gives to tasks. A queue that does not say gets a cpu, and memory in proportion to its cpus.
fn share(shape: &NodeShape, launch: &Launch) -> (Cpus, Bytes) {
    let asked = &launch.need.amounts;
    let milli = match asked.get(CPU_MILLI) {
        0 => u64::from(Cpus::ONE.milli),
        milli => milli,
    };
    let memory = match asked.get(MEMORY_BYTES) {
        0 => {
            let whole = u128::from(shape.capacity.get(MEMORY_BYTES));
            let part = whole * u128::from(milli) / u128::from(shape.capacity.get(CPU_MILLI).max(1));
            u64::try_from(part.min(whole)).unwrap_or(u64::MAX)
        }
        bytes => bytes,
    };
    (Cpus { milli: u32::try_from(milli).unwrap_or(u32::MAX) }, Bytes(memory))
}
