//! How agents are kept: one that is not there is started; one that is frozen is killed and started again; one that is not
//! wanted any more is sent home. All of it comes about by looking, so that whoever looks next goes on with it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::{Mono, QueueName, WorkerId};
use mutirao_elastic::packing::amounts::{CPU_MILLI, MEMORY_BYTES};
use mutirao_elastic::packing::{Amounts, Layer, NodeName};
use mutirao_elastic::protocol::OfferedNode;
use mutirao_store::{FolderLock, StoreError};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use super::process::without_secrets;
use super::provider::{Local, NAME, NodeShape};
use super::wire::{Answer, Haste, Request, Words};
use crate::provider::{NodeSeen, Origin};

/// An agent that holds its folder and has not answered for this long is frozen, and killed.
const FROZEN_AFTER: Duration = Duration::from_secs(20);
/// How often an agent that is not wanted any more and does not answer is asked again: a listing waits for the answer.
const FORMER_EVERY: Duration = Duration::from_secs(10);
/// Before a dead agent is started again; doubles with each death in a row.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What is remembered of one node from listing to listing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Care {
    silent_since: Option<Mono>,
    asked_at: Option<Mono>,
    deaths: u32,
    not_before: Option<Mono>,
}

impl Local {
    pub(super) async fn look_at(&self, shape: &NodeShape, generation: u64) -> NodeSeen {
        let folder = self.folder(&shape.name);
        match self.ask_in(&folder, Request::List, Some(generation)).await {
            Ok(Answer::Have { node, workers, ended }) => {
                self.care.lock().entry(shape.name.clone()).or_default().silent_since = None;
                if node != *shape && workers.is_empty() {
                    // It has been given another share since, and has nothing to lose.
                    let _ = self.ask_in(&folder, Request::Leave { haste: Haste::Drain }, None).await;
                }
                seen(&node, Origin::Standing, workers, ended)
            }
            // It is well; only that it does not obey us.
            Ok(Answer::Done | Answer::Failed { .. }) => silent(shape, Origin::Standing),
            Err(_) => {
                self.see_to(shape, &folder);
                silent(shape, Origin::Standing)
            }
        }
    }

    /// The folders of nodes that are not configured any more.
    pub(super) fn former(&self) -> Vec<PathBuf> {
        let wanted: BTreeSet<PathBuf> = self.parts.nodes.iter().map(|shape| self.folder(&shape.name)).collect();
        self.folders().into_iter().filter(|folder| !wanted.contains(folder)).collect()
    }

    /// A node of a former configuration takes nothing more and goes. None when it has gone.
    pub(super) async fn dismiss(&self, folder: PathBuf, generation: u64) -> Option<NodeSeen> {
        let name = NodeName(folder.file_name()?.to_str()?.to_owned());
        let Some(pid) = is_held(&folder) else {
            self.care.lock().remove(&name);
            return None;
        };
        let nobody = Words { name, capacity: Amounts::default(), labels: Default::default(), layer: Layer::Cloud };
        if !self.is_due(&nobody.name, &folder, pid) {
            return Some(silent(&nobody, Origin::Leaving));
        }
        match self.ask_in(&folder, Request::List, Some(generation)).await {
            Ok(Answer::Have { node, workers, ended }) => {
                self.care.lock().remove(&nobody.name);
                let _ = self.ask_in(&folder, Request::Leave { haste: Haste::Drain }, None).await;
                Some(seen(&node, Origin::Leaving, workers, ended))
            }
            Ok(Answer::Done | Answer::Failed { .. }) => Some(silent(&nobody, Origin::Leaving)),
            Err(_) => {
                let now = self.parts.clock.monotonic();
                self.care.lock().entry(nobody.name.clone()).or_default().silent_since.get_or_insert(now);
                Some(silent(&nobody, Origin::Leaving))
            }
        }
    }

    /// Whether a node of a former configuration is to be asked now. One that has been silent for too long is ended.
    fn is_due(&self, name: &NodeName, folder: &Path, pid: Option<Pid>) -> bool {
        let now = self.parts.clock.monotonic();
        let mut all = self.care.lock();
        let care = all.entry(name.clone()).or_default();
        if care.silent_since.is_some_and(|since| now.since(since) >= FROZEN_AFTER) {
            tracing::warn!(node = %name, "a node of a former configuration does not answer and is ended");
            kill_agent(pid, folder);
            *care = Care::default();
            return false;
        }
        if care.silent_since.is_some() && care.asked_at.is_some_and(|at| now.since(at) < FORMER_EVERY) {
            return false;
        }
        care.asked_at = Some(now);
        true
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
}

fn layer_name(shape: &NodeShape) -> &'static str {
    match shape.layer {
        Layer::Edge => "edge",
        Layer::Fog => "fog",
        Layer::Cloud => "cloud",
    }
}

fn seen(words: &Words, origin: Origin, workers: BTreeMap<WorkerId, QueueName>, ended: BTreeSet<WorkerId>) -> NodeSeen {
    NodeSeen { node: offered(words, true), origin, workers, ended }
}

fn silent(words: &Words, origin: Origin) -> NodeSeen {
    NodeSeen { node: offered(words, false), origin, workers: BTreeMap::new(), ended: BTreeSet::new() }
}

fn offered(words: &Words, answers: bool) -> OfferedNode {
    let Words { name, capacity, labels, layer } = words.clone();
    OfferedNode { name, provider: NAME.into(), kind: None, capacity, labels, layer, answers, note: None, stands: None }
}

/// The process that holds the folder, when it says which.
pub fn is_held(folder: &Path) -> Option<Option<Pid>> {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use mutirao_core::SystemClock;

    use super::*;
    use crate::Provider;
    use crate::local::provider::{LocalParts, Workers};
    use crate::local::wire;

    #[tokio::test]
    async fn frozen_nodes_of_a_former_configuration_are_silent_and_hold_up_no_listing_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let workers = Workers {
            url: "".into(),
            pin: "".into(),
            way: "".into(),
            ca: None,
            collector: None,
            checkers: vec![],
            schedulers: None,
            managers: None,
        };
        let local = Local::new(LocalParts {
            program: "/bin/false".into(),
            dir: dir.path().into(),
            nodes: Vec::new(),
            workers,
            clock: SystemClock::shared(),
        });
        // Each has its folder, takes what is said, and never answers.
        let frozen: Vec<_> = ["one", "two"]
            .map(|name| dir.path().join(name))
            .into_iter()
            .map(|folder| (FolderLock::take(&folder).unwrap(), wire::listen(&folder).unwrap()))
            .collect();
        for _ in 0..3 {
            let nodes = local.list(1).await.unwrap().nodes;
            let seen: Vec<_> = nodes.iter().map(|seen| (seen.origin, seen.node.answers)).collect();
            assert_eq!(seen, [(Origin::Leaving, false); 2]);
        }
        for (_, listener) in &frozen {
            let asked = std::iter::from_fn(|| listener.accept().now_or_never()).count();
            assert!((1..3).contains(&asked), "{asked} times; it is left alone for a while");
        }
        drop(frozen);
        assert_eq!(local.list(1).await.unwrap().nodes, [], "gone with those who held their folders");
    }
}
