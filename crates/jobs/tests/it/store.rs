//! What the job store promises, whichever engine is behind it.

use std::sync::Arc;

use mutirao_core::Timestamp;
use mutirao_core::blobs::LogStream;
use mutirao_core::id::{Attempt, JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::job::{JobState, TaskState};
use mutirao_core::life::Final;
use mutirao_core::outcome::{Outcome, Output, Verdict};
use mutirao_core::task::{Action, TaskSpec};
use mutirao_jobs::desk::ledger::Trace;
use mutirao_jobs::desk::{Again, Ended, SessionChange};
use mutirao_jobs::entries::{Kind, Segment, pack};
use mutirao_jobs::store::sqlite::SqliteJobs;
use mutirao_jobs::store::{Created, JobFilter, JobStore, NewJob, Settlement};
use mutirao_store::Sqlite;

fn open(folder: &tempfile::TempDir) -> SqliteJobs {
    SqliteJobs(Sqlite::open(&folder.path().join("store.db"), mutirao_jobs::MIGRATIONS).unwrap())
}

fn new_job(total: u32) -> NewJob {
    NewJob {
        namespace: "default".into(),
        owner: "ana".into(),
        name: Some("test".into()),
        queue: QueueName::default(),
        labels: "{}".into(),
        spec: serde_json::to_string(&TaskSpec::new(Action::Noop {})).unwrap(),
        kind: Kind::Index,
        first: 1,
        total,
        segments: Vec::new(),
        trace: "0".repeat(32),
        created_at: Timestamp(1),
        idempotency: None,
    }
}

async fn create(store: &SqliteJobs, total: u32) -> JobKey {
    match store.create(new_job(total)).await.unwrap() {
        Created::New(key) => key,
        other => panic!("{other:?}"),
    }
}

fn ended(job: JobKey, index: u32, how: Final) -> Ended {
    let mut outcome = Outcome::new(Verdict::Ok, Timestamp(5));
    outcome.stdout = Output { tail: b"hello".to_vec(), bytes: 5, ..Output::default() };
    Ended {
        task: TaskKey { job, index },
        how,
        attempt: Some(Attempt { generation: 1, n: 1 }),
        failures: 0,
        losses: 0,
        worker: Some(WorkerId("w1".into())),
        outcome: Some(outcome),
        at: Timestamp(9),
    }
}

async fn settle(store: &SqliteJobs, ended: Vec<Ended>, again: Vec<Again>) {
    let settlement = Settlement { ended, again, sessions: Vec::new(), at: Timestamp(10) };
    store.settle(Arc::new(settlement)).await.unwrap();
}

#[tokio::test]
async fn an_end_counts_once_however_often_it_is_settled() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let job = create(&store, 2).await;
    settle(&store, vec![ended(job, 1, Final::Ok), ended(job, 1, Final::Failed)], vec![]).await;
    settle(&store, vec![ended(job, 1, Final::Ok)], vec![]).await;
    let (view, _) = store.job(job).await.unwrap().unwrap();
    assert_eq!((view.counts.ok, view.counts.failed, view.finished_at), (1, 0, None));
    settle(&store, vec![ended(job, 2, Final::Failed)], vec![]).await;
    let (view, _) = store.job(job).await.unwrap().unwrap();
    assert_eq!((view.state, view.finished_at), (JobState::Failed, Some(Timestamp(10))));
    assert!(store.open_jobs().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_retry_never_undoes_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let job = create(&store, 2).await;
    let task = TaskKey { job, index: 1 };
    let again = Again { task, tries: 1, failures: 1, losses: 0, not_before: Timestamp(77) };
    settle(&store, vec![], vec![again]).await;
    let open_jobs = store.open_jobs().await.unwrap();
    assert!(matches!(open_jobs[0].traces[..], [Trace::Again { index: 1, failures: 1, not_before: Timestamp(77), .. }]));
    settle(&store, vec![ended(job, 1, Final::Ok)], vec![]).await;
    settle(&store, vec![], vec![again]).await;
    let rows = store.tasks(job, 1, 2).await.unwrap();
    assert_eq!((rows.len(), rows[0].state, rows[0].not_before), (1, TaskState::Ok, None));
}

#[tokio::test]
async fn a_cancelled_job_takes_no_more_ends_and_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let job = create(&store, 10).await;
    settle(&store, vec![ended(job, 1, Final::Ok), ended(job, 2, Final::Failed)], vec![]).await;
    assert!(store.cancel(job, Timestamp(20)).await.unwrap());
    assert!(!store.cancel(job, Timestamp(21)).await.unwrap());
    settle(&store, vec![ended(job, 3, Final::Ok)], vec![]).await;
    let (view, _) = store.job(job).await.unwrap().unwrap();
    assert_eq!((view.counts.ok, view.counts.failed, view.counts.cancelled), (1, 1, 8));
    assert_eq!((view.state, view.counts.total(), view.finished_at), (JobState::Cancelled, 10, Some(Timestamp(20))));
}

