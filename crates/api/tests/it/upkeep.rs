//! What is over is forgotten hour by hour, on SQLite and on PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_api::auth::registry::{By, Registry, Token, open};
use mutirao_api::auth::secret::Digest;
use mutirao_api::auth::upkeep::{Keep, ROWS_AT_ONCE, TIDY_EVERY, Upkeep, keep_tidy};
use mutirao_api::{MIGRATIONS, POSTGRES_MIGRATIONS};
use mutirao_core::auth::Role;
use mutirao_core::clock::ManualClock;
use mutirao_core::{Timestamp, WorkerId};
use mutirao_store::postgres::Ask;
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Postgres, Sqlite, StoreError};
use mutirao_testkit::services::{POSTGRES_VARIABLE, shared};
use mutirao_testkit::wait;
use parking_lot::Mutex;

const DAY: Duration = Duration::from_secs(86_400);
const KEEP: Keep = Keep { revoked: Duration::from_secs(10 * 86_400), audit: Duration::from_secs(30 * 86_400) };
/// The moment at which it begins.
const NOW: Timestamp = Timestamp(1_000 * 86_400_000);
/// Two full batches and some.
const OLD: u32 = 2 * ROWS_AT_ONCE + 7;
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_old_goes_hour_by_hour_in_bounded_batches_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("store.db"), MIGRATIONS).unwrap();
    let many = format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {OLD})
         INSERT INTO api_audit (at, who, what, target) SELECT {}, 'ana', 'old', n FROM n",
        ago(31).0
    );
    store.write(move |sql| sql.execute(&many, []).map(drop)).await.unwrap();
    let left = {
        let store = store.clone();
        async move || {
            let count = "SELECT count(*) FROM api_audit WHERE what = 'old'";
            store.read(move |sql| sql.query_row(count, [], |row| row.get(0))).await.unwrap()
        }
    };
    hour_by_hour(open(&store.into()), left).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_old_goes_hour_by_hour_in_bounded_batches_in_postgres() {
    let Some(server) = shared(POSTGRES_VARIABLE) else { return };
    let schema = Schema::in_database(&server).await;
    let store = Postgres::open(&schema.url(), POSTGRES_MIGRATIONS).await.unwrap();
    let many = format!(
        "INSERT INTO api_audit (at, who, what, target) SELECT {}, 'ana', 'old', n FROM generate_series(1, {OLD}) n",
        ago(31).0
    );
    store.connection().await.unwrap().run(&many, &[]).await.unwrap();
    let left = {
        let store = store.clone();
        async move || {
            let count = "SELECT count(*) FROM api_audit WHERE what = 'old'";
            store.connection().await.unwrap().rows(count, &[]).await.unwrap()[0].get(0)
        }
    };
    hour_by_hour(open(&store.into()), left).await;
    schema.remove().await;
}

fn ago(days: u32) -> Timestamp {
    Timestamp(NOW.0 - (DAY * days).as_millis() as i64)
}

/// The store, and what each call to forget took.
struct Counted {
    store: Arc<dyn Registry>,
    batches: Mutex<Vec<u64>>,
}

#[async_trait]
impl Upkeep for Counted {
    async fn first_use(&self, mark: [u8; 16], at: Timestamp, kept_from: Timestamp) -> Result<bool, StoreError> {
        self.store.first_use(mark, at, kept_from).await
    }

    async fn forget(&self, revoked: Timestamp, audit: Timestamp, rows: u32) -> Result<u64, StoreError> {
        let most = self.store.forget(revoked, audit, rows).await?;
        self.batches.lock().push(most);
        Ok(most)
    }

    async fn revoked_from(&self, from: Timestamp, rows: u32) -> Result<Vec<(Timestamp, WorkerId)>, StoreError> {
        self.store.revoked_from(from, rows).await
    }
}

fn token(id: &str) -> Token {
    Token {
        id: id.into(),
        name: id.into(),
        role: Role::Viewer,
        namespace: "default".into(),
        secret: Digest::of(id),
        created_at: ago(40),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

async fn hour_by_hour(store: Arc<dyn Registry>, left: impl AsyncFn() -> i64) {
    // Kept for ten days from when they were revoked; the last of these becomes too old with the second hour.
    let almost = Timestamp(ago(10).0 + TIDY_EVERY.as_millis() as i64 - 1);
    for (id, revoked_at) in [("good", None), ("old", Some(ago(11))), ("almost", Some(almost)), ("new", Some(ago(1)))] {
        store.add_token(token(id), By { who: "ana".into(), at: ago(1) }).await.unwrap();
        if let Some(at) = revoked_at {
            assert!(store.revoke_token(id, By { who: "ana".into(), at }).await.unwrap());
        }
    }
    let (clock, counted) = (ManualClock::starting_at(NOW), Counted { store: store.clone(), batches: Mutex::default() });
    let counted = Arc::new(counted);
    let keeping = tokio::spawn({
        let (counted, clock) = (counted.clone(), clock.clone());
        async move { keep_tidy(&*counted, &*clock, KEEP).await }
    });
    let full = u64::from(ROWS_AT_ONCE);
    let batches = |counted: &Counted| counted.batches.lock().clone();
    wait::eventually("what is old to go", SOON, async || batches(&counted).len() >= 3).await;
    assert_eq!(batches(&counted), [full, full, 7], "all of it, some at a time");
    assert_eq!(left().await, 0);
    let there =
        async || -> Vec<String> { store.tokens(0, 9).await.unwrap().into_iter().map(|(_, token)| token.id).collect() };
    assert_eq!(there().await, ["good", "almost", "new"]);

    // An hour later, and not before.
    clock.advance(TIDY_EVERY - Duration::from_secs(1));
    tokio::task::yield_now().await;
    assert_eq!(batches(&counted).len(), 3);
    clock.advance(Duration::from_secs(1));
    wait::eventually("the next round", SOON, async || batches(&counted).len() == 4).await;
    assert_eq!(there().await, ["good", "new"]);
    keeping.abort();
}
