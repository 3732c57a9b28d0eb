//! Shards on every store, with real time and with a manual clock, in one process and in several.

mod engines;
mod fence;
mod office;
mod outage;
mod processes;
mod suite;

use mutirao_shards::store::{postgres, sqlite};
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Postgres, Sqlite};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};

fn sqlite_in(folder: &std::path::Path) -> Sqlite {
    Sqlite::open(&folder.join("store.db"), sqlite::MIGRATIONS).unwrap()
}

/// A corner of the run's PostgreSQL, if it has one.
async fn postgres() -> Option<(Schema, Postgres)> {
    let server = shared(POSTGRES_VARIABLE)?;
    let schema = Schema::in_database(&server).await;
    let db = Postgres::open(&schema.url(), postgres::MIGRATIONS).await.unwrap();
    Some((schema, db))
}
