//! A scheduler in this process, with a taker beside it on a thread of its own who looks how late each check came. The taker
//! makes no checks: it throws them away, or tells at once that all was well, so that outcomes are settled and kept as well.
//!
//! What the scheduler costs is what its threads cost, told apart from the taker's by their names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use mutirao_broker::rabbit::{Config, Rabbit};
use mutirao_broker::{Limits, Memory, Shared as Broker};
use mutirao_core::check::{CheckKind, checks_of};
use mutirao_core::envelope::{open, seal};
use mutirao_core::shard::{MemberId, shard_of};
use mutirao_core::{Clock, Dice, ShardId, SystemClock};
use mutirao_monitors::envelope::{Checks, Outcomes, Told, outcomes_of};
use mutirao_monitors::health::Verdict;
use mutirao_monitors::service::Programs;
use mutirao_monitors::store::{self, By, Expected, Newcomer};
use mutirao_monitors::{MonitorSpec, Monitors, MonitorsParts, SHARDS};
use mutirao_probes::{Probes, Reach, Strangers};
use mutirao_shards::{Terms, store as leases};
use mutirao_store::{Database, FolderLock, Postgres, Sqlite};
use mutirao_tls::Believe;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::percentile;
use crate::proc;

const TAKER: &str = "taker";
const CREDIT: u32 = 64;
/// Definitions being written at once.
const WRITING: usize = 512;

#[derive(Args, Clone)]
pub struct Options {
    #[arg(long)]
    pub monitors: u32,
    #[arg(long)]
    pub seconds: u64,
    #[arg(long, value_enum)]
    pub outcomes: Kept,
    /// RabbitMQ; one inside the process without it.
    #[arg(long)]
    pub amqp: Option<String>,
    /// PostgreSQL; SQLite without it.
    #[arg(long)]
    pub postgres: Option<String>,
}

/// What becomes of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kept {
    /// Thrown away, as a scheduler that only schedules sees it.
    No,
    /// Told, settled and written.
    Yes,
}

#[derive(Serialize, Deserialize)]
pub struct Found {
    pub millicores: f64,
    pub memory_mib: f64,
    pub checks_per_s: f64,
    pub late_p50_ms: u64,
    pub late_p99_ms: u64,
    pub late_max_ms: u64,
    pub seeded_in_s: f64,
    /// Millicores by name of thread, those that matter.
    pub threads: Vec<(String, f64)>,
}

pub fn run(options: Options) -> anyhow::Result<Found> {
    let scheduler =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("scheduler").enable_all().build()?;
    let taker =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name(TAKER).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let clock = SystemClock::shared();
    let dice = Arc::new(Dice::from_os());
    let lock = FolderLock::take(folder.path())?;
    let connect = |url: String| Rabbit::connect(Config::new(&url, clock.clone(), dice.clone()));
    let (ours, theirs): (Broker, Broker) = match &options.amqp {
        None => {
            let both = Memory::new(None, Limits::default());
            (both.clone(), both)
        }
        Some(url) => (scheduler.block_on(connect(url.clone()))?, taker.block_on(connect(url.clone()))?),
    };
    let begin = clock.monotonic();
    let store = scheduler.block_on(database(&options, folder.path()))?;
    scheduler.block_on(seed(&store, options.monitors, |_| "http://127.0.0.1:9/".into(), clock.as_ref()))?;
    let seeded_in_s = clock.monotonic().since(begin).as_secs_f64();

    let late = Arc::new(Late::default());
    taker.spawn(take(theirs, clock.clone(), options.outcomes, late.clone()));
    let parts = async {
        anyhow::Ok(MonitorsParts {
            leases: leases::open(&store, options.postgres.is_none().then_some(&lock)).await?,
            store: store.clone(),
            terms: Terms::alone(),
            member: MemberId::mint("lab"),
            address: "here".into(),
            broker: ours,
            probes: Probes::new(Reach::new(&Believe { ca: None, pin: None }, Strangers::Refused)?, clock.clone()),
            clock: clock.clone(),
            dice,
            keep: Duration::from_secs(86_400),
            programs: Programs::Refused,
            inside: None,
        })
    };
    let monitors = scheduler.block_on(async { anyhow::Ok(Monitors::start(parts.await?).await?) })?;
    let found = scheduler.block_on(async {
        // Until all shards are owned, their monitors recalled, and what was due meanwhile is out.
        clock.sleep(settling(options.monitors)).await;
        late.counts.store(true, Ordering::Relaxed);
        let (before, from) = (spent(), clock.monotonic());
        clock.sleep(Duration::from_secs(options.seconds)).await;
        let (after, took) = (spent(), clock.monotonic().since(from).as_secs_f64());
        let mut late = std::mem::take(&mut *late.ms.lock());
        late.sort_unstable();
        let millicores = |cpu: Duration| cpu.as_secs_f64() / took * 1_000.0;
        let was = |thread: &str| before.iter().find(|(name, _)| name == thread).map_or(Duration::ZERO, |(_, cpu)| *cpu);
        let threads: Vec<(String, f64)> =
            after.into_iter().map(|(name, cpu)| (name.clone(), millicores(cpu.saturating_sub(was(&name))))).collect();
        Found {
            millicores: threads.iter().map(|(_, millicores)| millicores).sum(),
            memory_mib: proc::memory(std::process::id()).0 as f64 / f64::from(1 << 20),
            checks_per_s: late.len() as f64 / took,
            late_p50_ms: percentile(&late, 0.5),
            late_p99_ms: percentile(&late, 0.99),
            late_max_ms: late.last().copied().unwrap_or(0),
            seeded_in_s,
            threads,
        }
    });
    scheduler.block_on(monitors.stop());
    taker.shutdown_background();
    Ok(found)
}

