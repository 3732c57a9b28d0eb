//! Appliers at work: one for each shard that this process owns. Whatever feeds it ([`direct`], [`queued`]), an applier writes
//! what waits as one batch, so that a hundred writers share one transaction and one fsync; and it ends what is over and forgets
//! what is old.

pub mod direct;
pub mod doubts;
mod due;
pub mod queued;
mod tidying;

use std::collections::{BTreeMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use mutirao_broker::Shared as Broker;
use mutirao_core::{Clock, Dice, ShardId, Timestamp};
use mutirao_shards::{Asked, Company, Fence, Shards};
use mutirao_store::StoreError;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cache::Shared as Cache;
use crate::cache::warden::Warden;
use crate::fold::Taken;
use crate::meters;
use crate::outbox::Outbox;
use crate::store::{Applying, Shared as Store};
use crate::write::{Change, Parcel, Place, Producer};
use crate::{GROUP, SHARDS};
use due::Due;

/// Writes in one batch, and their bytes together.
const BATCH_WRITES_MAX: usize = 1_024;
const BATCH_BYTES_MAX: usize = 8 << 20;
/// At least this often an applier that is given nothing looks around.
const LOOK: Duration = Duration::from_secs(1);
/// Between two tries of a batch.
const PAUSE: Duration = Duration::from_millis(200);

/// What appliers work with.
#[derive(Clone)]
pub struct Bench {
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub shards: Shards,
    /// For how long the past is kept.
    pub keep: Duration,
    /// How much of it, of all shards together; none: as much as there is.
    pub keep_bytes: Option<u64>,
    /// The revision of each shard as far as it was applied here.
    pub applied: Arc<Vec<watch::Sender<u64>>>,
    /// What is told of every change, if there is one.
    pub cache: Option<Cache>,
    /// Whether there may be other managers, with a cache of which this one need not know.
    pub company: Company,
}

/// Where an applier's writes come from.
#[derive(Clone)]
pub enum Feed {
    /// From whoever gives them here.
    Hand(direct::Hands),
    /// From a queue of each shard. What came from this process's own outbox is told to it at once.
    Queue { broker: Broker, outbox: Arc<Outbox> },
}

/// Nothing applied yet.
pub fn nothing_applied() -> Arc<Vec<watch::Sender<u64>>> {
    Arc::new((0..SHARDS).map(|_| watch::Sender::new(0)).collect())
}

/// Follows what is owned until it is over, and leaves nobody behind.
pub async fn follow(bench: Bench, feed: Feed, over: CancellationToken) {
    let mut owned = bench.shards.owned();
    let mut running: BTreeMap<ShardId, u64> = BTreeMap::new();
    let mut tasks: JoinSet<(ShardId, u64)> = JoinSet::new();
    loop {
        let board = owned.borrow_and_update().clone();
        for (shard, tenure) in &board {
            // One that was asked to leave and left is not begun again.
            if running.get(shard) == Some(&tenure.generation) {
                continue;
            }
            running.insert(*shard, tenure.generation);
            let fence = Fence { group: GROUP, shard: *shard, generation: tenure.generation };
            let at = (fence.shard, fence.generation);
            let applier = Applier::new(bench.clone(), fence);
            match &feed {
                Feed::Hand(hands) => {
                    let given = hands.open(*shard, bench.clock.clone());
                    let producer = bench.dice.u64();
                    let doubts = hands.doubts();
                    tasks.spawn(async move {
                        unharmed(at.0, direct::Direct::new(applier, producer, doubts).run(given)).await;
                        at
                    });
                }
                Feed::Queue { broker, outbox } => {
                    let (broker, outbox) = (broker.clone(), outbox.clone());
                    tasks.spawn(async move {
                        unharmed(at.0, queued::Queued::new(applier, broker, outbox).run()).await;
                        at
                    });
                }
            }
        }
        tokio::select! {
            () = over.cancelled() => return tasks.shutdown().await,
            changed = owned.changed() => if changed.is_err() { return },
            Some(Ok((shard, generation))) = tasks.join_next() => {
                if running.get(&shard) == Some(&generation) && let Feed::Hand(hands) = &feed {
                    hands.shut(shard);
                }
                bench.shards.release(shard, generation).await;
            }
        }
    }
}

/// Whoever panics gives its shard up as others do; else it would be held, and nothing of it applied.
async fn unharmed(shard: ShardId, run: impl Future<Output = ()>) {
    if AssertUnwindSafe(run).catch_unwind().await.is_err() {
        tracing::error!(%shard, "applying writes ended by a fault of this program; the shard is given up and taken anew");
    }
}

/// One shard's, for one tenure.
pub struct Applier {
    bench: Bench,
    fence: Fence,
    due: Due,
    warden: Warden,
    history: meters::History,
}

enum Go {
    On,
    Away,
}

impl Applier {
    fn new(bench: Bench, fence: Fence) -> Self {
        let (clock, dice) = (bench.clock.clone(), bench.dice.clone());
        let due = Due::new(fence.shard, clock.now(), clock.monotonic());
        let warden = Warden::new(bench.cache.clone(), bench.company, clock, dice, fence.shard, fence.generation);
        Self { bench, fence, due, warden, history: meters::History::default() }
    }

    /// Whether the shard is still ours to work for.
    fn stays(&self) -> bool {
        // None: it may come back, since a store that does not answer renews nothing for a while. Meanwhile the fence decides.
        let tenure = self.bench.shards.tenure(self.fence.shard);
        tenure.is_none_or(|t| t.generation == self.fence.generation && t.asked == Asked::Stay)
    }

    /// Whether it is so beyond doubt.
    fn holds(&self) -> bool {
        self.stays() && self.bench.shards.tenure(self.fence.shard).is_some()
    }

    fn nap(&self, now: Timestamp) -> Duration {
        let most = self.warden.nap().map_or(LOOK, |nap| nap.min(LOOK));
        self.due.nap(now, self.bench.clock.monotonic(), most)
    }

    /// Vouches for what is cached, while the shard is ours beyond doubt.
    async fn vouch(&mut self) {
        let tenure = self.bench.shards.tenure(self.fence.shard);
        let now = self.bench.clock.monotonic();
        let ours = tenure.is_some_and(|tenure| tenure.generation == self.fence.generation && tenure.holds(now));
        if ours {
            self.warden.keep().await;
        }
    }

    /// One transaction: all of it, or nothing.
    async fn apply(&mut self, parcels: Vec<Parcel>) -> Result<Applied, StoreError> {
        self.heed(&parcels);
        let clock = self.bench.clock.clone();
        let begun = clock.monotonic();
        let touched = if self.warden.tells() { touched(&parcels) } else { Vec::new() };
        let marked = self.warden.mark(&touched).await;
        // Where it is not known what came of it, what was marked stays so: it is read from the store.
        let applying = self.bench.store.apply(self.fence.clone(), parcels, clock.now()).await;
        match applying.inspect_err(|_| self.warden.is_in_doubt())? {
            Applying::Fenced => Ok(Applied::Fenced),
            Applying::Done { revision, taken, entries } => {
                self.warden.offer(marked, touched, entries).await;
                self.warden.is_settled();
                self.reached(revision);
                let writes = taken.iter().map(|taken| taken.fates.len()).sum();
                meters::applied(writes, clock.monotonic().since(begun));
                Ok(Applied::Done(taken))
            }
        }
    }

    /// One that the store refuses is written down as if it had no writes: so whoever waits is told, here and elsewhere, and it is
    /// not applied should it come again.
    async fn set_aside(&self, producer: Producer, number: u64) -> Result<Applied, StoreError> {
        let nothing = Parcel { producer, number, writes: Vec::new() };
        match self.bench.store.apply(self.fence.clone(), vec![nothing], self.bench.clock.now()).await? {
            Applying::Fenced => Ok(Applied::Fenced),
            Applying::Done { taken, .. } => Ok(Applied::Done(taken)),
        }
    }

    /// Remembers when the first of these will be over.
    fn heed(&mut self, parcels: &[Parcel]) {
        let lasts = |change: &Change| match change {
            Change::Put { lasts, .. } => *lasts,
            Change::Delete => None,
        };
        let writes = parcels.iter().flat_map(|parcel| &parcel.writes);
        let Some(shortest) = writes.filter_map(|write| lasts(&write.change)).min() else { return };
        self.due.heed(self.bench.clock.now().plus(shortest));
    }

    fn reached(&self, revision: u64) {
        self.bench.applied[self.fence.shard.0 as usize].send_replace(revision);
    }
}

/// Each key once.
fn touched(parcels: &[Parcel]) -> Vec<Place> {
    let mut seen = HashSet::new();
    let places = parcels.iter().flat_map(|parcel| &parcel.writes).map(|write| &write.place);
    places.filter(|place| seen.insert(*place)).cloned().collect()
}

/// What became of a batch.
enum Applied {
    /// Those of its parcels that were new.
    Done(Vec<Taken>),
    /// The shard is another's; nothing was written.
    Fenced,
}
