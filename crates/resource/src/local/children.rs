//! The workers of one node: those this agent started, and those that a former agent in the same folder left. The latter
//! are known by the lock that each worker holds on its folder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Mono, QueueName, WorkerId};
use mutirao_store::{FolderLock, StoreError};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use tokio::sync::Notify;

use super::process::WorkerProcess;
use super::wire::{Haste, Order};

/// In which queue a worker is, for an agent that did not start it.
const QUEUE_FILE: &str = "queue";
/// From being told to stop now to being killed: its tasks get their grace, and their outcomes leave.
const END_GRACE: Duration = Duration::from_secs(20);
/// For how long it is told that a worker has ended: many passes of a resource manager.
const ENDED_TOLD_FOR: Duration = Duration::from_secs(120);
/// Of how many it is known that they have ended, so that a late call does not start them again.
const ENDED_MAX: usize = 10_000;

pub struct Children {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    here: Mutex<BTreeMap<WorkerId, Here>>,
    /// Those that are being started at this moment, so that a question asked twice starts one.
    starting: Mutex<BTreeSet<WorkerId>>,
    /// Those that have ended, the oldest first.
    ended: Mutex<VecDeque<(Mono, WorkerId)>>,
    /// Rings when one is gone.
    pub gone: Notify,
}

struct Here {
    queue: QueueName,
    pid: Option<Pid>,
    /// How it was sent home.
    sent: Option<Haste>,
    /// Its end says that we died. A worker of a former agent has seen that already.
    _line: Option<ChildStdin>,
}

impl Children {
    /// Looks for what a former agent left.
    pub fn find(dir: PathBuf, clock: Arc<dyn Clock>) -> std::io::Result<Arc<Self>> {
        std::fs::create_dir_all(&dir)?;
        let children = Arc::new(Self {
            dir,
            clock,
            here: Mutex::default(),
            starting: Mutex::default(),
            ended: Mutex::default(),
            gone: Notify::new(),
        });
        for entry in std::fs::read_dir(&children.dir)? {
            let folder = entry?.path();
            let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
            match holder(&folder) {
                Some(pid) => {
                    let queue = std::fs::read_to_string(folder.join(QUEUE_FILE)).ok();
                    let queue = queue.and_then(|text| text.trim().parse().ok()).unwrap_or_default();
                    let here = Here { queue, pid, sent: None, _line: None };
                    children.here.lock().insert(WorkerId(name.into()), here);
                }
                None => children.bury(WorkerId(name.into())),
            }
        }
        Ok(children)
    }

