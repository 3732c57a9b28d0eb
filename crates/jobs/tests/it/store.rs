//! What the job store promises, whichever engine is behind it: every behaviour here runs on SQLite and on PostgreSQL.

use std::sync::Arc;

use mutirao_core::blobs::LogStream;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{Attempt, JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::job::{JobState, TaskState};
use mutirao_core::life::Final;
use mutirao_core::outcome::{Outcome, Output, Verdict};
use mutirao_core::shard::JOBS_SHARDS;
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{ShardId, Timestamp};
use mutirao_jobs::desk::ledger::Trace;
use mutirao_jobs::desk::{Again, Ended, SessionChange};
use mutirao_jobs::entries::{Kind, Segment, pack};
use mutirao_jobs::store::queues::{By, Expected};
use mutirao_jobs::store::{Created, Forgotten, JobFilter, NewJob, OpenJob, Settlement, Settling, Shared};

use mutirao_queues::QueueSpec;
use mutirao_shards::Fence;

use crate::engine::{Engine, fence, on_both};

on_both! {
    an_end_counts_once_however_often_it_is_settled,
    a_retry_never_undoes_an_end,
    only_the_last_word_on_a_retry_and_on_a_session_is_kept,
    a_cancelled_job_takes_no_more_ends_and_adds_up,
    the_same_request_makes_one_job_and_another_is_told_apart,
    the_same_request_many_times_at_once_makes_one_job,
    entries_sessions_and_outputs_survive_a_reopening,
    lists_are_newest_first_filtered_and_paged,
    retention_removes_finished_jobs_whole_and_leaves_the_rest,
    what_a_cancelled_task_said_when_it_stopped_is_kept_and_changes_no_count,
    jobs_are_found_by_name_and_label,
    settling_and_cancelling_at_once_always_add_up,
    whatever_a_worker_says_can_be_written,
    a_settlement_of_a_former_owner_writes_nothing,
    each_shard_has_its_own_jobs_and_sessions,
    a_finished_job_is_open_to_nobody,
}

pub fn new_job(total: u32) -> NewJob {
    NewJob {
        namespace: "default".into(),
        owner: "ana".into(),
        name: Some("test".into()),
        queue: QueueName::default(),
        labels: "{}".into(),
        priority: 0,
        spec: serde_json::to_string(&TaskSpec::new(Action::Noop {})).unwrap(),
        kind: Kind::Index,
        first: 1,
        total,
        segments: Vec::new(),
        trace: "0".repeat(32),
        created_at: Timestamp(1),
        idempotency: None,
        unique: None,
        waits: Vec::new(),
    }
}

async fn define(store: &Shared, queue: &QueueName) {
    let by = By { who: "t1".into(), name: "ana".into(), at: Timestamp(1) };
    store.put_queue(QueueSpec::new(queue.clone()), Expected::Absent, by).await.unwrap();
}

pub async fn create(store: &Shared, total: u32) -> JobKey {
    match store.create(new_job(total)).await.unwrap() {
        Created::New(key) => key,
        other => panic!("{other:?}"),
    }
}

pub fn home() -> ShardId {
    shard_of(&QueueName::default())
}

pub async fn open_jobs(store: &Shared) -> Vec<OpenJob> {
    let keys = store.open_keys(home()).await.unwrap();
    store.open_jobs(keys).await.unwrap().jobs
}

pub fn ended(job: JobKey, index: u32, how: Final) -> Ended {
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

pub async fn settle(store: &Shared, ended: Vec<Ended>, again: Vec<Again>) {
    let settlement = Settlement { ended, again, at: Timestamp(10), ..Settlement::default() };
    assert_eq!(store.settle(Arc::new(settlement), fence()).await.unwrap(), Settling::Written);
}

async fn an_end_counts_once_however_often_it_is_settled(engine: &Engine) {
    let store = engine.open().await;
    let job = create(&store, 2).await;
    settle(&store, vec![ended(job, 1, Final::Ok), ended(job, 1, Final::Failed)], vec![]).await;
    settle(&store, vec![ended(job, 1, Final::Ok)], vec![]).await;
    let (view, _) = store.job(job).await.unwrap().unwrap();
    assert_eq!((view.counts.ok, view.counts.failed, view.finished_at), (1, 0, None));
    settle(&store, vec![ended(job, 2, Final::Failed)], vec![]).await;
    let (view, _) = store.job(job).await.unwrap().unwrap();
    assert_eq!((view.state, view.finished_at), (JobState::Failed, Some(Timestamp(10))));
    assert!(open_jobs(&store).await.is_empty());
}

async fn a_retry_never_undoes_an_end(engine: &Engine) {
    let store = engine.open().await;
    let job = create(&store, 2).await;
    let task = TaskKey { job, index: 1 };
    let again = Again { task, tries: 1, failures: 1, losses: 0, not_before: Timestamp(77) };
    settle(&store, vec![], vec![again]).await;
    let open_jobs = open_jobs(&store).await;
    assert!(matches!(open_jobs[0].traces[..], [Trace::Again { index: 1, failures: 1, not_before: Timestamp(77), .. }]));
    settle(&store, vec![ended(job, 1, Final::Ok)], vec![]).await;
    settle(&store, vec![], vec![again]).await;
    let rows = store.tasks(job, 1, 2).await.unwrap();
    assert_eq!((rows.len(), rows[0].state, rows[0].not_before), (1, TaskState::Ok, None));
}

async fn only_the_last_word_on_a_retry_and_on_a_session_is_kept(engine: &Engine) {
    let store = engine.open().await;
    let job = create(&store, 2).await;
    let again = |tries, at| Again {
        task: TaskKey { job, index: 1 },
        tries,
        failures: tries,
        losses: 0,
        not_before: Timestamp(at),
    };
    let session = |name: &str| SessionId(name.into());
    let came =
        |name: &str, worker: &str| SessionChange::Came(session(name), WorkerId(worker.into()), QueueName::default());
    let sessions = vec![
        came("a", "w1"),
        came("b", "w1"),
        SessionChange::Went(session("a")),
        came("b", "w2"),
        SessionChange::Went(session("c")),
        came("c", "w3"),
    ];
    let settlement = Settlement { again: vec![again(1, 70), again(2, 80)], sessions, ..Settlement::default() };
    assert_eq!(store.settle(Arc::new(settlement), fence()).await.unwrap(), Settling::Written);
    let traces = &open_jobs(&store).await[0].traces;
    assert!(matches!(traces[..], [Trace::Again { tries: 2, not_before: Timestamp(80), .. }]), "{traces:?}");
    let mut kept: Vec<(String, String)> =
        store.sessions(home()).await.unwrap().into_iter().map(|(session, worker, _)| (session.0, worker.0)).collect();
    kept.sort();
    assert_eq!(kept, [("b".into(), "w2".into()), ("c".into(), "w3".into())]);
}

async fn a_cancelled_job_takes_no_more_ends_and_adds_up(engine: &Engine) {
    let store = engine.open().await;
    let job = create(&store, 10).await;
    settle(&store, vec![ended(job, 1, Final::Ok), ended(job, 2, Final::Failed)], vec![]).await;
    assert!(store.cancel(job, Timestamp(20)).await.unwrap());
    assert!(!store.cancel(job, Timestamp(21)).await.unwrap());
    settle(&store, vec![ended(job, 3, Final::Ok)], vec![]).await;
    let (view, _) = store.job(job).await.unwrap().unwrap();
    assert_eq!((view.counts.ok, view.counts.failed, view.counts.cancelled), (1, 1, 8));
    assert_eq!((view.state, view.counts.total(), view.finished_at), (JobState::Cancelled, 10, Some(Timestamp(20))));
}

async fn the_same_request_makes_one_job_and_another_is_told_apart(engine: &Engine) {
    let store = engine.open().await;
    let keyed = |digest: u8| NewJob { idempotency: Some(("k".into(), vec![digest])), ..new_job(1) };
    let Created::New(first) = store.create(keyed(1)).await.unwrap() else { panic!() };
    assert_eq!(store.create(keyed(1)).await.unwrap(), Created::Before(first));
    assert_eq!(store.create(keyed(2)).await.unwrap(), Created::Clash(first));
    let other_owner = NewJob { owner: "bob".into(), ..keyed(2) };
    assert!(matches!(store.create(other_owner).await.unwrap(), Created::New(_)));
}

async fn the_same_request_many_times_at_once_makes_one_job(engine: &Engine) {
    let store = engine.open().await;
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let (store, job) = (store.clone(), NewJob { idempotency: Some(("k".into(), vec![1])), ..new_job(1) });
            tokio::spawn(async move { store.create(job).await })
        })
        .collect();
    let (mut new, mut keys) = (0, Vec::new());
    for asked in asking {
        match asked.await.unwrap().unwrap() {
            Created::New(key) => {
                new += 1;
                keys.push(key);
            }
            Created::Before(key) => keys.push(key),
            other => panic!("{other:?}"),
        }
    }
    keys.dedup();
    assert_eq!((new, keys.len()), (1, 1));
    assert_eq!(open_jobs(&store).await.len(), 1);
}

