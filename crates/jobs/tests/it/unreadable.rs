//! What a newer manager wrote, or something damaged: one row that cannot be read stops nothing else.

use mutirao_core::Timestamp;
use mutirao_core::id::JobKey;
use mutirao_core::job::{JobState, Spread};
use mutirao_jobs::store::Shared;

use crate::engine::{Engine, on_both};
use crate::house::{house, noop};
use crate::store::{create, home};

on_both! {
    a_job_that_cannot_be_read_hides_no_other_and_can_be_cancelled,
    a_session_of_a_queue_that_cannot_be_named_hides_no_other,
}

/// An action that only the next version knows.
const NEWER_ACTION: &str = "UPDATE jobs SET spec = '{\"action\":{\"teleport\":{}}}' WHERE key = 2";
const NEWER_KIND: &str = "UPDATE jobs SET kind = 99 WHERE key = 3";

async fn keys(store: &Shared) -> (Vec<JobKey>, Vec<JobKey>) {
    let open = store.open_jobs(store.open_keys(home()).await.unwrap()).await.unwrap();
    (open.jobs.iter().map(|job| job.key).collect(), open.unreadable.iter().map(|job| job.job).collect())
}

async fn a_job_that_cannot_be_read_hides_no_other_and_can_be_cancelled(engine: &Engine) {
    let store = engine.open().await;
    for _ in 0..4 {
        create(&store, 2).await;
    }
    engine.tamper(NEWER_ACTION).await;
    engine.tamper(NEWER_KIND).await;
    let [one, two, three, four] = [1, 2, 3, 4].map(JobKey);
    assert_eq!(keys(&store).await, (vec![one, four], vec![two, three]));
    assert_eq!(store.unreadable(one).await.unwrap(), None);
    let why = store.unreadable(two).await.unwrap().unwrap().why;
    assert!(why.contains("teleport"), "{why}");
    assert!(store.cancel(two, Timestamp(20)).await.unwrap());
    assert_eq!(keys(&store).await, (vec![one, four], vec![three]));
    assert_eq!(store.unreadable(two).await.unwrap(), None, "it is over");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_a_manager_cannot_read_waits_and_the_others_of_its_shard_run() {
    let before = house().await;
    let array = || noop(Spread::Array { first: 1, last: 3 });
    let (one, two) = (before.submit(array()).await.id, before.submit(array()).await.id);
    assert_eq!(two, JobKey(2), "the one that is tampered with");
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

    house.tamper("UPDATE jobs SET spec = (SELECT spec FROM jobs WHERE key = 1) WHERE key = 2").await;
    house.until(two, "whoever can read it takes it up", |view| view.state == JobState::Ok).await;
    worker.abort();
}