    /// Whoever is there now.
    pub fn list(&self) -> BTreeMap<WorkerId, QueueName> {
        self.forget_the_dead();
        self.here.lock().iter().map(|(worker, here)| (worker.clone(), here.queue.clone())).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Those of a former agent are nobody's children here, so nobody tells when they end.
    fn forget_the_dead(&self) {
        let orphans: Vec<WorkerId> = self
            .here
            .lock()
            .iter()
            .filter(|(_, here)| here._line.is_none())
            .map(|(worker, _)| worker.clone())
            .collect();
        for worker in orphans {
            let folder = self.folder(&worker);
            if holder(&folder).is_none() {
                self.bury(worker);
            }
        }
    }

    /// Its process has ended, and nothing of it is kept but that.
    fn bury(&self, worker: WorkerId) {
        let _ = std::fs::remove_dir_all(self.folder(&worker));
        let now = self.clock.monotonic();
        let mut ended = self.ended.lock();
        ended.push_back((now, worker.clone()));
        let too_many = ended.len().saturating_sub(ENDED_MAX);
        ended.drain(..too_many);
        drop(ended);
        self.here.lock().remove(&worker);
    }

    /// Those that ended a short while ago.
    pub fn ended(&self) -> BTreeSet<WorkerId> {
        let now = self.clock.monotonic();
        let ended = self.ended.lock();
        let lately = ended.iter().rev().take_while(|(at, _)| now.since(*at) < ENDED_TOLD_FOR);
        lately.map(|(_, worker)| worker.clone()).collect()
    }

    fn has_ended(&self, worker: &WorkerId) -> bool {
        self.ended.lock().iter().any(|(_, ended)| ended == worker)
    }

    fn folder(&self, worker: &WorkerId) -> PathBuf {
        self.dir.join(&worker.0)
    }

    /// Starts a worker; one that is there already stays as it is.
    pub async fn launch(self: &Arc<Self>, order: &Order) -> std::io::Result<()> {
        if self.here.lock().contains_key(&order.worker) || !self.starting.lock().insert(order.worker.clone()) {
            return Ok(());
        }
        if self.has_ended(&order.worker) {
            self.starting.lock().remove(&order.worker);
            return Err(std::io::Error::other("it has ended, and nobody comes twice"));
        }
        let started = self.start(order).await;
        self.starting.lock().remove(&order.worker);
        started
    }

    async fn start(self: &Arc<Self>, order: &Order) -> std::io::Result<()> {
        // Ids come from the manager; one that is no plain name would lead out of the folder.
        if !order.worker.0.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            || order.worker.0.is_empty()
        {
            return Err(std::io::Error::other("this is not the id of a worker"));
        }
        let folder = self.folder(&order.worker);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(QUEUE_FILE), order.queue.as_str())?;
        let process = WorkerProcess {
            url: &order.url,
            queue: &order.queue,
            dir: &folder,
            pin: &order.pin,
            cpus: order.cpus,
            memory: order.memory,
            way: &order.way,
            ca: order.ca.as_deref(),
            collector: order.collector.as_deref(),
            idle_end: Some(order.idle_end),
            flags: &order.flags,
        };
        let mut child = process.command()?.spawn()?;
        let mut line = child.stdin.take().ok_or_else(|| std::io::Error::other("it has no stdin"))?;
        let first = order.keys.as_ref().unwrap_or(&order.token);
        line.write_all(format!("{first}\n").as_bytes()).await?;
        let pid = child.id().and_then(|id| Pid::from_raw(id as i32));
        let here = Here { queue: order.queue.clone(), pid, sent: None, _line: Some(line) };
        self.here.lock().insert(order.worker.clone(), here);
        tokio::spawn(self.clone().attend(order.worker.clone(), child));
        Ok(())
    }

    async fn attend(self: Arc<Self>, worker: WorkerId, mut child: Child) {
        let status = child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
        tracing::debug!(%worker, status, "a worker ended");
        self.bury(worker);
        self.gone.notify_waiters();
    }

    /// Has a worker stop what it runs, and kills it when that takes too long.
    pub fn end(self: &Arc<Self>, worker: &WorkerId) {
        if !self.send(worker, Haste::Now) {
            return;
        }
        let (children, worker) = (self.clone(), worker.clone());
        tokio::spawn(async move {
            children.clock.sleep(END_GRACE).await;
            children.send(&worker, Haste::Kill);
        });
    }

    pub fn send_all(&self, haste: Haste) {
        let all: Vec<WorkerId> = self.here.lock().keys().cloned().collect();
        for worker in all {
            self.send(&worker, haste);
        }
    }

    /// Whether this was news to it.
    fn send(&self, worker: &WorkerId, haste: Haste) -> bool {
        let mut all = self.here.lock();
        let Some(here) = all.get_mut(worker) else { return false };
        if here.sent >= Some(haste) {
            return false;
        }
        let before = here.sent.replace(haste);
        // A worker drains at the first and hurries at the second. Two kinds, because two of one that come close together
        // are one to the kernel.
        let signals: &[Signal] = match haste {
            Haste::Drain => &[Signal::TERM],
            Haste::Now if before.is_none() => &[Signal::TERM, Signal::INT],
            Haste::Now => &[Signal::INT],
            Haste::Kill => &[Signal::KILL],
        };
        for signal in signals {
            // It may have ended this moment, which is what was wanted.
            let _ = here.pid.map(|pid| kill_process(pid, *signal));
        }
        true
    }
}

/// Who uses a worker's folder: none when it is free, and none inside when it does not say.
fn holder(folder: &Path) -> Option<Option<Pid>> {
    match FolderLock::take(folder) {
        Err(StoreError::InUse { pid, .. }) => Some(pid.parse().ok().and_then(Pid::from_raw)),
        Ok(_) | Err(_) => None,
    }
}
