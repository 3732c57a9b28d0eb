//! The whole capability but for the worker, which the test plays: what it is handed, and what its answers lead to.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::memory::{Limits, Memory};
use mutirao_broker::{Broker, Consumer, Heard};
use mutirao_core::auth::{DEFAULT_NAMESPACE, Principal, Role};
use mutirao_core::envelope::{
    Beat, Control, Done, Held, Parcel, Reports, control_of, open, results_of, seal, tasks_of,
};
use mutirao_core::exec::Exec;
use mutirao_core::id::{Attempt, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::job::{JobSpec, JobState, JobView, Spread};
use mutirao_core::outcome::{Outcome, Verdict};
use mutirao_core::quantity::{Bytes as Size, Cpus, Span};
use mutirao_core::task::{Action, Needs, Retry, TaskSpec};
use mutirao_core::{Clock, Dice, JobKey, SystemClock};
use mutirao_jobs::service::Submitted;
use mutirao_jobs::{Jobs, JobsParts, JobsSettings};
use mutirao_store::blobs::FileBlobs;
use mutirao_store::{Database, Sqlite};

pub struct House {
    folder: tempfile::TempDir,
    store: Database,
    broker: Arc<Memory>,
    pub jobs: Jobs,
}

async fn house() -> House {
    house_in(tempfile::tempdir().unwrap()).await
}

async fn house_in(folder: tempfile::TempDir) -> House {
    let store = Sqlite::open(&folder.path().join("store.db"), mutirao_jobs::MIGRATIONS).unwrap();
    house_on(folder, store.into()).await
}

pub async fn house_on(folder: tempfile::TempDir, store: Database) -> House {
    let broker = Memory::new(None, Limits::default());
    let parts = JobsParts {
        store: store.clone(),
        broker: broker.clone(),
        blobs: Arc::new(FileBlobs::open(&folder.path().join("blobs")).unwrap()),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::seeded(1)),
        settings: JobsSettings { lease: Duration::from_secs(2), ..JobsSettings::default() },
    };
    House { jobs: Jobs::start(parts).await.unwrap(), folder, store, broker }
}

impl House {
    pub async fn submit(&self, spec: JobSpec) -> JobView {
        let owner = Principal { id: "ana".into(), role: Role::Operator, namespace: DEFAULT_NAMESPACE.into() };
        match self.jobs.submit(&owner, spec, None, "0".repeat(32)).await.unwrap() {
            Submitted::New(view) | Submitted::Before(view) => view,
        }
    }

