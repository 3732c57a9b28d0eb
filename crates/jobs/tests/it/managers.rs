//! Several managers on one PostgreSQL and one broker, each in a runtime of its own, so that one can be killed (its runtime
//! is dropped) or frozen (its only thread is blocked) in the middle of the work.

mod after;
mod lost_words;
mod resting;
mod sharing;
mod succession;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_broker::memory::{Limits, Memory};
use mutirao_core::envelope::shard_of;
use mutirao_core::id::QueueName;
use mutirao_core::job::{JobSpec, Spread};
use mutirao_core::{Clock, ShardId, SystemClock};
use mutirao_jobs::Jobs;
use mutirao_shards::{MemberId, Terms, store as leases};
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Database, Postgres};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};
use tokio::runtime::Runtime;

use crate::engine::postgres_steps;
use crate::house::{Setting, manager, noop};

/// Where a manager is to be missed: long enough that a busy machine does not look like a dead one.
const LEASE: Duration = Duration::from_secs(8);
/// Where nobody is to be missed.
const LEASE_LONG: Duration = Duration::from_secs(60);
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// What has not moved for so long, which is more than a beat, stays.
const STEADY: Duration = Duration::from_secs(3);

/// What all managers share.
struct Town {
    schema: Schema,
    broker: Arc<Memory>,
    folder: tempfile::TempDir,
    terms: Terms,
    waiting_max: u64,
}

/// One manager, as if it were a process.
struct Member {
    name: MemberId,
    jobs: Jobs,
    runtime: Option<Runtime>,
}

impl Town {
    /// None, with a notice, when the run has no PostgreSQL.
    async fn found() -> Option<Self> {
        let server = shared(POSTGRES_VARIABLE)?;
        Some(Self {
            schema: Schema::in_database(&server).await,
            broker: Memory::new(None, Limits::default()),
            folder: tempfile::tempdir().unwrap(),
            terms: Terms {
                beat: Duration::from_secs(1),
                look: Duration::from_millis(100),
                glance: Duration::from_millis(500),
                ..Terms::of(LEASE_LONG)
            },
            waiting_max: 1_000_000,
        })
    }

    async fn join(&self) -> Member {
        self.join_over(self.broker.clone()).await
    }

    async fn join_over(&self, broker: Broker) -> Member {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let name = MemberId::mint("manager");
        let (url, folder) = (self.schema.url(), self.folder.path().to_owned());
        let setting = Setting { member: name.clone(), terms: self.terms, waiting_max: self.waiting_max, broker };
        let started = runtime.spawn(async move {
            let store: Database = Postgres::open(&url, &postgres_steps()).await.unwrap().into();
            let apart = Postgres::open(&url, &[]).await.unwrap().into();
            manager(&store, leases::open(&apart, None).await.unwrap(), setting, &folder).await
        });
        Member { name, jobs: started.await.unwrap(), runtime: Some(runtime) }
    }

    async fn remove(self, members: impl IntoIterator<Item = Member>) {
        members.into_iter().for_each(Member::kill);
        self.schema.remove().await;
    }
}

impl Member {
    /// Something done by this manager, in its own runtime.
    async fn on<T: Send + 'static, F: Future<Output = T> + Send + 'static>(&self, act: impl FnOnce(Jobs) -> F) -> T {
        self.runtime.as_ref().unwrap().spawn(act(self.jobs.clone())).await.unwrap()
    }

    fn owned(&self) -> BTreeSet<ShardId> {
        let mine = |view: &mutirao_shards::ShardView| view.owner.as_ref() == Some(&self.name);
        self.jobs.shards().into_iter().filter(mine).map(|view| view.shard).collect()
    }

    /// Its generation of each shard that it owns.
    fn generations(&self) -> BTreeMap<ShardId, u64> {
        let owned = self.owned();
        let views = self.jobs.shards().into_iter().filter(|view| owned.contains(&view.shard));
        views.map(|view| (view.shard, view.generation)).collect()
    }

    /// A queue whose shard it owns.
    async fn queue(&self) -> QueueName {
        let owned = self.owned();
        let names = (0..1_000).map(|n| format!("queue-{n}").parse::<QueueName>().unwrap());
        let name = names.into_iter().find(|name| owned.contains(&shard_of(name))).expect("it owns a shard");
        let queue = name.clone();
        self.on(move |jobs| async move { jobs.ensure_queue(queue).await }).await.unwrap();
        name
    }

    /// As by SIGKILL: nothing is said to anybody, nothing more is written.
    fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// As by SIGSTOP and SIGCONT. Returns when it is awake again.
    fn freeze(&self, how_long: Duration) -> tokio::task::JoinHandle<()> {
        #[expect(clippy::disallowed_methods, reason = "the freeze itself is what takes time")]
        self.runtime.as_ref().unwrap().spawn(async move { std::thread::sleep(how_long) })
    }
}

/// Until every shard is with one of these, each has some, and nothing moves any more.
async fn shared_out(members: &[&Member]) {
    let shares = || members.iter().map(|member| member.generations()).collect::<Vec<_>>();
    let is_whole = |shares: &[BTreeMap<ShardId, u64>]| {
        let all: BTreeSet<ShardId> = shares.iter().flat_map(BTreeMap::keys).copied().collect();
        let owned: usize = shares.iter().map(BTreeMap::len).sum();
        (all.len(), owned) == (16, 16) && shares.iter().all(|share| !share.is_empty())
    };
    let deadline = SystemClock.monotonic().plus(PATIENCE);
    let (mut last, mut since) = (shares(), SystemClock.monotonic());
    while !is_whole(&last) || SystemClock.monotonic().since(since) < STEADY {
        assert!(SystemClock.monotonic() < deadline, "not shared out: {last:?}");
        SystemClock.sleep(Duration::from_millis(100)).await;
        let now = shares();
        if now != last {
            (last, since) = (now, SystemClock.monotonic());
        }
    }
}

fn array(queue: &QueueName, tasks: u32) -> JobSpec {
    JobSpec { queue: queue.clone(), ..noop(Spread::Array { first: 1, last: tasks }) }
}
