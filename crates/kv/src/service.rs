//! The capability: what people and programs ask of kv.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::Shared as Broker;
use mutirao_core::auth::Principal;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice, Mono, Problem, ShardId, Timestamp};
use mutirao_shards::{MemberId, Shards, ShardsError, ShardsParts, Shared as Leases, Terms};
use mutirao_store::{Database, StoreError, refused};
use mutirao_surface::{Capability, Ready};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::applier::direct::Hands;
use crate::applier::{self, Bench, Feed};
use crate::cache::flights::Flights;
use crate::cache::{self, Looked, Shared as Cache};
use crate::fold::Entry;
use crate::intake::{Answer, Intake, NotTaken, Receipt, Until};
use crate::meters::{self, Looks, METERS};
use crate::outbox::{Outbox, OutboxParts};
use crate::point::Point;
use crate::problems::{compacted, forgotten, full, missing, not_yet, told, unconfirmed, unknown};
use crate::store::{self, Extent, Known, Page, Past, Range, Shared as Store};
use crate::write::{Change, Condition, Key, Named, Place, Producer, Standing, Value, Write};
use crate::{GROUP, SHARDS, legacy, routes};

/// Operations in one batch.
pub const BATCH_MAX: usize = 1_000;
/// Bytes of values after which a page, or what a watcher is told at once, takes no more.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// The longest that a read or a question waits.
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a write, or a whole batch, waits for shards to have owners again.
const OWNER_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// How long appliers may take to leave their queues when everything stops.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long a write, or a whole batch, may take to become durable: longer than whoever makes it so tries.
const DURABLE_WITHIN: Duration = Duration::from_secs(15);
/// How long its giver waits for what is durable to be applied; then it is told that it is queued.
const APPLIED_WITHIN: Duration = Duration::from_secs(10);

/// What makes a write durable.
#[derive(Clone)]
pub enum Path {
    /// Its commit, by the one manager that there is.
    Commit,
    /// The confirm of a queue that outlives every manager; any of them takes any write. `backlog_max`: writes that may be on
    /// their way from this manager to one shard.
    Queue { broker: Broker, backlog_max: usize },
}

/// Whether the original's routes are there, which ask nobody who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legacy {
    Off,
    On,
}

/// Where values are kept at hand.
#[derive(Clone)]
pub enum AtHand {
    Nowhere,
    /// In this process, which must be the only one, up to so many bytes.
    Here {
        bytes_max: usize,
    },
    /// In a Redis that all managers use. Nobody else must use the prefix: what another installation writes there would be
    /// taken for ours.
    Redis {
        url: String,
        prefix: String,
    },
}

pub struct KvParts {
    pub store: Database,
    pub path: Path,
    pub at_hand: AtHand,
    pub leases: Leases,
    pub terms: Terms,
    pub member: MemberId,
    pub address: String,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    /// For how long the past is kept.
    pub keep: Duration,
    /// Whoever watches is let go when it ends.
    pub shutdown: CancellationToken,
}

/// Clones share it.
#[derive(Clone)]
pub struct Kv(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    shards: Shards,
    intake: Arc<dyn Intake>,
    cache: Option<Cache>,
    looks: Looks,
    flights: Flights<Place, Result<Option<Entry>, Arc<StoreError>>>,
    applied: Arc<Vec<watch::Sender<u64>>>,
    shutdown: CancellationToken,
    /// Appliers leave when it ends.
    over: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

/// Tells when a durable write is applied.
type Applying = tokio::sync::oneshot::Receiver<Answer>;

/// How a write stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteState {
    /// Durable, not applied yet.
    Queued,
    Applied,
    /// Applied; another write has taken its place since.
    Superseded,
    /// Its condition did not hold; nothing was changed.
    Conflict,
    /// Not applied so far, and nobody has confirmed it: it may be on its way, or never have been sent.
    InDoubt,
    /// Never made, and it will not be: something that was sent later has been applied.
    NotMade,
}

/// What is known of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WriteView {
    /// By which it can be asked after.
    pub write: String,
    pub state: WriteState,
    /// Of the key, once it is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// A key in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub key: Key,
    pub entry: Entry,
}

/// Where a list goes on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Position {
    /// As it was when the list was begun.
    point: Point,
    at: Timestamp,
    from: String,
}

/// A part of a list, as it was when the list was begun.
#[derive(Clone, Debug)]
pub struct ListPage {
    pub entries: Vec<Listed>,
    pub point: Point,
    pub next: Option<Position>,
}

/// What a read must have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtLeast {
    pub revision: Option<u64>,
    pub write: Option<Named>,
}

