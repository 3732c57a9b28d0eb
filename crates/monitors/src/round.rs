//! Owners at work: one for each shard of the monitors that this process owns. Two tasks each, so that a store that is away
//! keeps no check from being made: one fires, the other settles what is told. They share the [`Owner`], never over an await.
//!
//! A store that does not answer for so long that leases run out keeps nobody from checking either: the post goes on firing,
//! alone, and hears and writes nothing (`Post::lapsed`). Outcomes wait in the broker for whoever owns the shard next. If
//! that is somebody else meanwhile, some checks are made twice, and count once.
//!
//! Time is [`Steady`]: it does not jump when the machine's clock is set, so neither a gap nor a repetition follows from that.

mod kept;
mod notices;
pub mod takers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mutirao_broker::{BrokerError, Shared as Broker};
use mutirao_core::check::PLACES;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::{Clock, ShardId, Timestamp};
use mutirao_elastic::Steady;
use mutirao_shards::{Asked, Fence, Shards};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::alerts::courier::{Courier, Round};
use crate::envelope::{Ask, Checks, Outcomes, Places, Told, outcomes_of};
use crate::owner::Owner;
use crate::roller::{self, Roller};
use crate::series::Series;
use crate::store::{Settlement, Settling, Shared as Store};
use crate::{GROUP, meters};
use kept::{Common, Fired, Kept, StoreIs};
use notices::Notices;
use takers::{Going, Takers};

/// How often definitions are looked at though nobody said that they changed: what was not heard is found then.
const RECONCILE: Duration = Duration::from_secs(10);
/// Changes that come one after the other are read together.
const GATHER: Duration = Duration::from_millis(50);
/// Definitions read at once.
const CHANGES_MAX: u32 = 10_000;
/// How often it is written up to where instants were fired, if any were.
const MARK: Duration = Duration::from_secs(2);
/// How often it is said where checks are wanted.
const SAY_PLACES: Duration = Duration::from_secs(5);
/// Places that are said at once.
const PLACES_MAX: usize = 200;
/// How often silent monitors are looked for.
const LOOK: Duration = Duration::from_secs(5);
/// How often alerts are looked for that are to be tried again.
const TELL: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(500);
/// Fired together rather than one by one.
const BREATH: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_secs(1);
/// Parcels of outcomes taken and not yet settled.
const CREDIT: u32 = 32;

