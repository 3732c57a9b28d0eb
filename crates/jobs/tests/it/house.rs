//! Managers on one database and one broker, with workers that the test plays.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::Request;
use mutirao_broker::memory::{Limits, Memory};
use mutirao_broker::{Broker, Consumer};
use mutirao_core::auth::{DEFAULT_NAMESPACE, Principal, Role};
use mutirao_core::envelope::{Beat, Done, Held, Parcel, Reports, open, results_of, seal, tasks_of};
use mutirao_core::id::{Attempt, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::job::{JobSpec, JobView, Spread};
use mutirao_core::outcome::{Outcome, Verdict};
use mutirao_core::quantity::{Bytes as Size, Cpus};
use mutirao_core::task::{Action, Needs, TaskSpec};
use mutirao_core::{Clock, Dice, JobKey, SystemClock};
use mutirao_jobs::service::Submitted;
use mutirao_jobs::{Jobs, JobsParts, JobsSettings};
use mutirao_shards::{MemberId, Terms, store as leases};
use mutirao_store::blobs::FileBlobs;
use mutirao_store::{Database, FolderLock, Sqlite};
use tower::ServiceExt;

use crate::engine::{sqlite_steps, tamper};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// One manager, and what it stands on.
pub struct House {
    folder: tempfile::TempDir,
    store: Database,
    lock: Option<FolderLock>,
    pub broker: Arc<Memory>,
    pub jobs: Jobs,
}

pub async fn house() -> House {
    house_in(tempfile::tempdir().unwrap()).await
}

async fn house_in(folder: tempfile::TempDir) -> House {
    let store = Sqlite::open(&folder.path().join("store.db"), &sqlite_steps()).unwrap();
    let lock = FolderLock::take(folder.path()).unwrap();
    house_on(folder, store.into(), Some(lock), Terms::alone()).await
}

pub async fn house_on(folder: tempfile::TempDir, store: Database, lock: Option<FolderLock>, terms: Terms) -> House {
    let broker = Memory::new(None, Limits::default());
    let over = broker.clone();
    furnish(folder, store, lock, terms, broker, over).await
}

/// A house whose manager has a fault between it and its broker.
pub async fn house_over(broker: Arc<Memory>, over: mutirao_broker::Shared) -> House {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("store.db"), &sqlite_steps()).unwrap();
    let lock = FolderLock::take(folder.path()).unwrap();
    furnish(folder, store.into(), Some(lock), Terms::alone(), broker, over).await
}

async fn furnish(
    folder: tempfile::TempDir,
    store: Database,
    lock: Option<FolderLock>,
    terms: Terms,
    broker: Arc<Memory>,
    over: mutirao_broker::Shared,
) -> House {
    let leases = leases::open(&store, lock.as_ref()).await.unwrap();
    let member = MemberId::mint("test");
    let setting = Setting { member, terms, waiting_max: 50_000_000, broker: over };
    let jobs = manager(&store, leases, setting, folder.path()).await;
    House { jobs, folder, store, lock, broker }
}

/// What managers of one house may differ in.
pub struct Setting {
    pub member: MemberId,
    pub terms: Terms,
    pub waiting_max: u64,
    pub broker: mutirao_broker::Shared,
}

pub async fn manager(store: &Database, leases: mutirao_shards::Shared, setting: Setting, folder: &Path) -> Jobs {
    let Setting { member, terms, waiting_max, broker } = setting;
    let parts = JobsParts {
        store: store.clone(),
        leases,
        terms,
        member,
        address: "http://here".into(),
        broker,
        roll: None,
        blobs: Arc::new(FileBlobs::open(&folder.join("blobs")).unwrap()),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::seeded(1)),
        settings: JobsSettings { lease: Duration::from_secs(2), waiting_max, ..JobsSettings::default() },
    };
    Jobs::start(parts).await.unwrap()
}

pub fn ana() -> Principal {
    Principal { id: "t1".into(), name: "ana".into(), role: Role::Operator, namespace: DEFAULT_NAMESPACE.into() }
}

/// What a manager answers over HTTP, had it let the caller in.
pub async fn get(jobs: Jobs, path: String) -> Bytes {
    let request = Request::get(path).extension(Arc::new(ana())).body(Body::empty()).unwrap();
    let answer = jobs.capability().router.oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    to_bytes(answer.into_body(), 64 << 20).await.unwrap()
}

pub async fn submit(jobs: &Jobs, spec: JobSpec) -> JobView {
    match jobs.submit(&ana(), spec, None, "0".repeat(32)).await.unwrap() {
        Submitted::New(view) | Submitted::Before(view) | Submitted::Joined(view) => view,
    }
}

