//! The capability: what people and programs ask of kv. Here is how it starts and ends, and what is said; [`giving`] is how writes
//! are taken, [`asking`] how everything else is answered.

mod asking;
mod giving;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::Shared as Broker;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice, Timestamp};
use mutirao_shards::{MemberId, Shards, ShardsError, ShardsParts, Shared as Leases, Terms};
use mutirao_store::{Database, StoreError};
use mutirao_surface::{Capability, Ready};
use mutirao_tls::Trust;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::applier::direct::Hands;
use crate::applier::{self, Bench, Feed};
use crate::awaiting::Awaiting;
use crate::cache::flights::Flights;
use crate::cache::near::Near;
use crate::cache::{self, Shared as Cache};
use crate::fold::Entry;
use crate::intake::Intake;
use crate::meters::{self, Looks, METERS};
use crate::outbox::{Outbox, OutboxParts};
use crate::point::Point;
use crate::store::{self, Shared as Store};
use crate::watch::tail::Tail;
use crate::write::{Key, Named, Place, Producer};
use crate::{GROUP, SHARDS, legacy, routes};

/// Operations in one batch.
pub const BATCH_MAX: usize = 1_000;
/// Bytes of values after which a page, or what a watcher is told at once, takes no more.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// The longest that a read or a question waits.
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// How long appliers may take to leave their queues when everything stops.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

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
    /// taken for ours. Of what this process applies itself, up to so many bytes are in its own memory too.
    Redis {
        here_bytes_max: usize,
        url: String,
        /// Who is believed, if the address wants the way to be encrypted.
        trust: Trust,
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
    /// How much of it, about; none: as much as there is.
    pub keep_bytes: Option<u64>,
    /// Whoever watches is let go when it ends.
    pub shutdown: CancellationToken,
}

/// Clones share it.
#[derive(Clone)]
pub struct Kv(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    shards: Shards,
    intake: Arc<dyn Intake>,
    cache: Option<Cache>,
    looks: Looks,
    flights: Flights<Place, Result<Option<Entry>, Arc<StoreError>>>,
    /// Whoever waits for something to be applied.
    awaiting: Arc<Awaiting>,
    /// What happens, for all who watch here.
    tail: Arc<Tail>,
    /// For how long the past is kept.
    keep: Duration,
    shutdown: CancellationToken,
    /// Appliers leave when it ends.
    over: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

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
    /// Never made, and it will not be: it was durable, but the database refused it, and it is with the dead letters.
    SetAside,
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
    /// Nothing goes by it any more; managers of before want it to be there.
    #[serde(default)]
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
        let KvParts { store, path, at_hand, leases, terms, member, address, clock, dice, keep, keep_bytes, shutdown } =
            parts;
        let (store, company) = (store::open(&store), terms.company);
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
        let cache = cache_of(at_hand, &clock, &dice, &shards);
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
            dice: dice.clone(),
            shards: shards.clone(),
            keep,
            keep_bytes,
            applied: applied.clone(),
            cache: cache.clone(),
            company,
        };
        let over = CancellationToken::new();
        tasks.spawn(applier::follow(bench, feed, over.clone()));
        let tail = Tail::new(store.clone(), clock.clone());
        tasks.spawn(tail.clone().follow(applied.clone()));
        let owned = shards.clone();
        let is_here = Box::new(move |shard| owned.tenure(shard).is_some());
        let awaiting = Awaiting::new(Box::new(store.clone()), clock.clone(), applied, is_here);
        tasks.spawn(awaiting.clone().follow());
        let (flights, tasks) = (Flights::default(), Mutex::new(tasks));
        Ok(Self(Arc::new(Inner {
            store,
            clock,
            dice,
            shards,
            intake,
            cache,
            looks,
            flights,
            awaiting,
            tail,
            keep,
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
            .swiftly(Arc::new(self.clone()))
            .measuring(METERS)
            .ready_when(Arc::new(self.clone()))
            .sharded(move || shards.views());
        match legacy {
            Legacy::Off => capability,
            Legacy::On => capability.open_to_anybody(legacy::routes(self.clone()).into()),
        }
    }
}

fn cache_of(at_hand: AtHand, clock: &Arc<dyn Clock>, dice: &Arc<Dice>, shards: &Shards) -> Option<Cache> {
    match at_hand {
        AtHand::Nowhere => None,
        AtHand::Here { bytes_max } => Some(Arc::new(cache::memory::Memory::new(bytes_max, clock.clone()))),
        AtHand::Redis { url, trust, prefix, here_bytes_max } => {
            match cache::redis::Redis::new(&url, &trust, &prefix, clock.clone(), dice.clone()) {
                Ok(redis) => {
                    let shards = shards.clone();
                    let of = move |shard, generation| shards.tenure(shard).is_some_and(|t| t.generation == generation);
                    Some(Arc::new(Near::new(here_bytes_max, clock.clone(), Box::new(of), Arc::new(redis))))
                }
                Err(error) => {
                    tracing::error!(%error, "the address of the cache cannot be used; nothing is kept at hand");
                    None
                }
            }
        }
    }
}

#[async_trait]
impl Ready for Kv {
    async fn ready(&self) -> Result<(), String> {
        self.0.shards.trouble().map_or(Ok(()), Err)
    }
}