    pub async fn worker(&self) -> Played {
        let tasks = self.broker.consume(&tasks_of(&QueueName::default()), 100).await.unwrap();
        let voice = Voice { session: SessionId::random(), broker: self.broker.clone(), held: Arc::default() };
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

    pub async fn until(&self, job: JobKey, what: &str, check: impl Fn(&JobView) -> bool) -> JobView {
        let mut last = None;
        for _ in 0..500 {
            let (view, _) = self.jobs.job(job).await.unwrap();
            if check(&view) {
                return view;
            }
            last = Some(view);
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
        panic!("never: {what}; {last:?}");
    }

    /// The manager stops and another starts on the same folder, with an empty broker.
    async fn restart(self) -> House {
        self.jobs.stop().await;
        self.store.close().await;
        drop(self.jobs);
        house_in(self.folder).await
    }
}

/// What a worker says. What it holds is said and changed under one lock, as a real one's reports leave in order.
#[derive(Clone)]
struct Voice {
    session: SessionId,
    broker: Arc<Memory>,
    held: Arc<tokio::sync::Mutex<Vec<(TaskKey, Attempt)>>>,
}

impl Voice {
    fn reports(&self) -> Reports {
        Reports::new(self.session.clone(), WorkerId("w1".into()))
    }

    async fn say(&self, reports: Reports) {
        self.broker.publish(&results_of(&QueueName::default()), vec![seal(&reports)]).await.unwrap();
    }

    async fn beat(&self) {
        let held = self.held.lock().await;
        let mut reports = self.reports();
        reports.beat = Some(Beat {
            queue: QueueName::default(),
            host: "here".into(),
            pid: 1,
            capacity: Needs { cpus: Cpus { milli: 4_000 }, memory: Size(1 << 30) },
            draining: false,
            leaving: false,
            held: held.iter().map(|(task, attempt)| Held { task: *task, attempt: *attempt, running: true }).collect(),
        });
        self.say(reports).await;
    }

    async fn done(&self, task: TaskKey, attempt: Attempt, verdict: Verdict) {
        let mut held = self.held.lock().await;
        held.retain(|mine| *mine != (task, attempt));
        let mut reports = self.reports();
        let outcome = Outcome::new(verdict, SystemClock.now());
        reports.done.push(Done { task, attempt, trace: String::new(), outcome });
        self.say(reports).await;
    }

    async fn finish_all(&self, parcels: &[Parcel], verdict: Verdict) {
        for (task, attempt) in handed(parcels) {
            self.done(task, attempt, verdict).await;
        }
    }
}

pub struct Played {
    voice: Voice,
    tasks: Box<dyn Consumer>,
    beating: tokio::task::JoinHandle<()>,
}

impl Drop for Played {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

impl Played {
    pub async fn take(&mut self) -> Vec<Parcel> {
        let deliveries = self.tasks.next().await.unwrap();
        self.tasks.ack_through(deliveries.last().unwrap().tag).await.unwrap();
        let parcels: Vec<Parcel> = deliveries.iter().map(|d| open(&d.body).unwrap()).collect();
        let mut held = self.voice.held.lock().await;
        held.extend(handed(&parcels));
        let mut reports = self.voice.reports();
        reports.taken = parcels.iter().map(|parcel| parcel.id).collect();
        self.voice.say(reports).await;
        parcels
    }

    pub async fn finish_all(&mut self, parcels: &[Parcel], verdict: Verdict) {
        self.voice.finish_all(parcels, verdict).await;
    }
}

fn handed(parcels: &[Parcel]) -> Vec<(TaskKey, Attempt)> {
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

#[tokio::test]
async fn every_task_is_handed_out_with_its_own_entry_and_the_job_ends() {
    let house = house().await;
    let mut worker = house.worker().await;
    let entries: Vec<String> = (1..=2_500).map(|n| format!("entry {n}")).collect();
    let job = house.submit(noop(Spread::Entries(entries.clone()))).await;
    let mut seen = vec![String::new(); entries.len()];
    while seen.iter().any(String::is_empty) {
        let parcels = worker.take().await;
        for handout in parcels.iter().flat_map(|parcel| &parcel.tasks) {
            seen[handout.index as usize - 1] = handout.entry.clone().unwrap();
        }
        worker.finish_all(&parcels, Verdict::Ok).await;
    }
    assert_eq!(seen, entries);
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.ok), (JobState::Ok, 2_500));
}

#[tokio::test]
async fn commands_reach_their_tasks() {
    let house = house().await;
    let mut worker = house.worker().await;
    let commands: Vec<Vec<String>> = (1..=3).map(|n| vec!["echo".into(), n.to_string()]).collect();
    let task = TaskSpec::new(Action::Exec(Exec::default()));
    house.submit(JobSpec { spread: Spread::Commands(commands.clone()), ..JobSpec::new(task) }).await;
    let mut got = Vec::new();
    while got.len() < 3 {
        got.extend(worker.take().await.into_iter().flat_map(|p| p.tasks).map(|t| t.command.unwrap()));
    }
    got.sort();
    assert_eq!(got, commands);
}

#[tokio::test]
async fn a_failed_task_is_tried_again_and_then_fails_the_job() {
    let house = house().await;
    let mut worker = house.worker().await;
    let mut spec = noop(Spread::Single);
    spec.task.retry = Retry { retries: 1, backoff: Span(Duration::from_millis(50)), ..Retry::default() };
    let job = house.submit(spec).await;
    for n in 1..=2 {
        let parcels = worker.take().await;
        assert_eq!(handed(&parcels)[0].1.n, n);
        worker.finish_all(&parcels, Verdict::Failed).await;
    }
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.failed), (JobState::Failed, 1));
}

#[tokio::test]
async fn what_a_silent_session_held_goes_to_another() {
    let house = house().await;
    let mut dead = house.worker().await;
    let job = house.submit(noop(Spread::Single)).await;
    let lost = dead.take().await;
    let voice = dead.voice.clone();
    drop(dead);
    let mut alive = house.worker().await;
    let parcels = alive.take().await;
    assert_eq!(handed(&parcels)[0].1.n, 2, "the second attempt");
    alive.finish_all(&parcels, Verdict::Ok).await;
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!(view.counts.ok, 1);
    // The dead come back and speak: nothing changes.
    voice.finish_all(&lost, Verdict::Failed).await;
    voice.finish_all(&lost, Verdict::Ok).await;
    SystemClock.sleep(Duration::from_millis(100)).await;
    assert_eq!(house.jobs.job(job.id).await.unwrap().0.counts, view.counts);
}