impl Kv {
    /// Joins those who own the keys.
    pub async fn start(parts: KvParts) -> Result<Self, ShardsError> {
        let KvParts { store, path, at_hand, leases, terms, member, address, clock, dice, keep, shutdown } = parts;
        let store = store::open(&store);
        let shards = Shards::start(ShardsParts {
            store: leases,
            clock: clock.clone(),
            dice: dice.clone(),
            group: GROUP,
            count: SHARDS,
            member,
            address,
            terms,
        })
        .await?;
        let looks = meters::begin();
        let cache = cache_of(at_hand, &clock, &dice);
        let applied = applier::nothing_applied();
        let mut tasks = JoinSet::new();
        let (feed, intake): (Feed, Arc<dyn Intake>) = match path {
            Path::Commit => {
                let hands = Hands::default();
                (Feed::Hand(hands.clone()), Arc::new(hands))
            }
            Path::Queue { broker, backlog_max } => {
                let producer = Producer(dice.u64());
                let (store, clock, shards) = (store.clone(), clock.clone(), shards.clone());
                let parts = OutboxParts { broker: broker.clone(), store, clock, producer, backlog_max, shards };
                let outbox = Outbox::start(parts, &mut tasks).await?;
                (Feed::Queue { broker, outbox: outbox.clone() }, outbox)
            }
        };
        let bench = Bench {
            store: store.clone(),
            clock: clock.clone(),
            dice,
            shards: shards.clone(),
            keep,
            applied: applied.clone(),
            cache: cache.clone(),
        };
        let over = CancellationToken::new();
        tasks.spawn(applier::follow(bench, feed, over.clone()));
        let (flights, tasks) = (Flights::default(), Mutex::new(tasks));
        Ok(Self(Arc::new(Inner {
            store,
            clock,
            shards,
            intake,
            cache,
            looks,
            flights,
            applied,
            shutdown,
            over,
            tasks,
        })))
    }

    /// Writes what was taken, and gives the shards back. When it is done nothing of it runs any more, so that whoever closes
    /// the broker next finds that its queues were left before.
    pub async fn stop(&self) {
        self.0.shards.leave().await;
        self.0.over.cancel();
        let mut tasks = std::mem::take(&mut *self.0.tasks.lock());
        // The appliers leave by themselves, and everybody else waits for something that may never come.
        while !tasks.is_empty() {
            let _ = self.0.clock.timeout(LEAVE_WITHIN, tasks.join_next()).await;
            tasks.abort_all();
        }
    }

    pub fn capability(&self, legacy: Legacy) -> Capability {
        let shards = self.0.shards.clone();
        let capability = Capability::new("kv", routes::routes().with_state(self.clone()))
            .measuring(METERS)
            .ready_when(Arc::new(self.clone()))
            .sharded(move || shards.views());
        match legacy {
            Legacy::Off => capability,
            Legacy::On => capability.open_to_anybody(legacy::routes(self.clone()).into()),
        }
    }

    /// Answered when it is durable, or applied. One on a condition is always answered when it is applied.
    pub async fn write(
        &self,
        caller: &Principal,
        key: Key,
        change: Change,
        condition: Condition,
        until: Until,
    ) -> Result<WriteView, Problem> {
        let begun = self.0.clock.monotonic();
        let place = Place { namespace: caller.namespace.as_str().into(), key };
        let receipt = self.give(Write { place, change, condition }, until, begun).await?;
        let (answer, applied) = self.durable(receipt, begun.plus(DURABLE_WITHIN)).await?;
        self.applied(answer, applied, self.0.clock.monotonic().plus(APPLIED_WITHIN)).await
    }

    /// Each for itself, those of one key in order; the answers in the order of the operations. However many they are, the
    /// caller waits no longer than for one.
    pub async fn batch(
        &self,
        caller: &Principal,
        operations: Vec<(Key, Change, Condition)>,
        until: Until,
    ) -> Vec<Result<WriteView, Problem>> {
        let begun = self.0.clock.monotonic();
        let mut given = Vec::new();
        for (key, change, condition) in operations {
            let place = Place { namespace: caller.namespace.as_str().into(), key };
            given.push(self.give(Write { place, change, condition }, until, begun).await);
        }
        let mut durable = Vec::new();
        for receipt in given {
            durable.push(match receipt {
                Ok(receipt) => self.durable(receipt, begun.plus(DURABLE_WITHIN)).await,
                Err(problem) => Err(problem),
            });
        }
        let by = self.0.clock.monotonic().plus(APPLIED_WITHIN);
        let mut answers = Vec::new();
        for one in durable {
            answers.push(match one {
                Ok((answer, applied)) => self.applied(answer, applied, by).await,
                Err(problem) => Err(problem),
            });
        }
        answers
    }

    async fn durable(&self, receipt: Receipt, by: Mono) -> Result<(Answer, Option<Applying>), Problem> {
        let Receipt { durable, applied } = receipt;
        let clock = &self.0.clock;
        match clock.timeout(by.since(clock.monotonic()), durable).await {
            Ok(answer) => Ok((answer.unwrap_or(Answer::Broken), applied)),
            Err(_) => Err(unconfirmed(None)),
        }
    }

