//! What a version without shards left behind, and its workers.

use std::time::Duration;

use mutirao_core::envelope::shard_of;
use mutirao_core::id::QueueName;
use mutirao_core::job::Spread;
use mutirao_core::shard::JOBS_SHARDS;
use mutirao_core::{Clock, ShardId, SystemClock};
use mutirao_jobs::{GROUP, MIGRATIONS};
use mutirao_shards::store as leases;
use mutirao_store::{Database, Sqlite};

use crate::engine::{Engine, sqlite_steps};
use crate::house::{Played, Voice, handed, house, noop};

const BEFORE: &str = "
    INSERT INTO generations (name, n) VALUES ('jobs', 7);
    INSERT INTO jobs (namespace, owner, queue, labels, spec, kind, first, total, trace, created_at, finished_at)
    VALUES ('default', 'ana', 'default', '{}', '{}', 0, 1, 3, '', 1, NULL),
           ('default', 'ana', 'gpu', '{}', '{}', 0, 1, 3, '', 1, NULL),
           ('default', 'ana', 'gpu', '{}', '{}', 0, 1, 3, '', 1, 5);";

#[tokio::test]
async fn open_jobs_of_before_find_their_shards_and_generations_go_on_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let old = Sqlite::open(&file, &MIGRATIONS[..1]).unwrap();
    old.write(|db| db.execute_batch(BEFORE)).await.unwrap();
    old.close().await;
    finds_its_shards(Sqlite::open(&file, &sqlite_steps()).unwrap().into()).await;
}

#[tokio::test]
async fn open_jobs_of_before_find_their_shards_and_generations_go_on_in_postgres() {
    let Some(engine) = Engine::postgres().await else { return };
    let old = engine.database_with(&mutirao_jobs::POSTGRES_MIGRATIONS[..1]).await;
    old.connection().await.unwrap().batch_execute(BEFORE).await.unwrap();
    old.close().await;
    finds_its_shards(engine.database().await).await;
    engine.remove().await;
}

async fn finds_its_shards(database: Database) {
    let store = mutirao_jobs::store::open(&database);
    store.place().await.unwrap();
    let mut found = Vec::new();
    for shard in (0..JOBS_SHARDS).map(ShardId) {
        found.extend(store.open_keys(shard).await.unwrap().into_iter().map(|job| (shard, job.0)));
    }
    let mut expected = vec![(shard_of(&QueueName::default()), 1), (shard_of(&"gpu".parse::<QueueName>().unwrap()), 2)];
    expected.sort();
    assert_eq!(found, expected);
    let names: Vec<String> = store.queues(0).await.unwrap().iter().map(|row| row.spec.name.to_string()).collect();
    assert_eq!(names, ["default", "gpu"], "queues in use go on");
    let rows = leases::open(&database, None).await.unwrap().leases(GROUP).await.unwrap();
    assert_eq!(rows.len(), JOBS_SHARDS as usize);
    assert!(rows.iter().all(|row| row.owner.is_none() && row.mark.generation == 7), "{rows:?}");
}

/// As the worker of the version before: its beats go to shard 0, whatever its queue.
#[tokio::test]
async fn a_worker_that_knows_only_one_shard_is_heard_all_the_same() {
    let house = house().await;
    assert_ne!(shard_of(&QueueName::default()), ShardId(0), "or this proves nothing");
    let voice = Voice { results: "results.jobs.0".into(), ..Voice::of(&QueueName::default(), &house.broker) };
    let mut worker = Played::speaking(voice).await;
    let job = house.submit(noop(Spread::Array { first: 1, last: 60 })).await;
    let mut done = 0;
    while done < 60 {
        let parcels = worker.take().await;
        done += handed(&parcels).len();
        // Longer than its beats take to get round.
        SystemClock.sleep(Duration::from_millis(50)).await;
        worker.finish_all(&parcels, mutirao_core::outcome::Verdict::Ok).await;
    }
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.counts.ok, view.counts.total()), (60, 60));
    let (workers, silent) = house.jobs.workers().await;
    assert_eq!((workers.len(), silent), (1, vec![]));
}
