//! A post for each shard of runs that this process owns: it reads them back from the store and drives their foreman.
//! Whoever has something for a shard puts it to the [`Doors`]; what other processes have is heard over the broker.

mod doing;
mod drive;
mod looking;
mod seeking;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use mutirao_broker::Shared as Broker;
use mutirao_core::{Clock, ShardId};
use mutirao_nodes::errand::Reach;
use mutirao_nodes::{ActionName, NodeId};
use mutirao_shards::{Company, Fence, Shards};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, broadcast, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::asking::Asking;
use crate::foreman::Rules;
use crate::foreman::explaining::StepExplained;
use crate::foreman::words::{Admitted, Batch, End, RunKey};
use crate::plans::Plans;
use crate::store::Shared as Store;
use crate::wire::{Reply, RequestId, Secret};
use crate::{GROUP, returns};

/// Words that may wait at a door.
const DOOR_WORDS_MAX: usize = 256;

/// What is put to a post.
pub enum Word {
    Admit(Box<Admitted>, Option<Box<Reply>>),
    /// `told` once what came of it is durable.
    Returned {
        id: RequestId,
        end: End,
        node: Option<NodeId>,
        told: oneshot::Sender<()>,
    },
    Lost(NodeId),
    /// It has something new in the store.
    Look(RunKey),
    /// A node that has this may have room again.
    Room(ActionName),
    Explain(RunKey, oneshot::Sender<Option<Vec<StepExplained>>>),
}

/// What posts work with.
#[derive(Clone)]
pub struct Bench {
    pub store: Store,
    pub broker: Broker,
    pub clock: Arc<dyn Clock>,
    pub shards: Shards,
    pub reach: Arc<dyn Reach>,
    pub plans: Arc<Plans>,
    pub secret: Secret,
    pub doors: Doors,
    /// Rung when something of a shard is in the store that its owner may not have heard of.
    pub bells: Arc<Vec<Notify>>,
    /// Runs whose end is durable.
    pub ended: broadcast::Sender<RunKey>,
    /// Runs of which something more is durable, for those who follow one.
    pub changed: broadcast::Sender<RunKey>,
    pub asking: Arc<Asking>,
    pub rules: Rules,
    pub queues: Queues,
    /// How many things that take a while are worked out at once, whatever shard they are of.
    pub heads: Arc<Semaphore>,
    /// Whether there may be other managers, and so somebody to pass results on to.
    pub company: Company,
}

impl Bench {
    fn tell_changed(&self, batch: &Batch) {
        if self.changed.receiver_count() == 0 {
            return;
        }
        let runs = batch.outcomes.iter().map(|one| one.key.run).chain(batch.ends.iter().map(|(run, ..)| *run));
        let runs: BTreeSet<RunKey> = runs.collect();
        for run in runs {
            let _ = self.changed.send(run);
        }
    }
}

/// Of the processors, half, so that what others wait for goes on meanwhile.
pub fn heads() -> Arc<Semaphore> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Arc::new(Semaphore::new((processors / 2).max(1)))
}

/// Why no run is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    Runs,
    Memory,
}

/// Who waits for a node with room, over all shards of this process: the first to come is the first to be told.
#[derive(Clone, Default)]
pub struct Queues(Arc<Mutex<HashMap<ActionName, VecDeque<ShardId>>>>);

impl Queues {
    /// So many of one action stand in line; who comes later looks now and then.
    const MAX: usize = 10_000;
    /// Of so many actions. Where nobody has room for any of them, lines would be left behind by those who want nothing any more.
    const ACTIONS_MAX: usize = 1_000;

    fn stand(&self, action: ActionName, shard: ShardId) {
        let mut queues = self.0.lock();
        if queues.len() >= Self::ACTIONS_MAX && !queues.contains_key(&action) {
            // Whoever still waits looks by itself within a second or so, and stands here again.
            queues.clear();
        }
        let line = queues.entry(action).or_default();
        if line.len() < Self::MAX {
            line.push_back(shard);
        }
    }

    fn next(&self, action: &ActionName) -> Option<ShardId> {
        let mut queues = self.0.lock();
        let line = queues.get_mut(action)?;
        let next = line.pop_front();
        if line.is_empty() {
            queues.remove(action);
        }
        next
    }
}

/// Those of this process; clones share them.
#[derive(Clone, Default)]
pub struct Doors(Arc<Mutex<BTreeMap<ShardId, Door>>>);

struct Door {
    generation: u64,
    words: mpsc::Sender<Word>,
    /// How many runs are under way behind it, and about how much memory they take.
    runs: usize,
    bytes: usize,
}

impl Doors {
    pub fn of(&self, shard: ShardId) -> Option<mpsc::Sender<Word>> {
        self.0.lock().get(&shard).map(|door| door.words.clone())
    }

    pub fn all(&self) -> Vec<mpsc::Sender<Word>> {
        self.0.lock().values().map(|door| door.words.clone()).collect()
    }

    /// Whether some shard has as much as it takes.
    pub fn full(&self, rules: &Rules) -> Option<Full> {
        let doors = self.0.lock();
        if doors.values().any(|door| door.runs >= rules.runs_max) {
            return Some(Full::Runs);
        }
        doors.values().any(|door| door.bytes >= rules.bytes_max).then_some(Full::Memory)
    }

    fn count(&self, shard: ShardId, runs: usize, bytes: usize) {
        if let Some(door) = self.0.lock().get_mut(&shard) {
            (door.runs, door.bytes) = (runs, bytes);
        }
    }

    fn open(&self, shard: ShardId, generation: u64) -> mpsc::Receiver<Word> {
        let (words, heard) = mpsc::channel(DOOR_WORDS_MAX);
        self.0.lock().insert(shard, Door { generation, words, runs: 0, bytes: 0 });
        heard
    }

    fn shut(&self, shard: ShardId, generation: u64) {
        let mut doors = self.0.lock();
        if doors.get(&shard).is_some_and(|door| door.generation == generation) {
            doors.remove(&shard);
        }
    }
}

/// Follows what is owned until it is over, and leaves nobody behind.
pub async fn follow(bench: Bench, over: CancellationToken) {
    let mut owned = bench.shards.owned();
    let mut running: BTreeMap<ShardId, u64> = BTreeMap::new();
    let mut posts: JoinSet<(ShardId, u64)> = JoinSet::new();
    loop {
        let board = owned.borrow_and_update().clone();
        for (shard, tenure) in board {
            let generation = tenure.generation;
            // One that was asked to leave and left is not begun again.
            if running.insert(shard, generation) == Some(generation) {
                continue;
            }
            let words = bench.doors.open(shard, generation);
            let post = drive::Post::new(bench.clone(), Fence { group: GROUP, shard, generation }, words);
            let ear = returns::listen(bench.clone(), shard, generation);
            posts.spawn(async move {
                let driven = async {
                    tokio::select! {
                        () = post.run() => {}
                        () = ear => {}
                    }
                };
                if AssertUnwindSafe(driven).catch_unwind().await.is_err() {
                    tracing::error!(%shard, "runs of flows ended by a fault of this program; the shard is given up and taken anew");
                }
                (shard, generation)
            });
        }
        tokio::select! {
            () = over.cancelled() => return posts.shutdown().await,
            changed = owned.changed() => if changed.is_err() { return },
            Some(Ok((shard, generation))) = posts.join_next() => {
                bench.doors.shut(shard, generation);
                bench.shards.release(shard, generation).await;
            }
        }
    }
}
