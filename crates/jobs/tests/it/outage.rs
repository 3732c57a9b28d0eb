//! A PostgreSQL that is killed in the middle of the work, and comes back.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mutirao_core::auth::{DEFAULT_NAMESPACE, Principal, Role};
use mutirao_core::id::QueueName;
use mutirao_core::job::Spread;
use mutirao_core::outcome::Verdict;
use mutirao_jobs::service::Submitted;
use mutirao_shards::Terms;
use mutirao_store::postgres::Ask;
use mutirao_store::{Database, Postgres};
use mutirao_surface::Ready;
use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::wait::eventually;

use crate::engine::{Engine, postgres_steps};
use crate::house::{House, ana, house_on, noop};

const TASKS: u32 = 5_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// PostgreSQL runs as another user, who must be able to pass.
fn folder() -> tempfile::TempDir {
    let passable = std::fs::Permissions::from_mode(0o711);
    tempfile::Builder::new().permissions(passable).tempdir().unwrap()
}

async fn submit_one(house: &House, key: &str) -> Result<Submitted, mutirao_core::Problem> {
    let owner =
        Principal { id: "t1".into(), name: "ana".into(), role: Role::Operator, namespace: DEFAULT_NAMESPACE.into() };
    house.jobs.submit(&owner, noop(Spread::Single), Some(key.into()), "0".repeat(32)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_database_loses_no_answer_and_the_work_goes_on_by_itself() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let servers = folder();
    let mut server = Service::postgres(servers.path()).unwrap();
    let store = Postgres::open(server.url(), &postgres_steps()).await.unwrap();
    let house = house_on(tempfile::tempdir().unwrap(), store.into(), None, Terms::default()).await;
    let mut worker = house.worker().await;
    let entries = (1..=TASKS).map(|n| format!("entry {n}")).collect();
    let job = house.submit(noop(Spread::Entries(entries))).await;
    let working = tokio::spawn(async move {
        loop {
            let parcels = worker.take().await;
            worker.finish_all(&parcels, Verdict::Ok).await;
        }
    });
    let ok = async || house.jobs.job(job.id).await.map(|(view, _)| view.counts.ok);
    eventually("some tasks to end", PATIENCE, async || ok().await.is_ok_and(|ok| ok > 200)).await;
    let Submitted::New(before) = submit_one(&house, "before").await.unwrap() else { panic!("a new key") };
    server.kill9();

    // What serves a connection lives on for a moment after the server itself was killed.
    let mut refusal = None;
    eventually("a refusal", PATIENCE, async || {
        refusal = submit_one(&house, "during").await.err();
        refusal.is_some()
    })
    .await;
    assert!(refusal.as_ref().is_some_and(|r| r.status == 503 && r.kind == "unavailable"), "{refusal:?}");
    eventually("the trouble to be told", PATIENCE, async || house.jobs.ready().await.is_err()).await;
    server.restart().unwrap();

    eventually("every task to end", PATIENCE, async || ok().await.is_ok_and(|ok| ok == u64::from(TASKS))).await;
    let (view, _) = house.jobs.job(job.id).await.unwrap();
    assert_eq!((view.counts.total(), view.finished_at.is_some()), (u64::from(TASKS), true), "{view:?}");
    eventually("the trouble to be over", PATIENCE, async || house.jobs.ready().await.is_ok()).await;
    assert!(matches!(submit_one(&house, "before").await, Ok(Submitted::Before(view)) if view.id == before.id));
    assert!(submit_one(&house, "during").await.is_ok());
    working.abort();
    house.jobs.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_locks_a_job_for_ever_is_not_waited_for_and_nothing_is_lost() {
    let Some(engine) = Engine::postgres().await else { return };
    let Database::Postgres(store) = engine.database().await else { panic!("asked for PostgreSQL") };
    let house = house_on(tempfile::tempdir().unwrap(), store.clone().into(), None, Terms::default()).await;
    let job = house.submit(noop(Spread::Array { first: 1, last: 500 })).await.id;
    let mut person = store.connection().await.unwrap();
    let shell = person.begin().await.unwrap();
    // As long as a shell may stay open.
    shell.batch_execute("SET LOCAL idle_in_transaction_session_timeout = 0").await.unwrap();
    shell.rows("SELECT key FROM jobs WHERE key = $1 FOR NO KEY UPDATE", &[&(job.0 as i64)]).await.unwrap();

    let working = house.worker().await.work();
    let refusal = house.jobs.cancel_job(job).await.expect_err("it is locked");
    assert!(refusal.status == 503 && refusal.line().contains("locked"), "{refusal:?}");
    eventually("the settler to say so", PATIENCE, async || {
        house.jobs.explain_queue(&QueueName::default()).await.is_ok_and(|why| format!("{why:?}").contains("locked"))
    })
    .await;
    assert_eq!(house.jobs.job(job).await.unwrap().0.counts.ok, 0);
    let other = house.jobs.submit(&ana(), noop(Spread::Single), None, "0".repeat(32)).await;
    assert!(other.is_ok(), "what is not locked goes on");

    drop(shell);
    drop(person);
    let view = house.until(job, "all of it", |view| view.finished_at.is_some()).await;
    assert_eq!((view.counts.ok, view.counts.total()), (500, 500));
    working.abort();
    engine.remove().await;
}