async fn entries_sessions_and_outputs_survive_a_reopening(engine: &Engine) {
    let store = engine.open().await;
    let spread = mutirao_core::job::Spread::Entries((0..1_500).map(|n| format!("line {n}")).collect());
    let job = NewJob { kind: Kind::Entry, segments: pack(&spread), ..new_job(1_500) };
    let Created::New(job) = store.create(job).await.unwrap() else { panic!() };
    let came = SessionChange::Came(SessionId("s".into()), WorkerId("w".into()), QueueName::default());
    let settlement =
        Settlement { ended: vec![ended(job, 3, Final::Ok)], sessions: vec![came], ..Settlement::default() };
    assert_eq!(store.settle(Arc::new(settlement), fence()).await.unwrap(), Settling::Written);
    drop(store);

    let store = engine.reopen().await;
    let Some(Segment::Entries(second)) = store.segment(job, Kind::Entry, 1_024).await.unwrap() else { panic!() };
    assert_eq!((second.len(), second[0].as_str()), (476, "line 1024"));
    assert_eq!(store.sessions(home()).await.unwrap().len(), 1);
    let kept = store.output(TaskKey { job, index: 3 }, LogStream::Stdout).await.unwrap().unwrap();
    assert_eq!(kept.output.tail, b"hello");
    assert!(store.output(TaskKey { job, index: 3 }, LogStream::Stderr).await.unwrap().is_none());
}