    async fn applied(&self, durable: Answer, applied: Option<Applying>, by: Mono) -> Result<WriteView, Problem> {
        let (Answer::Queued { id }, Some(applied)) = (&durable, applied) else { return told(durable) };
        let clock = &self.0.clock;
        match clock.timeout(by.since(clock.monotonic()), applied).await {
            Ok(Ok(answer)) => told(answer),
            // It is durable, and will be applied: whoever needs to know asks after it.
            Ok(Err(_)) | Err(_) => told(Answer::Queued { id: *id }),
        }
    }

    /// Waits for the shard to have an owner, as it has not between two of them.
    async fn give(&self, mut write: Write, until: Until, begun: Mono) -> Result<Receipt, Problem> {
        let shard = write.place.shard();
        let until = if write.condition == Condition::None { until } else { Until::Applied };
        loop {
            match self.0.intake.give(shard, write, until) {
                Ok(receipt) => return Ok(receipt),
                Err(NotTaken::Full) => return Err(full()),
                Err(NotTaken::NotHere(back)) => write = *back,
            }
            if self.0.clock.monotonic().since(begun) >= OWNER_WITHIN {
                return Err(self.elsewhere(shard));
            }
            self.0.clock.sleep(PAUSE).await;
        }
    }

    fn elsewhere(&self, shard: ShardId) -> Problem {
        match self.0.shards.owner_of(shard) {
            Some((_, address)) if !address.is_empty() => {
                Problem::unavailable("another manager applies the writes to this key; nothing was written")
                    .remedy(format!("ask {address}"))
            }
            _ => Problem::unavailable("nobody applies the writes to this key at the moment; nothing was written")
                .remedy("try again in a few seconds"),
        }
    }

    /// The entry as it is, or as of a write or a revision that must have been applied.
    pub async fn read(
        &self,
        caller: &Principal,
        key: Key,
        at_least: AtLeast,
        wait: Duration,
    ) -> Result<(Value, Entry), Problem> {
        let place = Place { namespace: caller.namespace.as_str().into(), key };
        if let Some(write) = at_least.write {
            match self.settled(write, wait).await?.state {
                WriteState::Queued => {
                    return Err(not_yet(format!("the write {write} is queued")).remedy("wait longer with ?wait=30s"));
                }
                WriteState::InDoubt => {
                    return Err(not_yet(format!("nobody has confirmed the write {write}"))
                        .remedy("read the key without it, and decide anew"));
                }
                WriteState::Applied | WriteState::Superseded | WriteState::Conflict | WriteState::NotMade => {}
            }
        }
        if let Some(revision) = at_least.revision {
            self.reached(place.shard(), revision, wait).await?;
        }
        let found = self.find(&place).await.map_err(|error| error.problem())?;
        let now = self.0.clock.now();
        match found.as_ref().and_then(|entry| entry.seen_at(now)) {
            Some(value) => Ok((value.clone(), found.clone().unwrap_or_else(|| unreachable!("it was just seen")))),
            None => Err(missing(&place.key)),
        }
    }

    /// From the cache, or else from the store; those who want the same at once ask once.
    async fn find(&self, place: &Place) -> Result<Option<Entry>, Arc<StoreError>> {
        let ask = || async { self.0.store.entry(place.clone()).await.map_err(Arc::new) };
        let Some(cache) = &self.0.cache else { return ask().await };
        match cache.look(place).await {
            Looked::Hit(entry) => {
                self.0.looks.hit.increment(1);
                Ok(Some(entry))
            }
            Looked::Miss(token) => {
                self.0.looks.miss.increment(1);
                let found = self.0.flights.share(place, ask).await?;
                cache.fill(place, token, &found.clone().unwrap_or_else(cache::nothing)).await;
                Ok(found)
            }
            Looked::Past => {
                self.0.looks.past.increment(1);
                self.0.flights.share(place, ask).await
            }
        }
    }

    /// What is known of a write, after having waited for it as long as may be.
    pub async fn settled(&self, write: Named, wait: Duration) -> Result<WriteView, Problem> {
        let begun = self.0.clock.monotonic();
        loop {
            let view = |state, revision| Ok(WriteView { write: write.to_string(), state, revision });
            let known = self.0.store.known(write.id).await.map_err(refused)?;
            let over = self.0.clock.monotonic().since(begun) >= wait;
            match (known, write.standing) {
                (Known::Applied { revision, latest }, _) if latest > revision => {
                    return view(WriteState::Superseded, Some(revision));
                }
                (Known::Applied { revision, .. }, _) => return view(WriteState::Applied, Some(revision)),
                (Known::Conflict, _) => return view(WriteState::Conflict, None),
                (Known::Never, _) => return view(WriteState::NotMade, None),
                // It came, but whether its condition held is not known any more.
                (Known::LongAgo | Known::Forgotten, _) => return Err(forgotten(write)),
                (Known::No, _) if over => return Err(unknown(write)),
                (Known::Coming, Standing::Confirmed) if over => return view(WriteState::Queued, None),
                (Known::Coming, Standing::InDoubt) if over => return view(WriteState::InDoubt, None),
                (Known::No | Known::Coming, _) => {}
            }
            self.0.clock.sleep(PAUSE).await;
        }
    }

