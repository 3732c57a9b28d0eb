//! The engines a behaviour is tried on, each with a place of its own.

use std::time::Duration;

use mutirao_core::ShardId;
use mutirao_jobs::store::{Shared, open};
use mutirao_jobs::{GROUP, MIGRATIONS, POSTGRES_MIGRATIONS};
use mutirao_shards::store::{self as leases, Mark};
use mutirao_shards::{Fence, MemberId};
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Database, Migration, Postgres, Sqlite};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};
use parking_lot::Mutex;

pub fn sqlite_steps() -> Vec<Migration> {
    [leases::sqlite::MIGRATIONS, MIGRATIONS].concat()
}

pub fn postgres_steps() -> Vec<Migration> {
    [leases::postgres::MIGRATIONS, POSTGRES_MIGRATIONS].concat()
}

/// What every settlement of the store's tests speaks for.
pub fn fence() -> Fence {
    Fence { group: GROUP, shard: ShardId(0), generation: 1 }
}

enum Place {
    Folder(tempfile::TempDir),
    Schema(Schema),
}

pub struct Engine {
    place: Place,
    opened: Mutex<Option<Database>>,
}

impl Engine {
    pub fn sqlite() -> Self {
        Self { place: Place::Folder(tempfile::tempdir().unwrap()), opened: Mutex::default() }
    }

    /// None, with a notice, when the run has no PostgreSQL.
    pub async fn postgres() -> Option<Self> {
        let server = shared(POSTGRES_VARIABLE)?;
        Some(Self { place: Place::Schema(Schema::in_database(&server).await), opened: Mutex::default() })
    }

    /// A PostgreSQL with only these steps taken.
    pub async fn database_with(&self, steps: &[Migration]) -> Postgres {
        match &self.place {
            Place::Folder(_) => panic!("not for SQLite"),
            Place::Schema(schema) => Postgres::open(&schema.url(), steps).await.unwrap(),
        }
    }

    pub async fn database(&self) -> Database {
        let database: Database = match &self.place {
            Place::Folder(folder) => Sqlite::open(&folder.path().join("store.db"), &sqlite_steps()).unwrap().into(),
            Place::Schema(schema) => Postgres::open(&schema.url(), &postgres_steps()).await.unwrap().into(),
        };
        *self.opened.lock() = Some(database.clone());
        database
    }

    /// With the shard of [`fence`] claimed, once.
    pub async fn open(&self) -> Shared {
        let database = self.database().await;
        let shards = leases::open(&database, None).await.unwrap();
        let fence = fence();
        let lease = Duration::from_secs(10);
        shards.claim(GROUP, fence.shard, Mark::default(), &MemberId("test".into()), lease).await.unwrap();
        open(&database)
    }

    /// What was opened last is closed, as by a manager that stops.
    pub async fn reopen(&self) -> Shared {
        let before = self.opened.lock().take();
        if let Some(database) = before {
            database.close().await;
        }
        self.open().await
    }

    /// Changes what is written, as no program of this version would.
    pub async fn tamper(&self, sql: &'static str) {
        tamper(&self.database().await, sql).await;
    }

    pub async fn remove(self) {
        if let Place::Schema(schema) = self.place {
            schema.remove().await;
        }
    }
}

pub async fn tamper(database: &Database, sql: &'static str) {
    match database {
        Database::Sqlite(sqlite) => sqlite.write(move |db| db.execute_batch(sql)).await.unwrap(),
        Database::Postgres(postgres) => postgres.connection().await.unwrap().batch_execute(sql).await.unwrap(),
    }
}

pub(crate) use mutirao_testkit::on_both;
