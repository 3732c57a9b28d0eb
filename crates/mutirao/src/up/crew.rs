//! The workers under `up`: child processes that are started again when they die, and sent home in steps.
//!
//! Each holds the reading end of a pipe from us. Its first line is the worker's one-time token, when it needs one; its
//! end tells the worker that we are gone, however we went.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::task::Needs;
use mutirao_core::{Clock, Dice, Problem, QueueName, WorkerId};
use mutirao_resource::local::WorkerProcess;
use mutirao_store::{FolderLock, StoreError};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::WorkerWay;
use crate::failure::Failure;
use crate::role::identity;

/// How soon a worker that was resumed is noticed.
const RESUMED_LOOK_EVERY: Duration = Duration::from_secs(3);
/// Before a dead worker is started again; doubles with each death in a row.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// What a dead worker still said is on its way, and its keeper is at work: both get this long before it is called dead.
const WAKE: Duration = Duration::from_millis(200);
/// A worker that lived this long did not die of its start.
const LIVED: Duration = Duration::from_secs(60);
/// Folders looked at for a free one. Those of a former `up` may still be in use by workers that are finishing.
const SLOTS_MAX: u32 = 4_096;

/// Asks for a one-time token.
pub type Invite = Box<dyn Fn(QueueName) -> Pin<Box<dyn Future<Output = Result<String, Problem>> + Send>> + Send + Sync>;

/// Says that this process of a worker has died.
pub type Obituary = Box<dyn Fn(WorkerId, u32) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Which processes of this machine rest though nobody wants it any more, as one does that was drained and resumed.
pub type Resumed = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Vec<u32>> + Send>> + Send + Sync>;

pub struct Plan {
    pub workers: u32,
    pub url: String,
    /// Where the certificate of that address is, when it has one.
    pub pin: PathBuf,
    pub queue: QueueName,
    /// Where each has a folder of its own.
    pub dir: PathBuf,
    pub capacity: Needs,
    pub way: WorkerWay,
    /// Authorities that the workers believe besides the system's.
    pub ca: Option<PathBuf>,
    /// Where its traces go.
    pub collector: Option<String>,
    pub invite: Invite,
    pub obituary: Obituary,
    pub resumed: Resumed,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

/// What the workers are to do. Only ever grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    Work,
    /// Finish what runs.
    Drain,
    /// Stop what runs.
    Now,
    Kill,
}

impl Order {
    pub fn as_str(self) -> &'static str {
        match self {
            Order::Work => "work",
            Order::Drain => "finish what runs",
            Order::Now => "stop what runs",
            Order::Kill => "die",
        }
    }

    fn signal(self) -> Option<Signal> {
        match self {
            Order::Work => None,
            // A worker drains at the first and hurries at the second. Two kinds, because two of one that come close
            // together are one to the kernel.
            Order::Drain => Some(Signal::TERM),
            Order::Now => Some(Signal::INT),
            Order::Kill => Some(Signal::KILL),
        }
    }
}

pub struct Crew {
    order: watch::Sender<Order>,
    places: JoinSet<()>,
    /// Ends with the crew.
    _looking: JoinSet<()>,
}

impl Crew {
    pub fn start(plan: Plan) -> Result<Self, Failure> {
        let order = watch::Sender::new(Order::Work);
        let dirs =
            free_dirs(&plan.dir, &plan.queue, plan.workers).map_err(|error| Failure::failed(error.to_string()))?;
        let plan = Arc::new(plan);
        let resumed = watch::Sender::new(Vec::new());
        let mut places = JoinSet::new();
        for dir in dirs {
            let (order, resumed) = (order.subscribe(), resumed.subscribe());
            places.spawn(Place { plan: plan.clone(), dir, order, resumed }.keep());
        }
        let mut looking = JoinSet::new();
        looking.spawn(look_for_resumed(plan, resumed));
        Ok(Self { order, places, _looking: looking })
    }

    pub fn order(&mut self, order: Order) {
        self.order.send_replace(order);
    }

    pub fn left(&mut self) -> usize {
        while self.places.try_join_next().is_some() {}
        self.places.len()
    }

    /// Waits until every worker has gone for good. Cancel-safe.
    pub async fn gone(&mut self) {
        while self.places.join_next().await.is_some() {}
    }
}

/// For as long as anybody listens.
async fn look_for_resumed(plan: Arc<Plan>, resumed: watch::Sender<Vec<u32>>) {
    while resumed.receiver_count() > 0 {
        plan.clock.sleep(RESUMED_LOOK_EVERY).await;
        resumed.send_replace((plan.resumed)().await);
    }
}

