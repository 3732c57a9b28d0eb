//! What a newer manager wrote, or something damaged: one row that cannot be read stops nothing else.

use mutirao_core::Timestamp;
use mutirao_core::auth::{Principal, Role};
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::job::{JobSpec, JobState, Spread};
use mutirao_jobs::queues::Precondition;
use mutirao_jobs::store::Shared;
use mutirao_jobs::store::queues::{By, Deleted, Expected, Put, Unfinished};
use mutirao_queues::QueueSpec;

use crate::engine::{Engine, on_both};
use crate::house::{ana, house, noop};
use crate::store::{create, home};

on_both! {
    each_installation_counts_its_jobs_from_a_place_of_its_own,
    a_job_that_cannot_be_read_hides_no_other_and_can_be_cancelled,
    a_job_of_whose_tasks_one_row_is_damaged_is_held_and_no_other,
    a_session_of_a_queue_that_cannot_be_named_hides_no_other,
    a_definition_that_cannot_be_read_is_replaced_and_deleted_like_any_other,
}

/// An action that only the next version knows.
const NEWER_ACTION: &str =
    "UPDATE jobs SET spec = '{\"action\":{\"teleport\":{}}}' WHERE key = (SELECT min(key) + 1 FROM jobs)";
const NEWER_KIND: &str = "UPDATE jobs SET kind = 99 WHERE key = (SELECT min(key) + 2 FROM jobs)";

/// So many jobs, one after the other.
async fn made<const N: usize>(store: &Shared) -> [JobKey; N] {
    let first = create(store, 2).await;
    for _ in 1..N {
        create(store, 2).await;
    }
    std::array::from_fn(|n| JobKey(first.0 + n as u64))
}

async fn keys(store: &Shared) -> (Vec<JobKey>, Vec<JobKey>) {
    let open = store.open_jobs(store.open_keys(home()).await.unwrap()).await.unwrap();
    (open.jobs.iter().map(|job| job.key).collect(), open.unreadable.iter().map(|job| job.job).collect())
}

async fn a_job_that_cannot_be_read_hides_no_other_and_can_be_cancelled(engine: &Engine) {
    let store = engine.open().await;
    let [one, two, three, four] = made(&store).await;
    engine.tamper(NEWER_ACTION).await;
    engine.tamper(NEWER_KIND).await;
    assert_eq!(keys(&store).await, (vec![one, four], vec![two, three]));
    assert_eq!(store.unreadable(one).await.unwrap(), None);
    let why = store.unreadable(two).await.unwrap().unwrap().why;
    assert!(why.contains("teleport"), "{why}");
    assert!(store.cancel(two, Timestamp(20)).await.unwrap());
    assert_eq!(keys(&store).await, (vec![one, four], vec![three]));
    assert_eq!(store.unreadable(two).await.unwrap(), None, "it is over");
}

/// So that an id of one is not found at another. One store in ten million begins below this.
async fn each_installation_counts_its_jobs_from_a_place_of_its_own(engine: &Engine) {
    let [first, second] = made(&engine.open().await).await;
    assert!((1_000..1 << 34).contains(&first.0), "{first:?}");
    assert_eq!(first.to_string().len(), 8, "and ids stay short");
    let third = create(&engine.reopen().await, 1).await;
    assert_eq!(third.0, second.0 + 1, "it goes on where it was");
}

/// A number that no program of ours writes.
const DAMAGED: &str = "INSERT INTO tasks (job, idx, state, n, failures, losses) \
    SELECT min(key) + 1, 1, 0, 1, -7, 0 FROM jobs";

async fn a_job_of_whose_tasks_one_row_is_damaged_is_held_and_no_other(engine: &Engine) {
    let store = engine.open().await;
    let [one, two, three] = made(&store).await;
    engine.tamper(DAMAGED).await;
    assert_eq!(keys(&store).await, (vec![one, three], vec![two]));
    let why = store.unreadable(two).await.unwrap().unwrap().why;
    assert!(why.contains("its tasks is damaged"), "{why}");
    assert_eq!(store.unreadable(three).await.unwrap(), None);
    assert!(store.cancel(two, Timestamp(20)).await.unwrap(), "somebody may end it");
    assert_eq!(keys(&store).await, (vec![one, three], vec![]));
}

async fn a_session_of_a_queue_that_cannot_be_named_hides_no_other(engine: &Engine) {
    let store = engine.open().await;
    engine
        .tamper(
            "INSERT INTO sessions (session, worker, queue) VALUES ('s1', 'w', 'no/such name'), ('s2', 'w', 'default')",
        )
        .await;
    let found: Vec<String> = store.sessions(home()).await.unwrap().into_iter().map(|(session, ..)| session.0).collect();
    assert_eq!(found, ["s2"]);
}