#[derive(Clone)]
pub struct Bench {
    pub store: Store,
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
    let mut recalled = loop {
        match bench.store.recall(shard).await {
            Ok(recalled) => break recalled,
            Err(error) => tracing::warn!(%shard, %error, "monitors cannot be recalled; trying again"),
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
        lapsed,
    });
    let _measured = Measured(post.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(post.clone().settle());
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

    /// Fires what is due for as long as the shard is ours and nobody else should have it.
    async fn fire(&self) -> Ending {
        let clock = &self.bench.clock;
        loop {
            match self.bench.shards.tenure(self.fence.shard).filter(|tenure| tenure.generation == self.fence.generation)
            {
                Some(tenure) if tenure.asked == Asked::Stay => {}
                Some(_) => return self.last_mark().await,
                // The store does not answer; nobody else can be asked whose turn it is.
                None if self.lapsed.is_cancelled() => {}
                // Whether it is that, or the shard has another owner, is known in a moment.
                None => {
                    clock.sleep(PAUSE).await;
                    continue;
                }
            }
            let now = self.now();
            let due = self.owner.lock().due(now, clock.now());
            if let Err(error) = self.publish(due).await {
                tracing::warn!(shard = %self.fence.shard, %error, "checks cannot be handed out; trying again");
                clock.sleep(PAUSE).await;
                continue;
            }
            let next = {
                let mut owner = self.owner.lock();
                owner.fired(now);
                self.fired.note(self.fence.shard, now);
                owner.next()
            };
            let wait = next.map_or(IDLE, |next| next.since(self.now()).min(IDLE)).max(BREATH);
            clock.sleep(wait).await;
        }
    }

    async fn publish(&self, due: BTreeMap<Arc<str>, Vec<Vec<Ask>>>) -> Result<(), BrokerError> {
        for (queue, parcels) in due {
            let many = parcels.iter().map(Vec::len).sum::<usize>() as u64;
            match self.takers.lock().wanted(&queue, self.bench.clock.monotonic()) {
                Going::Out => {}
                Going::Nobody => {
                    meters::missed(meters::NOBODY, many);
                    continue;
                }
                Going::Full => {
                    meters::missed(meters::FULL, many);
                    continue;
                }
            }
            let shard = self.fence.shard.0;
            let seal = |checks| seal(&Checks { v: Version::default(), shard, checks });
            let bodies = parcels.into_iter().map(seal).collect();
            match self.bench.broker.publish(&queue, bodies).await {
                // Nobody makes them: those that wait are worth more than new ones that would wait behind them.
                Err(BrokerError::Full { .. }) => meters::missed(meters::FULL, many),
                other => other?,
            }
        }
        Ok(())
    }

    async fn last_mark(&self) -> Ending {
        let until = self.owner.lock().fired_until();
        self.write(Settlement { fired_until: Some(until), ..Settlement::default() }).await
    }

    /// Writes now and then up to where instants were fired, unless nothing was or a settlement has said so. A successor
    /// begins there: what was not fired in between is not due then either.
    async fn mark(self: Arc<Self>) -> Ending {
        loop {
            self.bench.clock.sleep(MARK).await;
            if self.lapsed.is_cancelled() {
                continue;
            }
            let fired = self.owner.lock().last_firing();
            if fired.is_some_and(|at| at.0 > self.marked.load(Ordering::Relaxed))
                && self.last_mark().await == Ending::Fenced
            {
                return Ending::Fenced;
            }
        }
    }

    /// Says now and then where checks are wanted, for checkers that stand there. Nothing where none are.
    async fn say_places(self: Arc<Self>) -> Ending {
        loop {
            let places: Vec<_> = self.owner.lock().places().into_iter().take(PLACES_MAX).collect();
            if !places.is_empty() {
                let body = seal(&Places { v: Version::default(), places });
                if let Err(error) = self.bench.broker.announce(PLACES, body).await {
                    tracing::debug!(%error, "where checks are wanted could not be said; the next round will");
                }
            }
            self.bench.clock.sleep(SAY_PLACES).await;
        }
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

    /// Makes beliefs of what is told, and writes them.
    async fn settle(self: Arc<Self>) -> Ending {
        loop {
            let settled = tokio::select! {
                settled = self.settle_while_it_lasts() => settled,
                // What was not written goes back into the broker, for whoever is next.
                () = self.lapsed.cancelled() => std::future::pending().await,
            };
            match settled {
                Ok(ending) => return ending,
                Err(BrokerError::Closed) => return Ending::Settled,
                Err(error) => {
                    tracing::debug!(shard = %self.fence.shard, %error, "outcomes are not heard; trying again")
                }
            }
            self.bench.clock.sleep(PAUSE).await;
        }
    }

    async fn settle_while_it_lasts(&self) -> Result<Ending, BrokerError> {
        let mut consumer = self.bench.broker.consume(&outcomes_of(self.fence.shard), CREDIT).await?;
        loop {
            let heard = self.bench.clock.timeout(LOOK, consumer.next()).await;
            let (mut told, mut last, mut missed): (Vec<Told>, _, u64) = (Vec::new(), None, 0);
            for delivery in heard.unwrap_or_else(|_nothing| Ok(Vec::new()))? {
                match open::<Outcomes>(&delivery.body) {
                    Ok(parcel) => {
                        told.extend(parcel.outcomes);
                        missed += u64::from(parcel.missed);
                        last = Some(delivery.tag);
                    }
                    Err(unreadable) => consumer.reject(delivery.tag, &unreadable.to_string()).await?,
                }
            }
            meters::missed(meters::LATE, missed);
            let now = self.now();
            let certificates: Vec<_> =
                told.iter().filter_map(|told| Some((told.monitor, told.certificate_days?))).collect();
            let settlement = {
                let mut owner = self.owner.lock();
                let mut settlement = owner.take(told);
                let silent = owner.look(now);
                settlement.health.extend(silent.health);
                settlement.alerts.extend(silent.alerts);
                settlement.fired_until = Some(owner.fired_until());
                settlement
            };
            self.bench.series.settled(&settlement, &certificates);
            let alerts = !settlement.alerts.is_empty();
            let nothing = settlement.outcomes.is_empty() && settlement.health.is_empty() && !alerts;
            if !nothing && self.write(settlement).await == Ending::Fenced {
                return Ok(Ending::Fenced);
            }
            if alerts {
                self.raised.notify_one();
            }
            if let Some(tag) = last {
                consumer.ack_through(tag).await?;
            }
        }
    }

    /// Tells channels what was raised, and tries again those that could not be told.
    async fn tell(self: Arc<Self>) -> Ending {
        let mut round = Round::More;
        loop {
            if round != Round::More {
                let _nothing_was_raised = self.bench.clock.timeout(TELL, self.raised.notified()).await;
            }
            let (shards, fence) = (self.bench.shards.clone(), self.fence.clone());
            let owned = move || shards.tenure(fence.shard).is_some_and(|tenure| tenure.generation == fence.generation);
            if !owned() {
                round = Round::Done;
                continue;
            }
            round = match self.bench.courier.round(&self.fence, self.now(), owned).await {
                Ok(Round::Fenced) => return Ending::Fenced,
                Ok(round) => round,
                Err(error) => {
                    tracing::debug!(shard = %self.fence.shard, %error, "alerts cannot be read or written; trying again");
                    Round::Done
                }
            };
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
                Err(error @ mutirao_store::StoreError::Unreachable { .. }) => {
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
