//! One behaviour, each engine. The crate under test says what an engine is: where the macro is used there is an `Engine`
//! with `sqlite()`, `postgres()`, which is none where the run has no server, and `remove()`.

/// Makes of each behaviour a module with a test for each engine.
#[macro_export]
macro_rules! on_both {
    ($($behaviour:ident),+ $(,)?) => { $(
        mod $behaviour {
            use super::Engine;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$behaviour(&Engine::sqlite()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                let Some(engine) = Engine::postgres().await else { return };
                super::$behaviour(&engine).await;
                engine.remove().await;
            }
        }
    )+ };
}

/// What an engine is for a capability that is cut into shards: `engine!(mutirao_kv)` is an `Engine` on whose database that
/// crate's tables are, and those of leases. Whoever uses it has `mutirao_shards`, `mutirao_store` (with its suite) and
/// `tempfile` at hand.
#[macro_export]
macro_rules! engine {
    ($capability:ident) => {
        enum Place {
            Folder(tempfile::TempDir),
            Schema(mutirao_store::suite::schema::Schema),
        }

        pub struct Engine(Place);

        impl Engine {
            pub fn sqlite() -> Self {
                Self(Place::Folder(tempfile::tempdir().unwrap()))
            }

            /// None, with a notice, when the run has no PostgreSQL.
            pub async fn postgres() -> Option<Self> {
                let server = $crate::services::shared($crate::services::POSTGRES_VARIABLE)?;
                Some(Self(Place::Schema(mutirao_store::suite::schema::Schema::in_database(&server).await)))
            }

            pub async fn database(&self) -> mutirao_store::Database {
                match &self.0 {
                    Place::Folder(folder) => {
                        let steps = [mutirao_shards::store::sqlite::MIGRATIONS, $capability::MIGRATIONS].concat();
                        mutirao_store::Sqlite::open(&folder.path().join("store.db"), &steps).unwrap().into()
                    }
                    Place::Schema(schema) => {
                        let leases = mutirao_shards::store::postgres::MIGRATIONS;
                        let steps = [leases, $capability::POSTGRES_MIGRATIONS].concat();
                        mutirao_store::Postgres::open(&schema.url(), &steps).await.unwrap().into()
                    }
                }
            }

            /// With the first shard claimed, for the fence.
            pub async fn claimed(&self) -> (mutirao_store::Database, mutirao_shards::Fence) {
                use mutirao_shards::store::{self as leases, Mark};
                let database = self.database().await;
                let shard = mutirao_core::ShardId(0);
                let fence = mutirao_shards::Fence { group: $capability::GROUP, shard, generation: 1 };
                let shards = leases::open(&database, None).await.unwrap();
                let (member, lease) = (mutirao_shards::MemberId("test".into()), std::time::Duration::from_secs(10));
                shards.claim(fence.group, shard, Mark::default(), &member, lease).await.unwrap();
                (database, fence)
            }

            pub async fn remove(self) {
                if let Place::Schema(schema) = self.0 {
                    schema.remove().await;
                }
            }
        }
    };
}
