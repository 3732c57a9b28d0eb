//! Streams as a capability: what people ask of it, what hosts say to it. Any manager takes changes, beats and pushes; whoever
//! owns a stream's shard finds them in the store within half a second, and at once where that is this process.

mod beats;
mod delivering;
mod deploying;
mod following;
mod guard;
mod migrating;
mod pushing;
mod showing;
mod tapping;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::Shared as Broker;
use mutirao_core::auth::Principal;
use mutirao_core::blobs::Blobs;
use mutirao_core::clock::ClockExt;
use mutirao_core::shard::MemberId;
use mutirao_core::{Clock, Dice, Problem, Timestamp};
use mutirao_shards::{Shards, ShardsError, ShardsParts, Terms};
use mutirao_store::{Database, refused};
use mutirao_streams::wire::BLOBS;
use mutirao_surface::{Capability, Ready};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use deploying::DEFINITION_BYTES_MAX;
pub use following::Follower;
pub use tapping::{From, Tap};

use crate::graphs::Graphs;
use crate::meters::METERS;
use crate::outside::{Receivers, Roll};
use crate::owner::Bench;
use crate::store::{self, By, Shared as Store, StreamRow};
use crate::{GROUP, SHARDS, meters, owner, routes};

/// Streams shown on one page.
pub const PAGE_MAX: u32 = 1_000;
const LEAVE_WITHIN: Duration = Duration::from_secs(6);
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const SWEEP_ROWS: u32 = 1_000;
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

pub struct StreamsParts {
    /// Has had [`crate::MIGRATIONS`] or [`crate::POSTGRES_MIGRATIONS`] applied, after those of `shards`.
    pub store: Database,
    pub leases: mutirao_shards::Shared,
    pub terms: Terms,
    pub member: MemberId,
    pub address: String,
    pub broker: Broker,
    pub blobs: Arc<dyn Blobs>,
    pub roll: Arc<dyn Roll>,
    pub receivers: Arc<dyn Receivers>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    /// How long it is kept what was done with streams, and where their parts went.
    pub keep: Duration,
    /// What a log of the broker keeps at most.
    pub log_bytes: u64,
    /// Whether replicas of stages move by what is measured, and how.
    pub mover: mutirao_movers::Settings,
    pub shutdown: CancellationToken,
}

/// A handle on the running capability; clones share it.
#[derive(Clone)]
pub struct Streams(Arc<Inner>);

struct Inner {
    store: Store,
    graphs: Arc<Graphs>,
    clock: Arc<dyn Clock>,
    shards: Shards,
    broker: Broker,
    roll: Arc<dyn Roll>,
    receivers: Arc<dyn Receivers>,
    bench: Bench,
    pushers: pushing::Pushers,
    deliveries: delivering::Turns,
    shutdown: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

impl Streams {
    /// Joins those who own streams.
    pub async fn start(parts: StreamsParts) -> Result<Self, ShardsError> {
        let StreamsParts {
            store,
            leases,
            terms,
            member,
            address,
            broker,
            blobs,
            roll,
            receivers,
            clock,
            dice,
            keep,
            log_bytes,
            mover,
            shutdown,
        } = parts;
        meters::begin();
        let store = store::open(&store);
        let shards = Shards::start(ShardsParts {
            store: leases,
            clock: clock.clone(),
            dice,
            group: GROUP,
            count: SHARDS,
            member,
            address,
            terms,
        })
        .await?;
        let graphs = Arc::new(Graphs::new(store.clone()));
        let bench = Bench {
            store: store.clone(),
            graphs: graphs.clone(),
            shards: shards.clone(),
            broker: broker.clone(),
            blobs,
            clock: clock.clone(),
            bell: Arc::new(Notify::new()),
            ears: Arc::default(),
            mover,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(owner::run(bench.clone()));
        tasks.spawn(answer_leases(shards.clone()));
        tasks.spawn(sweep(store.clone(), clock.clone(), keep));
        let tasks = Mutex::new(tasks);
        let pushers = pushing::Pushers::new(broker.clone(), clock.clone(), log_bytes);
        Ok(Self(Arc::new(Inner {
            store,
            graphs,
            clock,
            shards,
            broker,
            roll,
            receivers,
            bench,
            pushers,
            deliveries: delivering::Turns::default(),
            shutdown,
            tasks,
        })))
    }

    /// Gives the shards back. Hosts go on with what they have.
    pub async fn stop(&self) {
        let _ = self.0.clock.timeout(LEAVE_WITHIN, owner::last_look(&self.0.bench)).await;
        self.0.shards.leave().await;
        let mut tasks = std::mem::take(&mut *self.0.tasks.lock());
        tasks.abort_all();
        while !tasks.is_empty() {
            let _ = self.0.clock.timeout(LEAVE_WITHIN, tasks.join_next()).await;
        }
    }

    pub fn capability(&self) -> Capability {
        let shards = self.0.shards.clone();
        Capability::new("streams", routes::routes().with_state(self.clone()))
            .measuring(METERS)
            .sharded(move || shards.views())
            .guard_blobs(BLOBS, Arc::new(self.clone()))
            .ready_when(Arc::new(self.clone()))
    }

    /// One that was not deleted.
    async fn row(&self, caller: &Principal, name: &str) -> Result<StreamRow, Problem> {
        let found = self.0.store.stream(caller.namespace.clone(), name.into()).await.map_err(refused)?;
        found.ok_or_else(|| missing(name))
    }

    fn by(&self, caller: &Principal) -> By {
        By { namespace: caller.namespace.clone(), who: caller.name.clone(), at: self.0.clock.now() }
    }
}

#[async_trait]
impl Ready for Streams {
    async fn ready(&self) -> Result<(), String> {
        self.0.shards.trouble().map_or(Ok(()), Err)
    }
}

/// What an owner does takes a moment and is fenced, so a shard that is asked for is given at once.
async fn answer_leases(shards: Shards) {
    let mut owned = shards.owned();
    loop {
        let board = owned.borrow_and_update().clone();
        for (shard, tenure) in board {
            if tenure.asked != mutirao_shards::Asked::Stay {
                shards.release(shard, tenure.generation).await;
            }
        }
        if owned.changed().await.is_err() {
            return;
        }
    }
}

/// Forgets what was done long ago.
async fn sweep(store: Store, clock: Arc<dyn Clock>, keep: Duration) {
    loop {
        clock.sleep(SWEEP_EVERY).await;
        let before = Timestamp(clock.now().0.saturating_sub(keep.as_millis() as i64));
        loop {
            match store.sweep(before, SWEEP_ROWS).await {
                // Whoever has something to write comes in between.
                Ok(gone) if gone == u64::from(SWEEP_ROWS) => clock.sleep(SWEEP_PAUSE).await,
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%error, "old history of streams stays for now; the next round removes it");
                    break;
                }
            }
        }
    }
}

fn missing(name: &str) -> Problem {
    let name: String = name.chars().take(100).collect();
    Problem::not_found(format!("there is no stream \"{name}\""))
        .remedy("`mutirao stream list` shows those that are there")
}
