//! The suite on each engine.

use mutirao_fleet::store::open;
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Database, Migration, Postgres, Sqlite};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};

use crate::suite;

pub fn sqlite_steps() -> Vec<Migration> {
    [mutirao_shards::store::sqlite::MIGRATIONS, mutirao_fleet::MIGRATIONS].concat()
}

fn postgres_steps() -> Vec<Migration> {
    [mutirao_shards::store::postgres::MIGRATIONS, mutirao_fleet::POSTGRES_MIGRATIONS].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_the_fleet() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::from(Sqlite::open(&folder.path().join("store.db"), &sqlite_steps()).unwrap());
    let leases = mutirao_shards::store::open(&db, None).await.unwrap();
    suite::run(&*open(&db), &leases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_fleet() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let db = Database::from(Postgres::open(&schema.url(), &postgres_steps()).await.unwrap());
    let leases = mutirao_shards::store::open(&db, None).await.unwrap();
    suite::run(&*open(&db), &leases).await;
    schema.remove().await;
}
