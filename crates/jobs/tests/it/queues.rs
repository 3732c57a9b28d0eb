//! Queues as things: what the store promises of them on either engine, and what the capability makes of them.

use std::time::Duration;

use mutirao_broker::{Broker, Counts};
use mutirao_core::auth::{DEFAULT_NAMESPACE, Principal, Role};
use mutirao_core::envelope::{shard_of, tasks_of};
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::job::{JobSpec, JobState, Spread};
use mutirao_core::outcome::Verdict;
use mutirao_core::quantity::Span;
use mutirao_core::shard::JOBS_SHARDS;
use mutirao_core::task::{Action, Retry, TaskSpec};
use mutirao_core::{Clock, ShardId, SystemClock, Timestamp};
use mutirao_jobs::entries::Kind;
use mutirao_jobs::queues::Precondition;
use mutirao_jobs::service::Submitted;
use mutirao_jobs::store::dead::Which;
use mutirao_jobs::store::queues::{By, Deleted, Expected, Put, QueueRow, Unfinished};
use mutirao_jobs::store::{Created, NewJob};
use mutirao_queues::{Explanation, Limits, Policy, QueueSpec, QueueView};

use crate::engine::{Engine, on_both};
use crate::house::{House, Played, ana, get, handed, house, noop};

on_both! {
    a_queue_is_changed_only_as_whoever_changes_it_believes_it_to_be,
    a_queue_with_unfinished_jobs_is_deleted_only_together_with_them,
    no_job_is_left_in_a_queue_that_is_gone,
    a_definition_that_cannot_be_read_holds_its_queue_and_no_other,
    who_asks_later_still_hears_which_queues_were_deleted,
}

fn by(at: i64) -> By {
    By { who: "t1".into(), name: "ana".into(), at: Timestamp(at) }
}

fn name(text: &str) -> QueueName {
    text.parse().unwrap()
}

fn job_in(queue: &QueueName, key: Option<&str>) -> NewJob {
    NewJob {
        namespace: "default".into(),
        owner: "ana".into(),
        name: None,
        queue: queue.clone(),
        labels: r#"{"team":"x"}"#.into(),
        priority: 7,
        spec: serde_json::to_string(&TaskSpec::new(Action::Noop {})).unwrap(),
        kind: Kind::Index,
        first: 1,
        total: 3,
        segments: Vec::new(),
        trace: "0".repeat(32),
        created_at: Timestamp(1),
        idempotency: key.map(|key| (key.to_owned(), vec![1])),
        unique: None,
        waits: Vec::new(),
    }
}

async fn a_queue_is_changed_only_as_whoever_changes_it_believes_it_to_be(engine: &Engine) {
    let store = engine.open().await;
    let there: Vec<String> = store.queues(0).await.unwrap().iter().map(|row| row.spec.name.to_string()).collect();
    assert_eq!(there, ["default"], "it is always there");
    let mut spec = QueueSpec::new(name("night"));
    let Put::Created(first) = store.put_queue(spec.clone(), Expected::Absent, by(5)).await.unwrap() else { panic!() };
    assert_eq!(store.queue(name("night")).await.unwrap(), Some(first.clone()));
    assert_eq!(
        store.put_queue(spec.clone(), Expected::Absent, by(6)).await.unwrap(),
        Put::Unexpected(Some(first.clone()))
    );

    spec.policy = Policy::Priority;
    let expected = Expected::Revision(first.revision);
    let Put::Changed(second) = store.put_queue(spec.clone(), expected, by(7)).await.unwrap() else { panic!() };
    assert!(second.revision > first.revision);
    assert_eq!((second.created_at, second.changed_at), (Timestamp(5), Timestamp(7)));
    let late = store.put_queue(QueueSpec::new(name("night")), expected, by(8)).await.unwrap();
    assert_eq!(late, Put::Unexpected(Some(second.clone())), "somebody else was first");
    assert_eq!(store.queues(first.revision).await.unwrap(), std::slice::from_ref(&second));
    assert_eq!(store.queues(second.revision).await.unwrap(), []);

    let store = engine.reopen().await;
    assert_eq!(store.queue(name("night")).await.unwrap(), Some(second));
    assert_eq!(store.queue(name("day")).await.unwrap(), None);
}