/// A million monitors are read from the store before the first fires.
fn settling(monitors: u32) -> Duration {
    Duration::from_secs(5 + u64::from(monitors) / 50_000)
}

fn spent() -> Vec<(String, Duration)> {
    proc::cpu_by_thread().into_iter().filter(|(name, _)| name != TAKER).collect()
}

async fn database(options: &Options, folder: &std::path::Path) -> anyhow::Result<Database> {
    Ok(match &options.postgres {
        None => {
            let steps = [leases::sqlite::MIGRATIONS, mutirao_monitors::MIGRATIONS].concat();
            Sqlite::open(&folder.join("store.db"), &steps)?.into()
        }
        Some(url) => {
            let steps = [leases::postgres::MIGRATIONS, mutirao_monitors::POSTGRES_MIGRATIONS].concat();
            Postgres::open(url, &steps).await?.into()
        }
    })
}

/// Writes so many monitors, each every minute, the n-th of the URL for n.
pub async fn seed(
    database: &Database,
    monitors: u32,
    url: impl Fn(u32) -> String,
    clock: &dyn Clock,
) -> anyhow::Result<()> {
    let store = store::open(database);
    let by = By { namespace: "default".into(), who: "lab".into(), at: clock.now() };
    let mut writing = tokio::task::JoinSet::new();
    for n in 0..monitors {
        let uuid = format!("{n:032x}");
        let shard = shard_of(&uuid, SHARDS);
        let written = serde_json::json!({ "name": format!("m{n}"), "every": "60s", "http": { "url": url(n) } });
        let spec: MonitorSpec = serde_json::from_value(written)?;
        let (store, by) = (store.clone(), by.clone());
        writing.spawn(async move { store.put(Newcomer { uuid, shard, spec }, Expected::Absent, by).await.map(drop) });
        if writing.len() >= WRITING
            && let Some(written) = writing.join_next().await
        {
            written??;
        }
    }
    while let Some(written) = writing.join_next().await {
        written??;
    }
    Ok(())
}

/// How late checks came, in milliseconds, once they count.
#[derive(Default)]
struct Late {
    counts: AtomicBool,
    ms: Mutex<Vec<u64>>,
}

async fn take(broker: Broker, clock: Arc<dyn Clock>, kept: Kept, late: Arc<Late>) -> anyhow::Result<()> {
    let mut consumer = broker.consume(&checks_of(CheckKind::Http), CREDIT).await?;
    loop {
        for delivery in consumer.next().await? {
            let Checks { shard, checks, .. } = open(&delivery.body)?;
            let now = clock.now();
            if late.counts.load(Ordering::Relaxed) {
                let ms = checks.iter().map(|ask| now.0.saturating_sub(ask.at.0).max(0) as u64);
                late.ms.lock().extend(ms);
            }
            consumer.ack_through(delivery.tag).await?;
            if kept == Kept::Yes {
                let told = |ask: &mutirao_monitors::envelope::Ask| Told {
                    monitor: ask.monitor,
                    at: ask.at,
                    verdict: Verdict::Good,
                    took_us: Some(1_000),
                    detail: None,
                    certificate_days: None,
                };
                let outcomes = checks.iter().map(told).collect();
                let body = seal(&Outcomes { outcomes, ..Outcomes::of(None) });
                broker.publish(&outcomes_of(ShardId(shard)), vec![body]).await?;
            }
        }
    }
}
