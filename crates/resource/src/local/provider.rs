//! The resource manager's side of local nodes: each configured node has a folder, and in it an agent that answers. One that
//! is not there is started; one that is frozen is killed and started again; one that is not wanted any more is sent home.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use mutirao_core::clock::ClockExt;
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::{Clock, Mono, QueueName, WorkerId};
use mutirao_elastic::packing::amounts::{CPU_MILLI, MEMORY_BYTES};
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::protocol::OfferedNode;
use mutirao_store::{FolderLock, StoreError};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use super::process::without_secrets;
use super::wire::{self, Answer, Haste, Order, Request, Words};
use crate::provider::{Have, Launch, NodeSeen, Origin, Provider, ProviderError};

const NAME: &str = "local";
/// How long an agent may take to answer. All are asked at once, so this is how long a listing may take.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// An agent that holds its folder and has not answered for this long is frozen, and killed.
const FROZEN_AFTER: Duration = Duration::from_secs(20);
/// How often agents are told to go that have not gone yet.
const LEAVE_EVERY: Duration = Duration::from_millis(100);
/// Before a dead agent is started again; doubles with each death in a row.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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
}

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
    parts: LocalParts,
    care: Mutex<BTreeMap<NodeName, Care>>,
    /// Agents that this process started and that have not ended.
    started: Arc<AtomicUsize>,
}

/// What is remembered of one node from listing to listing.
#[derive(Clone, Copy, Debug, Default)]
struct Care {
    silent_since: Option<Mono>,
    deaths: u32,
    not_before: Option<Mono>,
}

impl Local {
    pub fn new(parts: LocalParts) -> Self {
        Self { parts, care: Mutex::default(), started: Arc::default() }
    }

    fn folder(&self, node: &NodeName) -> PathBuf {
        self.parts.dir.join(&node.0)
    }

    /// Sends every node home, also those of a former configuration, and returns when they are gone. Said again and again:
    /// one that has only just been started does not listen yet. Cancel-safe.
    pub async fn leave(&self, haste: Haste) {
        while self.left() > 0 {
            for folder in self.folders() {
                if is_held(&folder).is_some() {
                    let _ = self.ask_in(&folder, &Request::Leave { haste }).await;
                }
            }
            self.parts.clock.sleep(LEAVE_EVERY).await;
        }
    }

    /// Nodes whose agents are there, or about to be.
    pub fn left(&self) -> usize {
        let held = self.folders().iter().filter(|folder| is_held(folder).is_some()).count();
        held.max(self.started.load(Ordering::Relaxed))
    }

    fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.parts.dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    async fn ask_in(&self, folder: &Path, request: &Request) -> Result<Answer, String> {
        match self.parts.clock.timeout(ANSWER_MAX, wire::ask(folder, request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", ANSWER_MAX.as_secs())),
        }
    }

    async fn tell(&self, node: &NodeName, request: &Request) -> Result<(), ProviderError> {
        if !self.parts.nodes.iter().any(|shape| shape.name == *node) {
            return Err(ProviderError::NoSuchNode { node: node.clone() });
        }
        match self.ask_in(&self.folder(node), request).await {
            Ok(Answer::Failed { why }) => Err(ProviderError::Refused(format!("{node}: {why}"))),
            Ok(_) => Ok(()),
            Err(why) => Err(ProviderError::Silent { node: node.clone(), why }),
        }
    }

    async fn look_at(&self, shape: &NodeShape) -> NodeSeen {
        let folder = self.folder(&shape.name);
        match self.ask_in(&folder, &Request::List).await {
            Ok(Answer::Have { node, workers }) => {
                self.care.lock().entry(shape.name.clone()).or_default().silent_since = None;
                if node != *shape && workers.is_empty() {
                    // It has been given another share since, and has nothing to lose.
                    let _ = self.ask_in(&folder, &Request::Leave { haste: Haste::Drain }).await;
                }
                seen(&node, workers, true)
            }
            Ok(_) | Err(_) => {
                self.see_to(shape, &folder);
                seen(shape, BTreeMap::new(), false)
            }
        }
    }

    /// An agent does not answer: it is dead, starting, or frozen.
    fn see_to(&self, shape: &NodeShape, folder: &Path) {
        let now = self.parts.clock.monotonic();
        let mut all = self.care.lock();
        let care = all.entry(shape.name.clone()).or_default();
        match is_held(folder) {
            Some(pid) => {
                let since = *care.silent_since.get_or_insert(now);
                if now.since(since) >= FROZEN_AFTER {
                    tracing::warn!(node = %shape.name, "the node does not answer and is ended");
                    kill_agent(pid, folder);
                    care.silent_since = None;
                }
            }
            None if care.not_before.is_some_and(|at| now < at) => {}
            None => {
                if let Err(error) = self.start(shape, folder) {
                    tracing::error!(node = %shape.name, %error, "the node cannot be started");
                }
                care.silent_since = None;
                care.deaths =
                    if care.not_before.is_some_and(|at| now.since(at) > LONGEST_WAIT) { 1 } else { care.deaths + 1 };
                let wait = FIRST_WAIT.saturating_mul(1 << u32::min(care.deaths - 1, 10)).min(LONGEST_WAIT);
                care.not_before = Some(now.plus(wait));
            }
        }
    }

    fn start(&self, shape: &NodeShape, folder: &Path) -> std::io::Result<()> {
        let amount = |resource| shape.capacity.get(resource);
        let mut command = Command::new(&self.parts.program);
        let cpus = Cpus { milli: u32::try_from(amount(CPU_MILLI)).unwrap_or(u32::MAX) };
        command
            .args(["role", "node", "--name", &shape.name.0])
            .arg("--dir")
            .arg(folder)
            .args(["--cpus", &cpus.to_string()])
            .args(["--memory", &Bytes(amount(MEMORY_BYTES)).to_string()])
            .args(["--layer", layer_name(shape)])
            .args(shape.labels.iter().flat_map(|(key, value)| ["--label".into(), format!("{key}={value}")]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // It outlives us, and Ctrl-C is not for it.
            .process_group(0);
        let mut child = without_secrets(command).spawn()?;
        tracing::info!(node = %shape.name, "the node is started");
        let started = self.started.clone();
        started.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let _ = child.wait().await;
            started.fetch_sub(1, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Nodes of a former configuration take nothing more and go.
    async fn dismiss_others(&self) {
        let wanted: BTreeSet<PathBuf> = self.parts.nodes.iter().map(|shape| self.folder(&shape.name)).collect();
        for folder in self.folders().into_iter().filter(|folder| !wanted.contains(folder)) {
            if is_held(&folder).is_some() {
                let _ = self.ask_in(&folder, &Request::Leave { haste: Haste::Drain }).await;
            }
        }
    }
}

fn layer_name(shape: &NodeShape) -> &'static str {
    use mutirao_elastic::packing::Layer;
    match shape.layer {
        Layer::Edge => "edge",
        Layer::Fog => "fog",
        Layer::Cloud => "cloud",
    }
}

fn seen(words: &Words, workers: BTreeMap<WorkerId, QueueName>, answers: bool) -> NodeSeen {
    let Words { name, capacity, labels, layer } = words.clone();
    let node = OfferedNode { name, provider: NAME.into(), capacity, labels, layer, answers };
    NodeSeen { node, origin: Origin::Standing, workers }
}

/// The process that holds the folder, when it says which.
fn is_held(folder: &Path) -> Option<Option<Pid>> {
    if !folder.is_dir() {
        return None;
    }
    match FolderLock::take(folder) {
        Err(StoreError::InUse { pid, .. }) => Some(pid.parse().ok().and_then(Pid::from_raw)),
        Ok(_) | Err(_) => None,
    }
}

/// The lock's signature is for people; so it is made sure that this is an agent of that folder.
fn kill_agent(pid: Option<Pid>, folder: &Path) {
    let Some(pid) = pid else { return };
    let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    if line.contains("\0node\0") && line.contains(&*folder.to_string_lossy()) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[async_trait]
impl Provider for Local {
    fn name(&self) -> &str {
        NAME
    }

    async fn list(&self) -> Result<Have, ProviderError> {
        std::fs::create_dir_all(&self.parts.dir)
            .map_err(|error| ProviderError::Refused(format!("{}: {error}", self.parts.dir.display())))?;
        self.dismiss_others().await;
        let nodes = join_all(self.parts.nodes.iter().map(|shape| self.look_at(shape))).await;
        Ok(Have { nodes })
    }

    async fn launch(&self, launch: &Launch) -> Result<(), ProviderError> {
        let Some(shape) = self.parts.nodes.iter().find(|shape| shape.name == launch.node) else {
            return Err(ProviderError::NoSuchNode { node: launch.node.clone() });
        };
        let (cpus, memory) = share(shape, launch);
        let Workers { url, pin, way, ca, collector } = self.parts.workers.clone();
        let order = Order {
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
        };
        self.tell(&launch.node, &Request::Launch(Box::new(order))).await
    }

    async fn end(&self, worker: &WorkerId, node: &NodeName) -> Result<(), ProviderError> {
        self.tell(node, &Request::End { worker: worker.clone() }).await
    }

    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        Ok(Vec::new())
    }

    async fn create_node(&self, _: &NodeName, kind: &str) -> Result<(), ProviderError> {
        Err(ProviderError::NoSuchKind { provider: NAME.into(), kind: kind.into() })
    }

    async fn remove_node(&self, node: &NodeName) -> Result<(), ProviderError> {
        Err(ProviderError::Refused(format!("{node} is part of this machine; change elastic.nodes")))
    }
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
