//! Jobs, as the rest of the program sees them: start, [submit](submit), [look and cancel](looks), stop.
//!
//! Any process accepts and answers; what only the owner of a shard knows is [asked](crate::asking) of it.

mod dead;
mod elastic;
mod guard;
mod held;
pub(crate) mod letters;
mod looks;
mod room;
mod submit;
mod tallies;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::Shared as Broker;
use mutirao_core::blobs::Blobs;
use mutirao_core::clock::ClockExt;
use mutirao_core::shard::JOBS_SHARDS;
use mutirao_core::{Clock, Dice, JobKey, Problem, ShardId};
use mutirao_shards::{MemberId, ShardView, Shards, ShardsError, ShardsParts, Terms};
use mutirao_store::{Database, StoreError};
use mutirao_surface::{Capability, Ready};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::GROUP;
use crate::asking::Asking;
use crate::doors::Doors;
use crate::hub::Hub;
use crate::meters::METERS;
use crate::news::News;
use crate::post::Bench;
use crate::posts::Posts;
use crate::queues;
use crate::roll::Roll;
use crate::routes;
use crate::settings::JobsSettings;
use crate::settler::Vitals;
use crate::store::{self, Forgotten, Shared as Store};
pub use elastic::Elasticity;
pub(crate) use looks::LOOK_PATIENCE;
pub use submit::Submitted;
use tallies::Tallies;

const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How long the shards may take to be settled and handed over.
const STOP_WAIT: Duration = Duration::from_secs(15);
/// How long a start waits for every shard to have an owner. Where a predecessor died elsewhere this may not be enough:
/// the rest then follows by itself.
const START_WAIT: Duration = Duration::from_secs(3);
const START_LOOK: Duration = Duration::from_millis(20);

pub struct JobsParts {
    /// Has had [`crate::MIGRATIONS`] or [`crate::POSTGRES_MIGRATIONS`] applied, after those of `shards`.
    pub store: Database,
    /// Where it is kept who owns which queues.
    pub leases: mutirao_shards::Shared,
    pub terms: Terms,
    /// This process, as an owner of shards.
    pub member: MemberId,
    /// Where it answers, for people to read.
    pub address: String,
    pub broker: Broker,
    /// For which queue each worker was enrolled. None where the broker's side alone says who may speak.
    pub roll: Option<Arc<dyn Roll>>,
    pub blobs: Arc<dyn Blobs>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub settings: JobsSettings,
}

#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Shards(#[from] ShardsError),
}

/// A handle on the running capability; clones share it. Dropping the last one is like being killed.
#[derive(Clone)]
pub struct Jobs(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub store: Store,
    pub broker: Broker,
    pub blobs: Arc<dyn Blobs>,
    pub clock: Arc<dyn Clock>,
    pub settings: JobsSettings,
    pub asking: Arc<Asking>,
    pub doors: Doors,
    pub shards: Shards,
    pub news: News,
    /// Who knows of workers that come and go, once it was given.
    elasticity: OnceLock<Arc<dyn Elasticity>>,
    told: Mutex<elastic::Told>,
    /// Of queues whose owner is silent, and of jobs that are held back.
    tallies: Tallies,
    held_tallies: Tallies,
    pub hub: Hub,
    /// Rings when a job was made that waits for others.
    pub held: Arc<Notify>,
    /// The shards of jobs that were asked for.
    homes: Mutex<HashMap<JobKey, ShardId>>,
    /// No job is taken in any more.
    closed: AtomicBool,
    /// Turns true when streams to clients should end.
    pub ending: watch::Sender<bool>,
    /// Everything that runs for as long as this does.
    tasks: Mutex<JoinSet<()>>,
}