/// Folders that no worker uses now, the lowest numbers first, so that identities are used again.
fn free_dirs(dir: &Path, queue: &QueueName, count: u32) -> Result<Vec<PathBuf>, StoreError> {
    let mut free = Vec::new();
    for slot in 1..=SLOTS_MAX {
        if free.len() == count as usize {
            break;
        }
        let slot_dir = dir.join(format!("{queue}-{slot}"));
        match FolderLock::take(&slot_dir) {
            // Let go again: the worker itself takes it. Nobody else does, since the data folder is ours.
            Ok(_lock) => free.push(slot_dir),
            Err(StoreError::InUse { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(free)
}

/// One worker's place: whoever fills it, dies and is replaced.
struct Place {
    plan: Arc<Plan>,
    dir: PathBuf,
    order: watch::Receiver<Order>,
    resumed: watch::Receiver<Vec<u32>>,
}

impl Place {
    async fn keep(mut self) {
        let mut deaths = 0;
        loop {
            let born = self.plan.clock.monotonic();
            match self.spawn().await {
                Ok((child, line)) => {
                    let pid = child.id();
                    self.attend(child, line).await;
                    // One that died before it had an identity held nothing.
                    if let (Some(pid), Ok(Some(identity))) = (pid, identity::load(&self.dir)) {
                        self.plan.clock.sleep(WAKE).await;
                        (self.plan.obituary)(identity.worker, pid).await;
                    }
                }
                Err(why) => tracing::error!(why, "a worker cannot be started"),
            }
            if *self.order.borrow() > Order::Work {
                return;
            }
            let lived = self.plan.clock.monotonic().since(born);
            deaths = if lived > LIVED { 1 } else { deaths + 1 };
            let wait = FIRST_WAIT.saturating_mul(1 << u32::min(deaths - 1, 10)).min(LONGEST_WAIT);
            let wait = self.plan.dice.jitter(wait);
            tracing::warn!(dir = %self.dir.display(), wait_ms = wait.as_millis() as u64, "a worker ended and is started again");
            tokio::select! {
                () = self.plan.clock.sleep(wait) => {}
                _ = self.order.wait_for(|order| *order > Order::Work) => return,
            }
        }
    }

    async fn spawn(&self) -> Result<(Child, ChildStdin), String> {
        let plan = &self.plan;
        let process = WorkerProcess {
            url: &plan.url,
            queue: &plan.queue,
            dir: &self.dir,
            pin: &plan.pin,
            cpus: plan.capacity.cpus,
            memory: plan.capacity.memory,
            way: plan.way.as_str(),
            ca: plan.ca.as_deref(),
            collector: plan.collector.as_deref(),
            idle_end: None,
            flags: &[],
        };
        let spawned = process.command().and_then(|mut command| command.spawn());
        let mut child = spawned.map_err(|error| error.to_string())?;
        let mut line = child.stdin.take().ok_or("it has no stdin")?;
        let token = if identity::is_there(&self.dir) {
            String::new()
        } else {
            (plan.invite)(plan.queue.clone()).await.map_err(|problem| problem.line())?
        };
        line.write_all(format!("{token}\n").as_bytes()).await.map_err(|error| error.to_string())?;
        Ok((child, line))
    }

    /// Passes orders on until the child has ended. `_line` must live as long: its end says that we died.
    async fn attend(&mut self, mut child: Child, _line: ChildStdin) {
        let (pid, mut done, mut again) = (child.id(), Order::Work, false);
        loop {
            tokio::select! {
                status = child.wait() => {
                    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                    tracing::debug!(dir = %self.dir.display(), status, "a worker ended");
                    return;
                }
                order = after(&mut self.order, done) => {
                    done = order;
                    pass_on(&child, order);
                }
                () = named(&mut self.resumed, pid), if done == Order::Work && !again => {
                    // A process that rests does so for good, and holds nothing: the next one takes tasks again.
                    tracing::info!(dir = %self.dir.display(), "a worker was resumed: it is started again");
                    again = true;
                    pass_on(&child, Order::Drain);
                }
            }
        }
    }
}

/// The next order past `done`.
async fn after(order: &mut watch::Receiver<Order>, done: Order) -> Order {
    let next = order.wait_for(|order| *order > done).await.map(|order| *order);
    match next {
        Ok(order) => order,
        // The crew was dropped: nobody will order anything any more, and the child's line is about to end.
        Err(_) => std::future::pending().await,
    }
}

/// Ends when this process is among those that were resumed.
async fn named(resumed: &mut watch::Receiver<Vec<u32>>, pid: Option<u32>) {
    let is_named = resumed.wait_for(|pids| pid.is_some_and(|pid| pids.contains(&pid))).await.is_ok();
    if !is_named {
        std::future::pending::<()>().await;
    }
}

fn pass_on(child: &Child, order: Order) {
    // Without an id it has ended and been waited for.
    let pid = child.id().and_then(|id| Pid::from_raw(id as i32));
    if let (Some(pid), Some(signal)) = (pid, order.signal()) {
        // It may have ended this moment, which is what was wanted.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_in_use_are_left_to_those_who_use_them() {
        let dir = tempfile::tempdir().unwrap();
        let queue = QueueName::default();
        let _busy = FolderLock::take(&dir.path().join("default-1")).unwrap();
        let free = free_dirs(dir.path(), &queue, 2).unwrap();
        assert_eq!(free, [dir.path().join("default-2"), dir.path().join("default-3")]);
    }

    #[test]
    fn orders_only_grow_and_each_has_its_signal() {
        assert!(Order::Work < Order::Drain && Order::Drain < Order::Now && Order::Now < Order::Kill);
        assert_eq!((Order::Work.signal(), Order::Kill.signal()), (None, Some(Signal::KILL)));
    }
}
