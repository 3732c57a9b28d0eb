//! How many ends of tasks a second the store settles, in batches of a thousand, durably: SQLite in a temporary folder,
//! and the PostgreSQL that `MUTIRAO_TEST_POSTGRES` names.
//!
//! `cargo run --release -p mutirao-jobs --example settle_rate`

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::id::{Attempt, JobKey, QueueName, TaskKey, WorkerId};
use mutirao_core::life::Final;
use mutirao_core::outcome::{Outcome, Output, Verdict};
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{Clock, ShardId, SystemClock, Timestamp};
use mutirao_jobs::desk::Ended;
use mutirao_jobs::entries::Kind;
use mutirao_jobs::store::{Created, NewJob, Settlement, Shared, open};
use mutirao_jobs::{GROUP, MIGRATIONS, POSTGRES_MIGRATIONS};
use mutirao_shards::store::{self as leases, Mark};
use mutirao_shards::{Fence, MemberId};
use mutirao_store::suite::schema::Schema;
use mutirao_store::{Database, Postgres, Sqlite, StoreError};

const BATCH: u32 = 1_000;
const BATCHES: u32 = 100;
/// The generation of a lease that was claimed once.
const FENCE: Fence = Fence { group: GROUP, shard: ShardId(0), generation: 1 };

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let sqlite = Sqlite::open(&folder.path().join("store.db"), &[leases::sqlite::MIGRATIONS, MIGRATIONS].concat())?;
    println!("{:<12} {:>8} {:>14} {:>14}", "engine", "batch", "no output/s", "with output/s");
    measure("sqlite", sqlite.into()).await?;
    match std::env::var("MUTIRAO_TEST_POSTGRES") {
        Ok(server) => {
            let schema = Schema::in_database(&server).await;
            let steps = [leases::postgres::MIGRATIONS, POSTGRES_MIGRATIONS].concat();
            measure("postgresql", Postgres::open(&schema.url(), &steps).await?.into()).await?;
            schema.remove().await;
        }
        Err(_) => println!("postgresql: MUTIRAO_TEST_POSTGRES names none"),
    }
    Ok(())
}

async fn measure(engine: &str, database: Database) -> Result<(), StoreError> {
    let Fence { group, shard, .. } = FENCE;
    let me = MemberId("lab".into());
    leases::open(&database, None).await?.claim(group, shard, Mark::default(), &me, Duration::from_secs(3_600)).await?;
    let store = &open(&database);
    rate(store, &[]).await?;
    let (plain, with_output) =
        (rate(store, &[]).await?, rate(store, b"a line of output, as most tasks write\n").await?);
    println!("{engine:<12} {BATCH:>8} {plain:>14.0} {with_output:>14.0}");
    Ok(())
}

/// Ends a second, one settlement after the other.
async fn rate(store: &Shared, stdout: &[u8]) -> Result<f64, StoreError> {
    let job = create(store).await?;
    let began = SystemClock.monotonic();
    for batch in 0..BATCHES {
        let ended = (1..=BATCH).map(|n| ended(job, batch * BATCH + n, stdout)).collect();
        store.settle(Arc::new(Settlement { ended, at: Timestamp(10), ..Settlement::default() }), FENCE).await?;
    }
    let took = SystemClock.monotonic().since(began);
    let counted = store.job(job).await?.map(|(view, _)| view.counts.ok);
    assert_eq!(counted, Some(u64::from(BATCH * BATCHES)));
    Ok(f64::from(BATCH * BATCHES) / took.as_secs_f64())
}

async fn create(store: &Shared) -> Result<JobKey, StoreError> {
    let job = NewJob {
        namespace: "default".into(),
        owner: "lab".into(),
        name: None,
        queue: QueueName::default(),
        labels: "{}".into(),
        priority: 0,
        spec: serde_json::to_string(&TaskSpec::new(Action::Noop {})).unwrap_or_default(),
        kind: Kind::Index,
        first: 1,
        total: BATCH * BATCHES,
        segments: Vec::new(),
        trace: "0".repeat(32),
        created_at: Timestamp(1),
        idempotency: None,
        unique: None,
        waits: Vec::new(),
    };
    match store.create(job).await? {
        Created::New(key) | Created::Before(key) | Created::Clash(key) => Ok(key),
        other => unreachable!("a plain job in the queue default is made: {other:?}"),
    }
}

fn ended(job: JobKey, index: u32, stdout: &[u8]) -> Ended {
    let mut outcome = Outcome::new(Verdict::Ok, Timestamp(5));
    outcome.exit = Some(0);
    outcome.stdout = Output { tail: stdout.to_vec(), bytes: stdout.len() as u64, ..Output::default() };
    Ended {
        task: TaskKey { job, index },
        how: Final::Ok,
        attempt: Some(Attempt { generation: 1, n: 1 }),
        failures: 0,
        losses: 0,
        worker: Some(WorkerId("w0123456789ab".into())),
        outcome: Some(outcome),
        at: Timestamp(9),
    }
}