async fn a_queue_with_unfinished_jobs_is_deleted_only_together_with_them(engine: &Engine) {
    let store = engine.open().await;
    let night = name("night");
    assert_eq!(store.delete_queue(night.clone(), Unfinished::Refuse, by(1)).await.unwrap(), Deleted::Missing);
    store.put_queue(QueueSpec::new(night.clone()), Expected::Absent, by(1)).await.unwrap();
    let Created::New(job) = store.create(job_in(&night, Some("k"))).await.unwrap() else { panic!() };
    let open = store.open_jobs(vec![job]).await.unwrap().jobs.remove(0).rank;
    assert_eq!((open.priority, open.owner.as_str(), open.labels["team"].as_str()), (7, "ana", "x"));
    let busy = store.delete_queue(night.clone(), Unfinished::Refuse, by(2)).await.unwrap();
    assert_eq!(busy, Deleted::Busy { jobs: 1, tasks: 3 });
    let gone = store.delete_queue(night.clone(), Unfinished::Cancel, by(3)).await.unwrap();
    assert!(matches!(gone, Deleted::Gone { cancelled, tasks: 3, .. } if cancelled == [job]));
    let view = store.job(job).await.unwrap().unwrap().0;
    assert_eq!((view.state, view.counts.cancelled, view.finished_at), (JobState::Cancelled, 3, Some(Timestamp(3))));
    assert_eq!(store.create(job_in(&night, None)).await.unwrap(), Created::NoQueue);
    assert_eq!(store.create(job_in(&night, Some("new"))).await.unwrap(), Created::NoQueue);
    assert_eq!(store.create(job_in(&night, Some("k"))).await.unwrap(), Created::Before(job), "it was accepted then");
}

async fn a_definition_that_cannot_be_read_holds_its_queue_and_no_other(engine: &Engine) {
    let store = engine.open().await;
    for queue in ["day", "night"] {
        store.put_queue(QueueSpec::new(name(queue)), Expected::Absent, by(1)).await.unwrap();
    }
    engine.tamper("UPDATE queues SET definition = '{\"policy\":{\"lottery\":{}}}' WHERE name = 'night'").await;
    let paused = |rows: Vec<QueueRow>| rows.into_iter().map(|row| (row.spec.name.to_string(), row.spec.paused));
    let all: Vec<_> = paused(store.queues(0).await.unwrap()).collect();
    assert_eq!(all, [("day".into(), false), ("default".into(), false), ("night".into(), true)]);
    let mut by_shard = Vec::new();
    for shard in (0..JOBS_SHARDS).map(ShardId) {
        let of_shard = store.queues_of(shard).await.unwrap();
        assert!(of_shard.iter().all(|row| shard_of(&row.spec.name) == shard));
        by_shard.extend(paused(of_shard));
    }
    by_shard.sort();
    assert_eq!(by_shard, all);
    let night = store.queue(name("night")).await.unwrap().unwrap();
    assert!(night.spec.paused && night.unreadable.is_some(), "who would change it must not think that it says this");
}

async fn who_asks_later_still_hears_which_queues_were_deleted(engine: &Engine) {
    let store = engine.open().await;
    let mut revisions = Vec::new();
    for queue in ["a", "b"] {
        store.put_queue(QueueSpec::new(name(queue)), Expected::Absent, by(1)).await.unwrap();
        let deleted = store.delete_queue(name(queue), Unfinished::Refuse, by(2)).await.unwrap();
        let Deleted::Gone { revision, .. } = deleted else { panic!("{deleted:?}") };
        revisions.push(revision);
    }
    let removed = async |after| {
        let removed = store.removed_queues(after).await.unwrap();
        removed.into_iter().map(|removed| (removed.queue.to_string(), removed.revision)).collect::<Vec<_>>()
    };
    assert_eq!(removed(0).await, [("a".into(), revisions[0]), ("b".into(), revisions[1])]);
    assert_eq!(removed(revisions[0]).await, [("b".into(), revisions[1])]);
}