impl Jobs {
    /// Joins those who own the queues, and goes on with what is unfinished in its share of them.
    pub async fn start(parts: JobsParts) -> Result<Self, JobsError> {
        let JobsParts { store, leases, terms, member, address, broker, roll, blobs, clock, dice, settings } = parts;
        let store: Store = store::open(&store);
        store.place().await?;
        let (doors, news, hub) = (Doors::default(), News::new(broker.clone(), &member), Hub::new(&member));
        let asking = Asking::new(broker.clone(), clock.clone(), doors.clone(), &member);
        let mut tasks = JoinSet::new();
        tasks.spawn(asking.clone().listen());
        tasks.spawn(hub.clone().listen(news.clone()));
        tasks.spawn(news.clone().listen(clock.clone()));
        tasks.spawn(news.clone().announce(clock.clone()));
        let shards = Shards::start(ShardsParts {
            store: leases,
            clock: clock.clone(),
            dice: dice.clone(),
            group: GROUP,
            count: JOBS_SHARDS,
            member,
            address,
            terms,
        })
        .await?;
        let bench = Bench {
            store: store.clone(),
            broker: broker.clone(),
            clock: clock.clone(),
            dice,
            settings: settings.clone(),
            shards: shards.clone(),
            news: news.clone(),
            doors: doors.clone(),
            roll,
        };
        tasks.spawn(Posts::new(Arc::new(bench)).run());
        tasks.spawn(queues::follow::run(store.clone(), doors.clone(), clock.clone()));
        let watch = crate::letters::Watch {
            store: store.clone(),
            broker: broker.clone(),
            shards: shards.clone(),
            clock: clock.clone(),
        };
        tasks.spawn(watch.run());
        let held = Arc::new(Notify::new());
        let holding = held::Holding {
            store: store.clone(),
            shards: shards.clone(),
            asking: asking.clone(),
            news: news.clone(),
            clock: clock.clone(),
            bell: held.clone(),
        };
        tasks.spawn(holding.run());
        tasks.spawn(sweep(store.clone(), blobs.clone(), clock.clone(), settings.keep));
        let jobs = Self(Arc::new(Inner {
            store,
            broker,
            blobs,
            clock,
            settings,
            asking,
            doors,
            shards,
            news,
            elasticity: OnceLock::new(),
            told: Mutex::default(),
            tallies: Tallies::default(),
            held_tallies: Tallies::default(),
            hub,
            held,
            homes: Mutex::default(),
            closed: AtomicBool::new(false),
            ending: watch::Sender::new(false),
            tasks: Mutex::new(tasks),
        }));
        // Whoever is let in now finds everything in its place.
        let _ = jobs.0.clock.timeout(START_WAIT, jobs.settled_in()).await;
        Ok(jobs)
    }

    /// Every shard has an owner, and those that are here are at work.
    async fn settled_in(&self) {
        let settled = || {
            let views = self.0.shards.views();
            let owned = self.0.shards.owned().borrow().len();
            views.iter().all(|view| view.owner.is_some()) && self.0.doors.all().len() == owned
        };
        while !settled() {
            self.0.clock.sleep(START_LOOK).await;
        }
    }

    pub fn capability(&self) -> Capability {
        Capability::new("jobs", routes::routes(self.clone()))
            .guard_blobs("logs/", Arc::new(self.clone()))
            .ready_when(Arc::new(self.clone()))
            .sharded({
                let jobs = self.clone();
                move || jobs.shards()
            })
            .measuring(METERS)
    }

    /// Who owns which queues, as this process sees it.
    pub fn shards(&self) -> Vec<ShardView> {
        self.0.shards.views()
    }

    /// Takes no more jobs in: whoever would run them is going home.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Relaxed)
    }

    /// Ends streams to clients, writes what is settled, hands the shards over, and stops.
    pub async fn stop(&self) {
        self.close();
        self.0.ending.send_replace(true);
        if self.0.clock.timeout(STOP_WAIT, self.0.shards.leave()).await.is_err() {
            tracing::error!("stopped before everything was written; what is missing will be run again");
        }
        self.0.tasks.lock().abort_all();
    }
}

/// Removes what has been finished for long enough, for as long as the program runs.
async fn sweep(store: Store, blobs: Arc<dyn Blobs>, clock: Arc<dyn Clock>, keep: Duration) {
    loop {
        clock.sleep(SWEEP_EVERY).await;
        let before = mutirao_core::Timestamp(clock.now().0.saturating_sub(keep.as_millis() as i64));
        loop {
            let Forgotten { jobs, done } = match store.forget(before).await {
                Ok(forgotten) => forgotten,
                Err(error) => {
                    tracing::warn!(%error, "old jobs could not be removed");
                    break;
                }
            };
            for job in &jobs {
                if let Err(error) = blobs.remove_all(&format!("logs/{job}/")).await {
                    tracing::warn!(%job, %error, "logs of an old job could not be removed");
                }
            }
            if done {
                break;
            }
        }
    }
}

/// Goes on to its end even when whoever waits for it goes away, as a client may at any await.
pub(crate) async fn unstoppable<T: Send + 'static>(
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    tokio::spawn(work).await.unwrap_or_else(|_| Err(Problem::internal()))
}

fn stopping() -> Problem {
    Problem::unavailable("the server is stopping")
}

#[async_trait]
impl Ready for Jobs {
    async fn ready(&self) -> Result<(), String> {
        let posts = self.0.doors.all();
        let ails = |vitals: &Vitals| vitals.trouble.lock().clone().or_else(|| vitals.deaf.lock().clone());
        let trouble = posts.into_iter().find_map(|(_, door)| ails(&door.vitals));
        match trouble.or_else(|| self.0.shards.trouble()) {
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }
}
