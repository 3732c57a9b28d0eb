//! The engines a behaviour is tried on, each with a place of its own.

use std::time::Duration;

use mutirao_core::ShardId;
use mutirao_flows::{GROUP, MIGRATIONS, POSTGRES_MIGRATIONS};
use mutirao_shards::store::{self as leases, Mark};
use mutirao_shards::{Fence, MemberId};
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Database, Postgres, Sqlite};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};

enum Place {
    Folder(tempfile::TempDir),
    Schema(Schema),
}

pub struct Engine(Place);

impl Engine {
    pub fn sqlite() -> Self {
        Self(Place::Folder(tempfile::tempdir().unwrap()))
    }

    /// None, with a notice, when the run has no PostgreSQL.
    pub async fn postgres() -> Option<Self> {
        let server = shared(POSTGRES_VARIABLE)?;
        Some(Self(Place::Schema(Schema::in_database(&server).await)))
    }

    pub async fn database(&self) -> Database {
        match &self.0 {
            Place::Folder(folder) => {
                let steps = [leases::sqlite::MIGRATIONS, MIGRATIONS].concat();
                Sqlite::open(&folder.path().join("store.db"), &steps).unwrap().into()
            }
            Place::Schema(schema) => {
                let steps = [leases::postgres::MIGRATIONS, POSTGRES_MIGRATIONS].concat();
                Postgres::open(&schema.url(), &steps).await.unwrap().into()
            }
        }
    }

    /// With the first shard claimed, for the fence.
    pub async fn claimed(&self) -> (Database, Fence) {
        let database = self.database().await;
        let fence = Fence { group: GROUP, shard: ShardId(0), generation: 1 };
        let shards = leases::open(&database, None).await.unwrap();
        let lease = Duration::from_secs(10);
        shards.claim(GROUP, fence.shard, Mark::default(), &MemberId("test".into()), lease).await.unwrap();
        (database, fence)
    }

    pub async fn remove(self) {
        if let Place::Schema(schema) = self.0 {
            schema.remove().await;
        }
    }
}

pub(crate) use mutirao_testkit::on_both;