    async fn reached(&self, shard: ShardId, revision: u64, wait: Duration) -> Result<(), Problem> {
        let begun = self.0.clock.monotonic();
        loop {
            let at = self.0.store.point().await.map_err(refused)?.at(shard);
            if at >= revision {
                return Ok(());
            }
            if self.0.clock.monotonic().since(begun) >= wait {
                let detail = format!("the key's shard is at revision {at}, before {revision}");
                return Err(not_yet(detail)
                    .remedy("wait longer with ?wait=30s, or check the revision: it must be one of this very key"));
            }
            let mut applied = self.0.applied[shard.0 as usize].subscribe();
            let _ = self.0.clock.timeout(PAUSE, applied.changed()).await;
        }
    }

    /// Keys that begin so, as they were when the list was begun; fewer than so many where their values are large.
    pub async fn list(
        &self,
        caller: &Principal,
        prefix: String,
        position: Option<Position>,
        rows: u32,
    ) -> Result<ListPage, Problem> {
        let (point, at, from) = match position {
            Some(Position { point, at, from }) => (point.checked()?, at, Some(from.parse::<Key>()?)),
            None => (self.0.store.point().await.map_err(refused)?, self.0.clock.now(), None),
        };
        let range = Range { namespace: caller.namespace.clone(), prefix, from };
        match self.0.store.page(range, point.clone(), Extent { rows, bytes: PAGE_BYTES_MAX }).await.map_err(refused)? {
            Page::Compacted => Err(compacted()),
            Page::Of { found, next } => {
                let entries = found
                    .into_iter()
                    .filter(|found| found.entry.seen_at(at).is_some())
                    .map(|found| Listed { key: found.key, entry: found.entry })
                    .collect();
                let next = next.map(|key| Position { point: point.clone(), at, from: key.as_str().into() });
                Ok(ListPage { entries, point, next })
            }
        }
    }

    /// Where everything is now.
    pub(crate) async fn point(&self) -> Result<Point, Problem> {
        self.0.store.point().await.map_err(refused)
    }

    pub(crate) async fn past(&self, shard: ShardId, after: u64, rows: u32) -> Result<Past, Problem> {
        self.0.store.past(shard, after, Extent { rows, bytes: PAGE_BYTES_MAX }).await.map_err(refused)
    }

    /// Refuses a point from before what is remembered.
    pub(crate) async fn still_known(&self, point: &Point) -> Result<(), Problem> {
        let nothing = Range { namespace: String::new(), prefix: String::new(), from: None };
        match self.0.store.page(nothing, point.clone(), Extent { rows: 1, bytes: 1 }).await.map_err(refused)? {
            Page::Compacted => Err(compacted()),
            Page::Of { .. } => Ok(()),
        }
    }

    /// Until something was applied here, or for a while; none when the manager is stopping.
    pub(crate) async fn changed(&self, a_while: Duration) -> Option<()> {
        let mut applied: Vec<_> = self.0.applied.iter().map(watch::Sender::subscribe).collect();
        let any = futures_util::future::select_all(applied.iter_mut().map(|one| Box::pin(one.changed())));
        tokio::select! {
            () = self.0.shutdown.cancelled() => None,
            _ = any => Some(()),
            () = self.0.clock.sleep(a_while) => Some(()),
        }
    }
}

fn cache_of(at_hand: AtHand, clock: &Arc<dyn Clock>, dice: &Arc<Dice>) -> Option<Cache> {
    match at_hand {
        AtHand::Nowhere => None,
        AtHand::Here { bytes_max } => {
            Some(Arc::new(cache::memory::Memory::new(bytes_max, clock.clone(), dice.clone())))
        }
        AtHand::Redis { url, prefix } => match cache::redis::Redis::new(&url, &prefix, clock.clone(), dice.clone()) {
            Ok(redis) => Some(Arc::new(redis)),
            Err(error) => {
                tracing::error!(%error, "the address of the cache cannot be used; nothing is kept at hand");
                None
            }
        },
    }
}

#[async_trait]
impl Ready for Kv {
    async fn ready(&self) -> Result<(), String> {
        self.0.shards.trouble().map_or(Ok(()), Err)
    }
}