pub async fn until(jobs: &Jobs, job: JobKey, what: &str, check: impl Fn(&JobView) -> bool) -> JobView {
    let deadline = SystemClock.monotonic().plus(PATIENCE);
    loop {
        let (view, _) = jobs.job(job).await.unwrap();
        if check(&view) {
            return view;
        }
        assert!(SystemClock.monotonic() < deadline, "never: {what}; {view:?}");
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
}

impl House {
    /// What the service writes to, for those who write behind its back.
    pub fn store(&self) -> mutirao_jobs::store::Shared {
        mutirao_jobs::store::open(&self.store)
    }

    pub async fn submit(&self, spec: JobSpec) -> JobView {
        submit(&self.jobs, spec).await
    }

    /// Waits until it is so.
    pub async fn eventually(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let deadline = SystemClock.monotonic().plus(PATIENCE);
        while !is_so().await {
            assert!(SystemClock.monotonic() < deadline, "never: {what}");
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn worker(&self) -> Played {
        Played::start(&QueueName::default(), &self.broker).await
    }

    pub async fn until(&self, job: JobKey, what: &str, check: impl Fn(&JobView) -> bool) -> JobView {
        until(&self.jobs, job, what, check).await
    }

    /// Changes what is written, as no program of this version would.
    pub async fn tamper(&self, sql: &'static str) {
        tamper(&self.store, sql).await;
    }

    /// The manager stops and another starts on the same folder, with an empty broker.
    pub async fn restart(self) -> House {
        self.jobs.stop().await;
        self.store.close().await;
        drop((self.jobs, self.lock));
        house_in(self.folder).await
    }
}

/// What a worker says. What it holds is said and changed under one lock, as a real one's reports leave in order.
#[derive(Clone)]
pub struct Voice {
    pub session: SessionId,
    pub queue: QueueName,
    pub broker: Arc<Memory>,
    pub held: Arc<tokio::sync::Mutex<Vec<(TaskKey, Attempt)>>>,
    /// Where beats and outcomes go.
    pub results: String,
}

impl Voice {
    pub fn of(queue: &QueueName, broker: &Arc<Memory>) -> Self {
        Self {
            session: SessionId::random(),
            queue: queue.clone(),
            broker: broker.clone(),
            held: Arc::default(),
            results: results_of(queue),
        }
    }

    fn reports(&self) -> Reports {
        Reports::new(self.session.clone(), WorkerId("w1".into()))
    }

    async fn say(&self, to: &str, reports: Reports) {
        self.broker.publish(to, vec![seal(&reports)]).await.unwrap();
    }

    pub async fn beat(&self) {
        let held = self.held.lock().await;
        let mut reports = self.reports();
        reports.beat = Some(Beat {
            queue: self.queue.clone(),
            host: "here".into(),
            pid: 1,
            capacity: Needs { cpus: Cpus { milli: 4_000 }, memory: Size(1 << 30) },
            draining: false,
            leaving: false,
            held: held.iter().map(|(task, attempt)| Held { task: *task, attempt: *attempt, running: true }).collect(),
        });
        self.say(&self.results, reports).await;
    }

    pub async fn done(&self, task: TaskKey, attempt: Attempt, verdict: Verdict) {
        self.all_done(&[(task, attempt)], verdict).await;
    }

    /// In one message.
    pub async fn all_done(&self, tasks: &[(TaskKey, Attempt)], verdict: Verdict) {
        let mut held = self.held.lock().await;
        held.retain(|mine| !tasks.contains(mine));
        let mut reports = self.reports();
        let outcome = Outcome::new(verdict, SystemClock.now());
        let done = |(task, attempt): &(TaskKey, Attempt)| Done {
            task: *task,
            attempt: *attempt,
            trace: String::new(),
            outcome: outcome.clone(),
        };
        reports.done = tasks.iter().map(done).collect();
        self.say(&self.results, reports).await;
    }

    pub async fn finish_all(&self, parcels: &[Parcel], verdict: Verdict) {
        for parcel in parcels {
            self.all_done(&handed(std::slice::from_ref(parcel)), verdict).await;
        }
    }
}

pub struct Played {
    pub voice: Voice,
    tasks: Box<dyn Consumer>,
    beating: tokio::task::JoinHandle<()>,
}

impl Drop for Played {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

impl Played {
    pub async fn start(queue: &QueueName, broker: &Arc<Memory>) -> Self {
        Self::speaking(Voice::of(queue, broker)).await
    }

    pub async fn speaking(voice: Voice) -> Self {
        let tasks = voice.broker.consume(&tasks_of(&voice.queue), 100).await.unwrap();
        voice.beat().await;
        let beating = tokio::spawn({
            let voice = voice.clone();
            async move {
                loop {
                    SystemClock.sleep(Duration::from_millis(300)).await;
                    voice.beat().await;
                }
            }
        });
        Played { voice, tasks, beating }
    }

    pub async fn take(&mut self) -> Vec<Parcel> {
        let deliveries = self.tasks.next().await.unwrap();
        self.tasks.ack_through(deliveries.last().unwrap().tag).await.unwrap();
        let parcels: Vec<Parcel> = deliveries.iter().map(|d| open(&d.body).unwrap()).collect();
        let mut held = self.voice.held.lock().await;
        held.extend(handed(&parcels));
        let mut reports = self.voice.reports();
        reports.taken = parcels.iter().map(|parcel| parcel.id).collect();
        // To where the parcel says, as a worker does.
        self.voice.say(&parcels[0].reply_to, reports).await;
        parcels
    }

    pub async fn finish_all(&mut self, parcels: &[Parcel], verdict: Verdict) {
        self.voice.finish_all(parcels, verdict).await;
    }

    /// Takes and finishes for ever.
    pub fn work(mut self) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move {
            loop {
                let parcels = self.take().await;
                self.finish_all(&parcels, Verdict::Ok).await;
            }
        })
    }
}

pub fn handed(parcels: &[Parcel]) -> Vec<(TaskKey, Attempt)> {
    let tasks = |parcel: &Parcel| {
        let (generation, templates) = (parcel.id.generation, parcel.templates.clone());
        parcel.tasks.clone().into_iter().map(move |handout| {
            let task = TaskKey { job: templates[usize::from(handout.t)].job, index: handout.index };
            (task, Attempt { generation, n: handout.n })
        })
    };
    parcels.iter().flat_map(tasks).collect()
}

pub fn noop(spread: Spread) -> JobSpec {
    JobSpec { spread, ..JobSpec::new(TaskSpec::new(Action::Noop {})) }
}