async fn no_job_is_left_in_a_queue_that_is_gone(engine: &Engine) {
    let store = engine.open().await;
    for round in 0..10 {
        let queue = name(&format!("short-{round}"));
        store.put_queue(QueueSpec::new(queue.clone()), Expected::Absent, by(1)).await.unwrap();
        let submitting = (0..8).map(|_| {
            let (store, queue) = (store.clone(), queue.clone());
            tokio::spawn(async move { store.create(job_in(&queue, None)).await.unwrap() })
        });
        let submitting: Vec<_> = submitting.collect();
        let deleted = store.delete_queue(queue.clone(), Unfinished::Cancel, by(2)).await.unwrap();
        let Deleted::Gone { cancelled, .. } = deleted else { panic!("{deleted:?}") };
        let mut accepted: Vec<JobKey> = Vec::new();
        for one in submitting {
            match one.await.unwrap() {
                Created::New(job) => accepted.push(job),
                Created::NoQueue => {}
                other => panic!("{other:?}"),
            }
        }
        let (mut cancelled, mut accepted) = (cancelled, accepted);
        cancelled.sort_unstable();
        accepted.sort_unstable();
        assert_eq!(accepted, cancelled, "what was accepted was there to be cancelled");
    }
}

fn admin() -> Principal {
    Principal { id: "t1".into(), name: "ana".into(), role: Role::Admin, namespace: DEFAULT_NAMESPACE.into() }
}

async fn define(house: &House, spec: QueueSpec) {
    house.jobs.replace_queue(&admin(), spec, Precondition::None).await.unwrap();
}

fn array(queue: &QueueName, tasks: u32) -> JobSpec {
    JobSpec { queue: queue.clone(), ..noop(Spread::Array { first: 1, last: tasks }) }
}

async fn refusal(house: &House, spec: JobSpec) -> mutirao_core::Problem {
    match house.jobs.submit(&admin(), spec, None, String::new()).await {
        Ok(_) => panic!("accepted"),
        Err(problem) => problem,
    }
}

#[tokio::test]
async fn a_job_for_a_queue_that_is_not_there_is_refused_with_the_nearest() {
    let house = house().await;
    define(&house, QueueSpec::new(name("simulations"))).await;
    let near = refusal(&house, array(&name("simulatoins"), 1)).await;
    assert_eq!(near.line(), "queue: there is no queue \"simulatoins\"; did you mean \"simulations\"?");
    let far = refusal(&house, array(&name("elsewhere"), 1)).await;
    assert!(far.line().contains("`mutirao queue create elsewhere` makes it"), "{far}");
}

