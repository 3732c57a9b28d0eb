//! A part that runs: one task that works, with tasks beside it that read ahead, append, and listen to readers.
//!
//! | file | what it is |
//! |---|---|
//! | [`pressure`] | how much may be appended to a log; a rule |
//! | [`reader`] | reads a log ahead |
//! | [`records`] | what is told of a log as it is read |
//! | [`writer`] | appends to a log, one append under way |
//! | [`outputs`] | all logs that a part appends to, and the word of those who read them |
//! | [`saving`] | what a part remembers, written down beside the work, and read again |
//! | [`telling`] | how far a part is, told to those who write what it reads |
//! | [`beginning`] | where a part goes on: its snapshot, and what of its log is still there |
//! | [`stage`], [`source`], [`sink`] | the work |

mod beginning;
mod behind;
mod outputs;
mod pressure;
mod reader;
mod records;
mod saving;
mod sink;
mod source;
mod stage;
mod status;
mod telling;
mod wall;
mod writer;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mutirao_broker::Shared;
use mutirao_core::blobs::Blobs;
use mutirao_core::{Clock, Dice, Timestamp};
use mutirao_streams::graph::{Graph, Plan, plan};
use mutirao_streams::wire::{Order, Part, Report, What};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ends::Ends;
use crate::host::HostParts;
use crate::manager::Manager;
use status::Status;
use wall::Wall;

/// What parts are run with.
#[derive(Clone)]
pub struct Means {
    pub broker: Shared,
    pub blobs: Arc<dyn Blobs>,
    pub manager: Arc<dyn Manager>,
    pub ends: Ends,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    /// What a log keeps at most, as the manager says with its orders.
    pub log_bytes: u64,
    /// Another one each time that the host starts, and a greater one.
    pub boot: u64,
    wall: Arc<Wall>,
}

impl Means {
    pub fn of(parts: &HostParts) -> Self {
        let HostParts { broker, blobs, manager, ends, clock, dice, .. } = parts;
        Self {
            broker: broker.clone(),
            blobs: blobs.clone(),
            manager: manager.clone(),
            ends: ends.clone(),
            clock: clock.clone(),
            dice: dice.clone(),
            log_bytes: 0,
            boot: boot(clock.now(), dice.u64()),
            wall: Arc::new(Wall::of(clock.clone())),
        }
    }

    /// Microseconds since 1970.
    pub fn now_us(&self) -> i64 {
        self.wall.now_us()
    }
}

/// Of two that began at different times the later one's is greater; below that it is chance.
fn boot(now: Timestamp, chance: u64) -> u64 {
    const CHANCE_BITS: u32 = 20;
    let since = u64::try_from(now.0).unwrap_or(0) & (u64::MAX >> (CHANCE_BITS + 1));
    since << CHANCE_BITS | chance >> (u64::BITS - CHANCE_BITS)
}

/// How a part is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is somebody else's now.
    Leave,
    /// What it remembers is written down first.
    WithSnapshot,
}

/// What the work of a part knows of its surroundings.
struct Job {
    part: Part,
    graph: Arc<Graph>,
    plan: Plan,
    means: Means,
    status: Arc<Status>,
    order: watch::Receiver<Order>,
    stop: watch::Receiver<Option<Stop>>,
}

impl Job {
    fn order(&self) -> Order {
        self.order.borrow().clone()
    }

    /// Waits until it is to stop. Cancel-safe.
    async fn stopped(&self) -> Stop {
        let mut stop = self.stop.clone();
        match stop.wait_for(Option::is_some).await {
            Ok(stop) => stop.unwrap_or(Stop::Leave),
            Err(_) => Stop::Leave,
        }
    }
}

pub struct Running {
    epoch: u64,
    order: watch::Sender<Order>,
    stop: watch::Sender<Option<Stop>>,
    status: Arc<Status>,
    part: Part,
    task: JoinHandle<()>,
}

impl Running {
    pub fn start(order: Order, graph: Result<Arc<Graph>, String>, means: &Means) -> Self {
        let (part, epoch) = (order.part.clone(), order.epoch);
        let status = Arc::new(Status::default());
        let (orders, heard) = watch::channel(order);
        let (stop, stopped) = watch::channel(None);
        let means = means.clone();
        let (own, told) = (part.clone(), status.clone());
        let task = tokio::spawn(async move {
            let graph = match graph {
                Ok(graph) => graph,
                Err(why) => {
                    told.failed(why);
                    let mut stopped = stopped;
                    let _ = stopped.wait_for(Option::is_some).await;
                    return;
                }
            };
            let plan = plan(&graph);
            let job = Job { part: own, graph, plan, means, status: told, order: heard, stop: stopped };
            match job.part.what {
                What::Source(n) => source::run(job, n as usize).await,
                What::Stage(n) => stage::run(job, n as usize).await,
                What::Sink(n) => sink::run(job, n as usize).await,
            }
        });
        Self { epoch, order: orders, stop, status, part, task }
    }

    /// Nothing once it was told to stop.
    pub fn epoch(&self) -> Option<u64> {
        self.stop.borrow().is_none().then_some(self.epoch)
    }

    pub fn order(&self, order: Order) {
        self.order.send_if_modified(|known| {
            let differs = *known != order;
            *known = order;
            differs
        });
    }

    pub fn stop(&mut self, how: Stop) {
        self.stop.send_if_modified(|stop| stop.replace(how).is_none());
    }

    pub fn report(&self, passed: Duration) -> Report {
        self.status.report(self.part.clone(), self.epoch, passed)
    }

    /// Whether it has ended; one that broke has, too.
    pub fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        std::pin::Pin::new(&mut self.task).poll(context).map(|ended| {
            if let Err(broke) = ended
                && broke.is_panic()
            {
                tracing::error!(part = ?self.part, "a part of a stream broke; it is started again");
            }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
