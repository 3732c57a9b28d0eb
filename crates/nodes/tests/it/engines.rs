//! The suite on each engine.

use mutirao_nodes::store::open;
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Database, Postgres, Sqlite};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};

use crate::store;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::from(Sqlite::open(&folder.path().join("store.db"), mutirao_nodes::MIGRATIONS).unwrap());
    store::run(&*open(&db)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_nodes() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let db = Database::from(Postgres::open(&schema.url(), mutirao_nodes::POSTGRES_MIGRATIONS).await.unwrap());
    store::run(&*open(&db)).await;
    schema.remove().await;
}