const NEWER_POLICY: &str = "UPDATE queues SET definition = '{\"policy\":{\"lottery\":{}}}' WHERE name = 'night'";

async fn a_definition_that_cannot_be_read_is_replaced_and_deleted_like_any_other(engine: &Engine) {
    let (store, night) = (engine.open().await, "night".parse::<QueueName>().unwrap());
    let by = || By { who: "t1".into(), name: "ana".into(), at: Timestamp(7) };
    let spec = QueueSpec::new(night.clone());
    let Put::Created(made) = store.put_queue(spec.clone(), Expected::Absent, by()).await.unwrap() else { panic!() };
    engine.tamper(NEWER_POLICY).await;
    let there = store.put_queue(spec.clone(), Expected::Absent, by()).await.unwrap();
    assert!(matches!(there, Put::Unexpected(Some(row)) if row.unreadable.is_some()));
    let Put::Changed(mended) = store.put_queue(spec, Expected::Revision(made.revision), by()).await.unwrap() else {
        panic!()
    };
    assert_eq!(store.queue(night.clone()).await.unwrap(), Some(mended.clone()));
    assert_eq!((mended.unreadable, mended.created_at), (None, made.created_at));

    engine.tamper(NEWER_POLICY).await;
    let deleted = store.delete_queue(night.clone(), Unfinished::Refuse, by()).await.unwrap();
    assert!(matches!(deleted, Deleted::Gone { .. }), "{deleted:?}");
    assert_eq!(store.queue(night).await.unwrap(), None);
}

#[tokio::test]
async fn a_queue_whose_definition_cannot_be_read_says_so_wherever_it_is_asked_for() {
    let (house, night) = (house().await, "night".parse::<QueueName>().unwrap());
    let admin = Principal { role: Role::Admin, ..ana() };
    let spec = QueueSpec::new(night.clone());
    house.jobs.create_queue(&admin, spec.clone()).await.unwrap();
    house.tamper(NEWER_POLICY).await;

    assert!(house.jobs.queue(&night).await.unwrap().unreadable.is_some());
    let (all, _) = house.jobs.queues().await.unwrap();
    let unreadable: Vec<_> = all.iter().filter(|queue| queue.unreadable.is_some()).collect();
    assert!(matches!(unreadable[..], [queue] if queue.definition.name == night));
    let why = &house.jobs.explain_queue(&night).await.unwrap().reasons[0];
    assert!(why.why.contains("cannot be read by this version"), "{why:?}");
    let job = JobSpec { queue: night.clone(), ..noop(Spread::Array { first: 1, last: 3 }) };
    let refusals = [
        house.jobs.submit(&ana(), job, None, "0".repeat(32)).await.map(drop).unwrap_err(),
        house.jobs.resume_queue(&admin, &night).await.map(drop).unwrap_err(),
    ];
    for refusal in refusals {
        assert!(refusal.line().contains("cannot be read") && refusal.line().contains("mutirao apply"), "{refusal:?}");
    }

    house.jobs.replace_queue(&admin, spec, Precondition::None).await.unwrap();
    house.jobs.resume_queue(&admin, &night).await.unwrap();
    assert_eq!(house.jobs.queue(&night).await.unwrap().unreadable, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_a_manager_cannot_read_waits_and_the_others_of_its_shard_run() {
    let before = house().await;
    let array = || noop(Spread::Array { first: 1, last: 3 });
    let (one, two) = (before.submit(array()).await.id, before.submit(array()).await.id);
    assert_eq!(two.0, one.0 + 1, "the one that is tampered with");
    before.tamper(NEWER_ACTION).await;
    let house = before.restart().await;
    let worker = house.worker().await.work();
    house.until(one, "the other ran", |view| view.state == JobState::Ok).await;
    let later = house.submit(array()).await.id;
    house.until(later, "one that came later ran", |view| view.state == JobState::Ok).await;

    let (view, _) = house.jobs.job(two).await.unwrap();
    assert_eq!((view.counts.ready, view.finished_at), (3, None), "left as it was");
    let reason = view.reason.unwrap();
    assert!(reason.contains("cannot read it") && reason.contains("upgrade"), "{reason}");
    let listed = house.jobs.unreadable(&ana().namespace).await.unwrap();
    assert_eq!(listed.iter().map(|view| (view.id, view.reason.clone())).collect::<Vec<_>>(), [(two, Some(reason))]);
    assert!(house.jobs.unreadable("another").await.unwrap().is_empty());

    let mend = "UPDATE jobs SET spec = (SELECT spec FROM jobs ORDER BY key LIMIT 1) WHERE key = (SELECT min(key) + 1 FROM jobs)";
    house.tamper(mend).await;
    house.until(two, "whoever can read it takes it up", |view| view.state == JobState::Ok).await;
    assert!(house.jobs.unreadable(&ana().namespace).await.unwrap().is_empty());
    worker.abort();
}