#[tokio::test]
async fn the_same_request_makes_one_job_and_another_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let keyed = |digest: u8| NewJob { idempotency: Some(("k".into(), vec![digest])), ..new_job(1) };
    let Created::New(first) = store.create(keyed(1)).await.unwrap() else { panic!() };
    assert_eq!(store.create(keyed(1)).await.unwrap(), Created::Before(first));
    assert_eq!(store.create(keyed(2)).await.unwrap(), Created::Clash(first));
    let other_owner = NewJob { owner: "bob".into(), ..keyed(2) };
    assert!(matches!(store.create(other_owner).await.unwrap(), Created::New(_)));
}

#[tokio::test]
async fn entries_sessions_outputs_and_generations_survive_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let spread = mutirao_core::job::Spread::Entries((0..1_500).map(|n| format!("line {n}")).collect());
    let job = NewJob { kind: Kind::Entry, segments: pack(&spread), ..new_job(1_500) };
    let Created::New(job) = store.create(job).await.unwrap() else { panic!() };
    let came = SessionChange::Came(SessionId("s".into()), WorkerId("w".into()), QueueName::default());
    let settlement =
        Settlement { ended: vec![ended(job, 3, Final::Ok)], sessions: vec![came], ..Settlement::default() };
    store.settle(Arc::new(settlement)).await.unwrap();
    let before = store.next_generation().await.unwrap();
    store.0.close().await;

    let store = open(&folder);
    let Some(Segment::Entries(second)) = store.segment(job, Kind::Entry, 1_024).await.unwrap() else { panic!() };
    assert_eq!((second.len(), second[0].as_str()), (476, "line 1024"));
    assert_eq!(store.sessions().await.unwrap().len(), 1);
    assert!(store.next_generation().await.unwrap() > before);
    let kept = store.output(TaskKey { job, index: 3 }, LogStream::Stdout).await.unwrap().unwrap();
    assert_eq!(kept.output.tail, b"hello");
    assert!(store.output(TaskKey { job, index: 3 }, LogStream::Stderr).await.unwrap().is_none());
}

#[tokio::test]
async fn lists_are_newest_first_filtered_and_paged() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(create(&store, 1).await);
    }
    settle(&store, vec![ended(jobs[1], 1, Final::Ok), ended(jobs[2], 1, Final::Dead)], vec![]).await;
    let list = async |state, before, limit| {
        let filter = JobFilter { namespace: "default".into(), state, queue: None, before, limit };
        store.jobs(filter).await.unwrap().into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, 2).await, [jobs[4], jobs[3]]);
    assert_eq!(list(None, Some(jobs[3]), 9).await, [jobs[2], jobs[1], jobs[0]]);
    assert_eq!(list(Some(JobState::Ok), None, 9).await, [jobs[1]]);
    assert_eq!(list(Some(JobState::Failed), None, 9).await, [jobs[2]]);
    assert_eq!(list(Some(JobState::Waiting), None, 9).await, [jobs[4], jobs[3], jobs[0]]);
    let elsewhere = JobFilter { namespace: "other".into(), limit: 9, ..JobFilter::default() };
    assert!(store.jobs(elsewhere).await.unwrap().is_empty());
}

#[tokio::test]
async fn retention_removes_finished_jobs_whole_and_leaves_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let (old, open_job) = (create(&store, 1).await, create(&store, 1).await);
    settle(&store, vec![ended(old, 1, Final::Ok)], vec![]).await;
    assert_eq!(store.forget(Timestamp(10)).await.unwrap(), []);
    assert_eq!(store.forget(Timestamp(11)).await.unwrap(), [old]);
    assert!(store.job(old).await.unwrap().is_none() && store.tasks(old, 1, 1).await.unwrap().is_empty());
    assert!(store.output(TaskKey { job: old, index: 1 }, LogStream::Stdout).await.unwrap().is_none());
    assert!(store.job(open_job).await.unwrap().is_some());
}
