//! The suite on each store, and what only one of them has.

use std::sync::Arc;
use std::time::Duration;

use mutirao_shards::store::memory::MemoryShards;
use mutirao_shards::store::{self, Mark, SqliteShards};
use mutirao_shards::{MemberId, ShardId, ShardStore, Shared};
use mutirao_store::{Database, FolderLock};

use crate::{postgres, sqlite_in, suite};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_passes_the_suite() {
    suite::run(&(Arc::new(MemoryShards::default()) as Shared)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_passes_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::from(sqlite_in(folder.path()));
    suite::run(&store::open(&db, None).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_passes_the_suite() {
    let Some((schema, db)) = postgres().await else { return };
    suite::run(&store::open(&Database::from(db), None).await.unwrap()).await;
    schema.remove().await;
}

#[tokio::test]
async fn whoever_has_the_folder_to_itself_waits_for_no_predecessor_and_generations_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let db = sqlite_in(folder.path());
    let (dead, lease) = (MemberId::mint("dead"), Duration::from_secs(3_600));
    let before = SqliteShards::shared(db.clone());
    before.beat("g", &dead, "gone").await.unwrap();
    before.claim("g", ShardId(0), Mark::default(), &dead, lease).await.unwrap();

    let held = FolderLock::take(folder.path()).unwrap();
    let after = SqliteShards::alone(db, &held).await.unwrap();
    assert_eq!(after.members("g").await.unwrap(), []);
    let leases = after.leases("g").await.unwrap();
    assert_eq!((leases[0].owner.as_ref(), leases[0].mark.generation), (None, 1));
}