#[tokio::test]
async fn cancelling_a_job_ends_it_and_tells_the_workers() {
    let house = house().await;
    let mut worker = house.worker().await;
    let mut control = house.broker.subscribe(&control_of(&QueueName::default())).await.unwrap();
    let job = house.submit(noop(Spread::Array { first: 1, last: 1_000_000 })).await;
    let parcels = worker.take().await;
    let view = house.jobs.cancel_job(job.id).await.unwrap();
    assert_eq!((view.state, view.counts.cancelled, view.counts.total()), (JobState::Cancelled, 1_000_000, 1_000_000));
    let Heard::Message(body) = control.next().await.unwrap() else { panic!() };
    assert_eq!(open::<Control>(&body).unwrap().cancel_jobs, [job.id]);
    worker.finish_all(&parcels, Verdict::Ok).await;
    SystemClock.sleep(Duration::from_millis(100)).await;
    assert_eq!(house.jobs.job(job.id).await.unwrap().0.counts, view.counts);
}

#[tokio::test]
async fn a_restart_forgets_nothing_and_repeats_only_what_had_not_ended() {
    let house = house().await;
    let mut worker = house.worker().await;
    let job = house.submit(noop(Spread::Array { first: 1, last: 50 })).await;
    let mut ended = std::collections::BTreeSet::new();
    while ended.len() < 20 {
        let parcels = worker.take().await;
        ended.extend(handed(&parcels).iter().map(|(task, _)| task.index));
        worker.finish_all(&parcels, Verdict::Ok).await;
    }
    let n = ended.len() as u64;
    house.until(job.id, "counted", |view| view.counts.ok == n).await;

    let house = house.restart().await;
    let mut worker = house.worker().await;
    let mut again = std::collections::BTreeSet::new();
    while ended.len() + again.len() < 50 {
        let parcels = worker.take().await;
        again.extend(handed(&parcels).iter().map(|(task, _)| task.index));
        worker.finish_all(&parcels, Verdict::Ok).await;
    }
    assert!(ended.is_disjoint(&again), "ran twice: {:?}", ended.intersection(&again).collect::<Vec<_>>());
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!(view.counts.ok, 50);
}

#[tokio::test]
async fn a_worker_that_outlived_the_manager_is_not_doubled() {
    let house = house().await;
    let mut worker = house.worker().await;
    let job = house.submit(noop(Spread::Single)).await;
    let parcels = worker.take().await;
    let (task, attempt) = handed(&parcels)[0];
    house.until(job.id, "dispatched", |view| view.counts.dispatched == 1).await;
    let session = worker.voice.session.clone();
    drop(worker);

    let house = house.restart().await;
    // Its session was written down, so its queue waits for it to speak.
    let held = Arc::new(tokio::sync::Mutex::new(vec![(task, attempt)]));
    let worker = Voice { session, broker: house.broker.clone(), held };
    worker.beat().await;
    let view = house.until(job.id, "adopted", |view| view.counts.running == 1).await;
    assert_eq!(view.state, JobState::Running);
    worker.done(task, attempt, Verdict::Ok).await;
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!(view.counts.ok, 1);
    assert_eq!(house.broker.counts(&tasks_of(&QueueName::default())).await.unwrap().ready, 0, "handed out again");
}

#[tokio::test]
async fn rubbish_in_the_results_goes_to_the_dead_letters_and_blocks_nothing() {
    let house = house().await;
    let results = results_of(&QueueName::default());
    let rubbish = vec![Bytes::from_static(b"\xff\xfe"), Bytes::from_static(br#"{"v":9,"session":"s","worker":"w"}"#)];
    house.broker.publish(&results, rubbish).await.unwrap();
    let mut worker = house.worker().await;
    let job = house.submit(noop(Spread::Single)).await;
    let parcels = worker.take().await;
    worker.finish_all(&parcels, Verdict::Ok).await;
    house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    let dead = house.broker.dead_letters(&results, 10).await.unwrap();
    assert_eq!(dead.len(), 2);
    assert!(dead[1].reason.contains("newer"), "{}", dead[1].reason);
}

#[tokio::test]
async fn a_job_that_can_never_run_is_refused_at_once() {
    let house = house().await;
    let _worker = house.worker().await;
    while house.jobs.workers().await.unwrap().is_empty() {
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
    let owner = Principal { id: "ana".into(), role: Role::Operator, namespace: DEFAULT_NAMESPACE.into() };
    let mut greedy = noop(Spread::Single);
    greedy.task.needs.cpus = Cpus { milli: 64_000 };
    let refusal = house.jobs.submit(&owner, greedy, None, String::new()).await.err().unwrap();
    assert!(refusal.line().contains("needs 64 cpus, the largest worker of queue default has 4"), "{refusal}");
    let mut lost = noop(Spread::Single);
    lost.queue = "nowhere".parse().unwrap();
    assert_eq!(
        house.jobs.submit(&owner, lost, None, String::new()).await.err().unwrap().field.as_deref(),
        Some("queue")
    );
}
