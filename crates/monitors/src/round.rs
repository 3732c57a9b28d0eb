//! Owners at work: one for each shard of the monitors that this process owns. Several tasks each, so that a store that is away
//! keeps no check from being made: one fires ([`firing`]), one settles what is told ([`settling`]), one judges those that call
//! by themselves ([`calling`]). They share the [`Owner`], never over an await.
//!
//! A store that does not answer for so long that leases run out keeps nobody from checking either: the post goes on firing,
//! alone, and hears and writes nothing (`Post::lapsed`). Outcomes wait in the broker for whoever owns the shard next. If
//! that is somebody else meanwhile, some checks are made twice, and count once.
//!
//! Time is [`Steady`]: it does not jump when the machine's clock is set, so neither a gap nor a repetition follows from that.

mod beat;
mod calling;
mod firing;
mod kept;
mod notices;
mod settling;
pub mod takers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Mono, ShardId, Timestamp};
use mutirao_elastic::Steady;
use mutirao_shards::{Fence, Shards};
use mutirao_store::StoreError;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::GROUP;
use crate::alerts::courier::Courier;
use crate::owner::Owner;
use crate::roller::{self, Roller};
use crate::series::Series;
use crate::store::pushes::SharedPushes;
use crate::store::{Settlement, Settling, Shared as Store};
use kept::{Common, Fired, Kept, StoreIs};
use notices::Notices;
use takers::Takers;

/// How often definitions are looked at though nobody said that they changed: what was not heard is found then.
const RECONCILE: Duration = Duration::from_secs(10);
/// Changes that come one after the other are read together.
const GATHER: Duration = Duration::from_millis(50);
/// Definitions read at once.
const CHANGES_MAX: u32 = 10_000;
const PAUSE: Duration = Duration::from_millis(500);
const IDLE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Bench {
    pub store: Store,
    pub pushes: SharedPushes,
    pub broker: Broker,
    pub clock: Arc<dyn Clock>,
    pub shards: Shards,
    pub courier: Arc<Courier>,
    pub roller: Roller,
    pub series: Arc<Series>,
}

/// One shard, under one generation.
struct Post {
    bench: Bench,
    fence: Fence,
    owner: Mutex<Owner>,
    steady: Steady,
    /// Told when alerts were written.
    raised: Notify,
    notices: Arc<Notices>,
    takers: Arc<Mutex<Takers>>,
    /// What is written of up to where instants were fired, in milliseconds.
    marked: AtomicI64,
    fired: Arc<Fired>,
    /// Said when the outcomes are heard that its predecessor did not come to write.
    caught_up: CancellationToken,
    /// When it was last passed on how checkers are doing.
    passed_on: Mutex<Option<Mono>>,
    /// Said when the lease has run out while the store did not answer.
    lapsed: CancellationToken,
}

/// Why a post has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// All that was in hand is written: the shard can be given back.
    Settled,
    /// It has another owner.
    Fenced,
}

/// Follows what is owned, for as long as it is not dropped.
pub async fn run(bench: Bench) {
    let mut owned = bench.shards.owned();
    let mut posts: BTreeMap<ShardId, Kept> = BTreeMap::new();
    let mut ended: BTreeMap<ShardId, u64> = BTreeMap::new();
    let mut tasks: JoinSet<(ShardId, u64, Ending)> = JoinSet::new();
    let common = Common::default();
    let mut ears = JoinSet::new();
    ears.spawn(notices::listen(common.notices.clone(), bench.broker.clone(), bench.clock.clone()));
    ears.spawn(takers::watch(common.takers.clone(), bench.broker.clone(), bench.clock.clone()));
    loop {
        let board = owned.borrow_and_update().clone();
        let store = bench.shards.trouble().map_or(StoreIs::There, |_| StoreIs::Away);
        let now = bench.clock.monotonic();
        posts.retain(|shard, post| {
            let goes_on = post.goes_on(board.get(shard).map(|tenure| tenure.generation), store, now);
            if !goes_on {
                post.task.abort();
            }
            goes_on
        });
        for (shard, tenure) in &board {
            if posts.contains_key(shard) || ended.get(shard) == Some(&tenure.generation) {
                continue;
            }
            let (bench, shard, generation) = (bench.clone(), *shard, tenure.generation);
            let (common, lapsed) = (common.clone(), CancellationToken::new());
            let keep = keep(bench, shard, generation, common, lapsed.clone());
            let task = tasks.spawn(async move { (shard, generation, keep.await) });
            posts.insert(shard, Kept { generation, task, lapsed, alone_since: None });
        }
        let somebody_is_alone = posts.values().any(|post| post.alone_since.is_some());
        tokio::select! {
            changed = owned.changed() => if changed.is_err() { return },
            () = bench.clock.sleep(IDLE), if somebody_is_alone => {}
            Some(over) = tasks.join_next_with_id() => {
                let (shard, generation, ending) = match over {
                    Ok((_, over)) => over,
                    Err(broke) => {
                        // One that was stopped is off the list already; one that broke is begun anew from what is written.
                        if broke.is_panic() {
                            tracing::error!("a post of monitors broke; its shard is taken up anew");
                        }
                        posts.retain(|_, post| post.task.id() != broke.id());
                        continue;
                    }
                };
                // Another may stand there by now.
                if posts.get(&shard).is_some_and(|post| post.generation == generation) {
                    posts.remove(&shard);
                }
                ended.insert(shard, generation);
                if ending == Ending::Settled {
                    let shards = bench.shards.clone();
                    tokio::spawn(async move { shards.release(shard, generation).await });
                }
            }
        }
    }
}