#[tokio::test]
async fn a_paused_queue_hands_out_nothing_until_it_is_resumed_also_over_a_restart() {
    let house = house().await;
    let mut worker = house.worker().await;
    house.jobs.pause_queue(&admin(), &QueueName::default()).await.unwrap();
    let job = house.submit(noop(Spread::Array { first: 1, last: 100 })).await;
    while house.jobs.workers().await.0.is_empty() {
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
    let why = house.jobs.explain_queue(&QueueName::default()).await.unwrap();
    assert_eq!(why.reasons[0].why, "it is paused");
    drop(worker);
    let house = house.restart().await;
    worker = house.worker().await;
    house.until(job.id, "nothing out", |view| view.counts.ready == 100).await;
    assert!(house.jobs.queue(&QueueName::default()).await.unwrap().definition.paused);
    house.jobs.resume_queue(&admin(), &QueueName::default()).await.unwrap();
    let _working = worker.work();
    house.until(job.id, "finished", |view| view.counts.ok == 100).await;
}

#[tokio::test]
async fn a_queue_gives_its_defaults_to_jobs_that_do_not_say() {
    let house = house().await;
    let mut spec = QueueSpec::new(name("night"));
    spec.defaults.retry = Some(Retry { retries: 3, ..Retry::default() });
    spec.defaults.timeout = Some(Span::secs(60));
    define(&house, spec).await;
    let mut worker = Played::start(&name("night"), &house.broker).await;
    let key = Some("the same".to_owned());
    let asked = array(&name("night"), 1);
    let first = house.jobs.submit(&admin(), asked.clone(), key.clone(), String::new()).await.unwrap();
    let task = &worker.take().await[0].templates[0].spec;
    assert_eq!((task.retry.unwrap().retries, task.timeout), (3, Some(Span::secs(60))));

    // The same request is the same job, though the queue's defaults have changed.
    define(&house, QueueSpec::new(name("night"))).await;
    let again = house.jobs.submit(&admin(), asked, key, String::new()).await.unwrap();
    assert!(matches!(&again, Submitted::Before(job) if job.id == first.view().id));
}

#[tokio::test]
async fn the_limit_on_waiting_tasks_is_told_and_holds() {
    let house = house().await;
    let limits = Limits { waiting: Some(10), ..Limits::default() };
    define(&house, QueueSpec { limits, ..QueueSpec::new(name("small")) }).await;
    let too_large = refusal(&house, array(&name("small"), 11)).await;
    assert_eq!(too_large.status, 422, "it would never fit");
    assert!(too_large.line().contains("has 11 tasks, the most at once is 10 (limits.waiting"), "{too_large}");
    house.submit(array(&name("small"), 10)).await;
    let full = refusal(&house, array(&name("small"), 1)).await;
    assert_eq!((full.status, full.retry_after_s), (429, Some(10)));
    assert!(full.line().contains("10 tasks wait in queue small, the most is 10"), "{full}");
}

#[tokio::test]
async fn tasks_that_wait_for_other_jobs_and_those_tried_anew_count_against_the_limit() {
    let house = house().await;
    let limits = Limits { waiting: Some(10), ..Limits::default() };
    define(&house, QueueSpec { limits, ..QueueSpec::new(name("small")) }).await;
    let mut worker = Played::start(&name("small"), &house.broker).await;
    let failed = house.submit(array(&name("small"), 4)).await;
    let mut done = 0;
    while done < 4 {
        let parcels = worker.take().await;
        done += handed(&parcels).len();
        worker.finish_all(&parcels, Verdict::Failed).await;
    }
    house.until(failed.id, "finished", |view| view.finished_at.is_some()).await;
    house.jobs.pause_queue(&admin(), &name("small")).await.unwrap();
    let first = house.submit(array(&name("small"), 2)).await;
    house.submit(JobSpec { after: vec![first.id], ..array(&name("small"), 5) }).await;
    let full = refusal(&house, JobSpec { after: vec![first.id], ..array(&name("small"), 4) }).await;
    assert!(full.status == 429 && full.line().contains("7 tasks wait in queue small, the most is 10"), "{full}");
    let (view, _) = house.jobs.job(failed.id).await.unwrap();
    let full = house.jobs.retry_job(&view, Which::All).await.unwrap_err();
    assert!(full.status == 429 && full.line().contains("the most is 10"), "{full}");
    assert_eq!(house.jobs.retry_job(&view, Which::One(1)).await.unwrap(), 1, "one has room");
}

#[tokio::test]
async fn no_more_are_out_than_the_queue_lets_run_at_once() {
    let house = house().await;
    let limits = Limits { running: Some(2), ..Limits::default() };
    define(&house, QueueSpec { limits, ..QueueSpec::new(name("narrow")) }).await;
    let mut worker = Played::start(&name("narrow"), &house.broker).await;
    let job = house.submit(array(&name("narrow"), 30)).await;
    let mut done = 0;
    while done < 30 {
        let parcels = worker.take().await;
        done += handed(&parcels).len();
        let held = worker.voice.held.lock().await.len();
        assert!(held <= 2, "{held} at once");
        worker.finish_all(&parcels, Verdict::Ok).await;
    }
    house.until(job.id, "finished", |view| view.counts.ok == 30).await;
}

#[tokio::test]
async fn a_higher_priority_overtakes_a_hundred_thousand_that_wait() {
    let house = house().await;
    define(&house, QueueSpec { policy: Policy::Priority, ..QueueSpec::new(name("ranked")) }).await;
    let mut worker = Played::start(&name("ranked"), &house.broker).await;
    let low = house.submit(array(&name("ranked"), 100_000)).await;
    let mut parcels = worker.take().await;
    let urgent = JobSpec { priority: 10, ..array(&name("ranked"), 5) };
    let high = house.submit(urgent).await;
    // Handed out while it came in: no more than one window.
    let mut overtaken = 0;
    loop {
        let tasks = handed(&parcels);
        overtaken += tasks.len();
        worker.finish_all(&parcels, Verdict::Ok).await;
        if tasks.iter().any(|(task, _)| task.job == high.id) {
            break;
        }
        parcels = worker.take().await;
    }
    assert!(overtaken < 20_000, "{overtaken} went before it");
    house.jobs.cancel_job(low.id).await.unwrap();
}

#[tokio::test]
async fn deleting_a_queue_with_its_jobs_ends_them_at_their_workers() {
    let house = house().await;
    define(&house, QueueSpec::new(name("gone"))).await;
    let mut worker = Played::start(&name("gone"), &house.broker).await;
    let job = house.submit(array(&name("gone"), 50)).await;
    let parcels = worker.take().await;
    let refused = house.jobs.delete_queue(&admin(), &name("gone"), Unfinished::Refuse).await.unwrap_err();
    assert!(refused.status == 409 && refused.line().contains("--cancel"), "{refused}");
    assert_eq!(house.jobs.delete_queue(&admin(), &name("gone"), Unfinished::Cancel).await.unwrap(), 1);
    worker.finish_all(&parcels, Verdict::Ok).await;
    let view = house.until(job.id, "cancelled", |view| view.state == JobState::Cancelled).await;
    assert_eq!(view.counts.cancelled, 50);
    assert_eq!(house.jobs.queue(&name("gone")).await.unwrap_err().status, 404);
    let always = house.jobs.delete_queue(&admin(), &QueueName::default(), Unfinished::Cancel).await.unwrap_err();
    assert_eq!(always.status, 409);
}

#[tokio::test]
async fn why_a_task_waits_is_told_in_words() {
    let house = house().await;
    define(&house, QueueSpec::new(name("empty"))).await;
    let before = house.submit(array(&name("empty"), 7)).await;
    let job = house.submit(array(&name("empty"), 1)).await;
    house.until(before.id, "taken in", |view| view.counts.ready == 7).await;
    let why = house.jobs.explain_queue(&name("empty")).await.unwrap();
    assert_eq!(why.summary, "queue empty: 8 wait, 0 are with workers");
    assert_eq!(why.reasons[0].why, "no worker takes tasks of queue empty");
    let why = get(house.jobs.clone(), format!("/v1/jobs/{}/tasks/1/explain", job.id)).await;
    let why: Explanation = serde_json::from_slice(&why).unwrap();
    let said: Vec<&str> = why.reasons.iter().map(|reason| reason.why.as_str()).collect();
    assert_eq!(
        said,
        ["no worker takes tasks of queue empty", "7 tasks of other jobs go before it (policy fifo)"],
        "{why:?}"
    );
}

#[tokio::test]
async fn a_deleted_queue_is_removed_from_the_broker_once_nobody_serves_it() {
    let house = house().await;
    let (night, caller) = (name("night"), ana());
    house.jobs.create_queue(&caller, QueueSpec::new(night.clone())).await.unwrap();
    let mut worker = Played::start(&night, &house.broker).await;
    let job = house.submit(JobSpec { queue: night.clone(), ..noop(Spread::Array { first: 1, last: 50 }) }).await;
    let parcels = worker.take().await;
    worker.finish_all(&parcels, Verdict::Ok).await;
    house.broker.publish(&tasks_of(&night), vec!["an old parcel".into()]).await.unwrap();
    house.jobs.delete_queue(&caller, &night, Unfinished::Cancel).await.unwrap();
    assert_eq!(house.jobs.job(job.id).await.unwrap().0.state, JobState::Cancelled);
    drop(worker);
    house.eventually("gone", async || house.broker.counts(&tasks_of(&night)).await.unwrap() == Counts::default()).await;
    let knows = |loads: Vec<QueueView>| loads.iter().any(|view| view.definition.name == night);
    assert!(!knows(house.jobs.queues().await.unwrap().0));
    // And made anew it works.
    house.jobs.create_queue(&caller, QueueSpec::new(night.clone())).await.unwrap();
    let _working = Played::start(&night, &house.broker).await.work();
    let again = house.submit(JobSpec { queue: night.clone(), ..noop(Spread::Array { first: 1, last: 5 }) }).await;
    house.until(again.id, "finished", |view| view.counts.ok == 5).await;
}