async fn lists_are_newest_first_filtered_and_paged(engine: &Engine) {
    let store = engine.open().await;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(create(&store, 1).await);
    }
    settle(&store, vec![ended(jobs[1], 1, Final::Ok), ended(jobs[2], 1, Final::Dead)], vec![]).await;
    let list = async |state, before, limit| {
        let filter = JobFilter { namespace: "default".into(), state, before, limit, ..JobFilter::default() };
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

async fn retention_removes_finished_jobs_whole_and_leaves_the_rest(engine: &Engine) {
    let store = engine.open().await;
    let (old, open_job) = (create(&store, 1).await, create(&store, 1).await);
    settle(&store, vec![ended(old, 1, Final::Ok)], vec![]).await;
    assert_eq!(store.forget(Timestamp(10)).await.unwrap(), Forgotten { jobs: vec![], done: true });
    let mut gone = Vec::new();
    loop {
        let Forgotten { jobs, done } = store.forget(Timestamp(11)).await.unwrap();
        gone.extend(jobs);
        if done {
            break;
        }
    }
    assert_eq!(gone, [old]);
    assert!(store.job(old).await.unwrap().is_none() && store.tasks(old, 1, 1).await.unwrap().is_empty());
    assert!(store.output(TaskKey { job: old, index: 1 }, LogStream::Stdout).await.unwrap().is_none());
    assert!(store.job(open_job).await.unwrap().is_some());
}

async fn what_a_cancelled_task_said_when_it_stopped_is_kept_and_changes_no_count(engine: &Engine) {
    let store = engine.open().await;
    let job = create(&store, 3).await;
    settle(&store, vec![ended(job, 1, Final::Ok)], vec![]).await;
    store.cancel(job, Timestamp(20)).await.unwrap();
    let before = store.job(job).await.unwrap().unwrap().0;
    let late = |index| Ended { at: Timestamp(21), ..ended(job, index, Final::Cancelled) };
    let settlement = Settlement { late: vec![late(1), late(2), late(2)], ..Settlement::default() };
    assert_eq!(store.settle(Arc::new(settlement), fence()).await.unwrap(), Settling::Written);
    assert_eq!(store.job(job).await.unwrap().unwrap().0, before);
    let states: Vec<_> = store.tasks(job, 1, 3).await.unwrap().iter().map(|t| (t.id.index, t.state)).collect();
    assert_eq!(states, [(1, TaskState::Ok), (2, TaskState::Cancelled)]);
    let kept = store.output(TaskKey { job, index: 2 }, LogStream::Stdout).await.unwrap().unwrap();
    assert_eq!(kept.output.tail, b"hello");

    // In a job that goes on, only a task that was cancelled itself has more to say.
    let open_job = create(&store, 3).await;
    let cancelled = Ended { worker: None, outcome: None, ..ended(open_job, 1, Final::Cancelled) };
    settle(&store, vec![cancelled], vec![]).await;
    let late = |index| Ended { at: Timestamp(21), ..ended(open_job, index, Final::Cancelled) };
    let settlement = Settlement { late: vec![late(1), late(2)], ..Settlement::default() };
    assert_eq!(store.settle(Arc::new(settlement), fence()).await.unwrap(), Settling::Written);
    let rows = store.tasks(open_job, 1, 3).await.unwrap();
    assert_eq!((rows.len(), rows[0].worker.as_deref()), (1, Some("w1")));
}

async fn jobs_are_found_by_name_and_label(engine: &Engine) {
    let store = engine.open().await;
    let named = NewJob { name: Some("a".into()), labels: r#"{"team":"x","k\"q":"'"}"#.into(), ..new_job(1) };
    let Created::New(job) = store.create(named).await.unwrap() else { panic!() };
    create(&store, 1).await;
    let find = async |name: Option<&str>, label: Option<(&str, &str)>| {
        let label = label.map(|(label, value)| (label.to_owned(), value.to_owned()));
        let filter = JobFilter {
            namespace: "default".into(),
            name: name.map(Into::into),
            label,
            limit: 9,
            ..JobFilter::default()
        };
        store.jobs(filter).await.unwrap().into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(find(Some("a"), None).await, [job]);
    assert_eq!(find(None, Some(("team", "x"))).await, [job]);
    assert_eq!(find(Some("a"), Some(("k\"q", "'"))).await, [job]);
    assert!(find(Some("b"), None).await.is_empty() && find(None, Some(("team", "y"))).await.is_empty());
}

async fn settling_and_cancelling_at_once_always_add_up(engine: &Engine) {
    let store = engine.open().await;
    for round in 0..20 {
        let job = create(&store, 100).await;
        let settling = tokio::spawn({
            let store = store.clone();
            async move {
                for index in 1..=50 {
                    // Twice each, as two owners who both believe in themselves would.
                    let (a, b) = (vec![ended(job, index, Final::Ok)], vec![ended(job, index, Final::Failed)]);
                    tokio::join!(settle(&store, a, vec![]), settle(&store, b, vec![]));
                }
            }
        });
        tokio::task::yield_now().await;
        assert!(store.cancel(job, Timestamp(20)).await.unwrap(), "round {round}");
        settling.await.unwrap();
        let (view, _) = store.job(job).await.unwrap().unwrap();
        let rows = store.tasks(job, 1, 100).await.unwrap().len() as u64;
        assert_eq!((view.counts.total(), view.counts.ready, view.state), (100, 0, JobState::Cancelled));
        assert_eq!(view.counts.cancelled + rows, 100, "a row without a count, or a count without a row: {view:?}");
    }
}

async fn whatever_a_worker_says_can_be_written(engine: &Engine) {
    let store = engine.open().await;
    let job = create(&store, 1).await;
    let mut end = ended(job, 1, Final::Failed);
    end.failures = u32::MAX;
    end.worker = Some(WorkerId("w\0".into()));
    if let Some(outcome) = &mut end.outcome {
        outcome.reason = Some("a\0b\u{1f980}\n".into());
        outcome.usage.memory_peak_bytes = Some(u64::MAX);
        outcome.stdout = Output { tail: vec![0, 255, 128], bytes: u64::MAX, truncated: true, in_blobs: true };
    }
    let odd = SessionChange::Came(SessionId("s\0".into()), WorkerId("\0".into()), QueueName::default());
    let settlement = Settlement { ended: vec![end], sessions: vec![odd], ..Settlement::default() };
    assert_eq!(store.settle(Arc::new(settlement), fence()).await.unwrap(), Settling::Written);
    let rows = store.tasks(job, 1, 1).await.unwrap();
    assert!(rows[0].reason.as_ref().is_some_and(|why| why.ends_with("b\u{1f980}\n")), "{rows:?}");
    let kept = store.output(TaskKey { job, index: 1 }, LogStream::Stdout).await.unwrap().unwrap();
    assert_eq!((kept.output.tail, kept.output.truncated, kept.output.in_blobs), (vec![0, 255, 128], true, true));
    let went = SessionChange::Went(SessionId("s\0".into()));
    let settlement = Settlement { sessions: vec![went], ..Settlement::default() };
    assert_eq!(store.settle(Arc::new(settlement), fence()).await.unwrap(), Settling::Written);
    assert!(store.sessions(home()).await.unwrap().is_empty());
}

async fn a_settlement_of_a_former_owner_writes_nothing(engine: &Engine) {
    let store = engine.open().await;
    let job = create(&store, 2).await;
    let task = TaskKey { job, index: 2 };
    let settlement = Arc::new(Settlement {
        ended: vec![ended(job, 1, Final::Ok)],
        again: vec![Again { task, tries: 1, failures: 1, losses: 0, not_before: Timestamp(77) }],
        sessions: vec![SessionChange::Came(SessionId("s".into()), WorkerId("w".into()), QueueName::default())],
        ..Settlement::default()
    });
    for generation in [0, 2] {
        let former = Fence { generation, ..fence() };
        assert_eq!(store.settle(settlement.clone(), former).await.unwrap(), Settling::Fenced);
    }
    let other = Fence { shard: ShardId(1), ..fence() };
    assert_eq!(store.settle(settlement.clone(), other).await.unwrap(), Settling::Fenced);
    assert!(store.tasks(job, 1, 2).await.unwrap().is_empty());
    assert!(store.sessions(home()).await.unwrap().is_empty());
    assert_eq!(store.job(job).await.unwrap().unwrap().0.counts.ok, 0);
    assert_eq!(store.settle(settlement, fence()).await.unwrap(), Settling::Written);
    assert_eq!(store.job(job).await.unwrap().unwrap().0.counts.ok, 1);
}

async fn each_shard_has_its_own_jobs_and_sessions(engine: &Engine) {
    let store = engine.open().await;
    let queues: Vec<QueueName> = (0..40).map(|n| format!("queue-{n}").parse().unwrap()).collect();
    let mut jobs = Vec::new();
    let mut sessions = Vec::new();
    for (n, queue) in queues.iter().enumerate() {
        define(&store, queue).await;
        let Created::New(job) = store.create(NewJob { queue: queue.clone(), ..new_job(1) }).await.unwrap() else {
            panic!()
        };
        jobs.push((shard_of(queue), job));
        sessions.push(SessionChange::Came(SessionId(format!("s{n}")), WorkerId("w".into()), queue.clone()));
    }
    let settlement = Settlement { sessions, ..Settlement::default() };
    assert_eq!(store.settle(Arc::new(settlement), fence()).await.unwrap(), Settling::Written);
    for shard in (0..JOBS_SHARDS).map(ShardId) {
        let mine: Vec<JobKey> = jobs.iter().filter(|(home, _)| *home == shard).map(|(_, job)| *job).collect();
        assert_eq!(store.open_keys(shard).await.unwrap(), mine);
        let sessions = store.sessions(shard).await.unwrap();
        assert_eq!(sessions.len(), mine.len());
        assert!(sessions.iter().all(|(_, _, queue)| shard_of(queue) == shard));
    }
    assert_eq!(store.queue_of(SessionId("s7".into())).await.unwrap(), Some(queues[7].clone()));
    assert_eq!(store.queue_of(SessionId("nobody".into())).await.unwrap(), None);
}

async fn a_finished_job_is_open_to_nobody(engine: &Engine) {
    let store = engine.open().await;
    let (over, cancelled, open) = (create(&store, 1).await, create(&store, 1).await, create(&store, 1).await);
    settle(&store, vec![ended(over, 1, Final::Ok)], vec![]).await;
    store.cancel(cancelled, Timestamp(20)).await.unwrap();
    assert_eq!(store.open_keys(home()).await.unwrap(), [open]);
    let found = store.open_jobs(vec![over, cancelled, open, JobKey(1 << 40)]).await.unwrap().jobs;
    assert_eq!(found.iter().map(|job| job.key).collect::<Vec<_>>(), [open]);
}