async fn keep(
    bench: Bench,
    shard: ShardId,
    generation: u64,
    Common { notices, takers, fired }: Common,
    lapsed: CancellationToken,
) -> Ending {
    let steady = Steady::starting(bench.clock.as_ref());
    let mut told = false;
    let mut recalled = loop {
        match bench.store.recall(shard).await {
            Ok(recalled) => break recalled,
            // Every shard meets a lack of rights, and the store says it for all of them.
            Err(error) if told || matches!(error, StoreError::Denied { .. }) => {
                tracing::debug!(%shard, %error, "monitors cannot be recalled")
            }
            Err(error) => {
                told = true;
                tracing::warn!(%shard, %error, "monitors cannot be recalled; trying again until they can");
            }
        }
        bench.clock.sleep(PAUSE).await;
    };
    let revision = recalled.monitors.iter().map(|row| row.revision).max().unwrap_or(0);
    recalled.fired_until = recalled.fired_until.max(fired.until(shard));
    bench.series.know((shard, generation), &recalled.monitors);
    let owner = Owner::new(recalled, steady.now(bench.clock.as_ref()));
    let marked = AtomicI64::new(owner.fired_until().0);
    let fence = Fence { group: GROUP, shard, generation };
    let post = Arc::new(Post {
        bench,
        fence,
        owner: Mutex::new(owner),
        steady,
        raised: Notify::new(),
        notices,
        takers,
        marked,
        fired,
        caught_up: CancellationToken::new(),
        passed_on: Mutex::default(),
        lapsed,
    });
    let _measured = Measured(post.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(post.clone().settle());
    tasks.spawn(post.clone().hear_calls());
    tasks.spawn(post.clone().follow(revision));
    tasks.spawn(post.clone().mark());
    tasks.spawn(post.clone().tell());
    tasks.spawn(post.clone().say_places());
    if shard == roller::SHARD {
        tasks.spawn(post.clone().add_up());
    }
    tokio::select! {
        ending = post.fire() => ending,
        Some(ending) = tasks.join_next() => ending.unwrap_or(Ending::Fenced),
    }
}

/// Ends what is measured of a shard with the post, however that ends.
struct Measured(Arc<Post>);

impl Drop for Measured {
    fn drop(&mut self) {
        self.0.bench.series.leave((self.0.fence.shard, self.0.fence.generation));
    }
}

impl Post {
    fn now(&self) -> Timestamp {
        self.steady.now(self.bench.clock.as_ref())
    }

    /// Takes changes of definitions in: when somebody says that there are some, and now and then.
    async fn follow(self: Arc<Self>, mut after: u64) -> Ending {
        let mut full = false;
        loop {
            if !full {
                let told = self.notices.told(self.fence.shard);
                // Nothing in time is a sign as well: what was not heard is found now.
                let _ = self.bench.clock.timeout(RECONCILE, told).await;
                self.bench.clock.sleep(GATHER).await;
            }
            let changed = match self.bench.store.changed(after, CHANGES_MAX).await {
                Ok(changed) => changed,
                Err(error) => {
                    tracing::debug!(%error, "definitions of monitors could not be read; the next round will");
                    continue;
                }
            };
            full = changed.len() as u32 >= CHANGES_MAX;
            after = changed.iter().map(|row| row.revision).max().unwrap_or(after);
            let now = self.now();
            let mine = || changed.iter().filter(|row| row.shard == self.fence.shard);
            self.bench.series.know((self.fence.shard, self.fence.generation), mine());
            let mut owner = self.owner.lock();
            for row in mine().cloned() {
                owner.define(row, now);
            }
        }
    }

    /// Adds up what is over, of the monitors of all shards.
    async fn add_up(self: Arc<Self>) -> Ending {
        loop {
            self.bench.clock.sleep(roller::EVERY).await;
            match self.bench.roller.round(&self.fence, self.now()).await {
                Ok(Settling::Fenced) => return Ending::Fenced,
                Ok(Settling::Written { .. }) => {}
                Err(error) => tracing::debug!(%error, "outcomes could not be added up; the next round will"),
            }
        }
    }

    /// Tries until it is written, or until it is certain that it is not for us to write.
    async fn write(&self, settlement: Settlement) -> Ending {
        loop {
            match self.bench.store.settle(self.fence.clone(), settlement.clone()).await {
                Ok(Settling::Written { .. }) => {
                    if let Some(until) = settlement.fired_until {
                        self.marked.fetch_max(until.0, Ordering::Relaxed);
                    }
                    return Ending::Settled;
                }
                Ok(Settling::Fenced) => return Ending::Fenced,
                // Every shard meets it all the time, and the store says it for all of them.
                Err(error @ (StoreError::Unreachable { .. } | StoreError::Denied { .. })) => {
                    tracing::debug!(shard = %self.fence.shard, %error, "outcomes cannot be written");
                }
                Err(error) => {
                    tracing::warn!(shard = %self.fence.shard, %error, "outcomes cannot be written; trying again")
                }
            }
            self.bench.clock.sleep(PAUSE).await;
        }
    }
}
