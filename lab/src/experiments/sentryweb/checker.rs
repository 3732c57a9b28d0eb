//! A checker in this process, offered checks at a steady rate by a thread of its own, which also hears how they ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use mutirao_broker::{Limits, Memory, Shared as Broker};
use mutirao_core::check::{CheckKind, Kinds, checks_of};
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::{Clock, ShardId, SystemClock, Timestamp};
use mutirao_elastic::packing::Layer;
use mutirao_monitors::checker::{self, Bounds, CheckerParts};
use mutirao_monitors::envelope::{Ask, CHECKS_MAX, Checks, Outcomes, outcomes_of};
use mutirao_monitors::grid::MonitorKey;
use mutirao_monitors::health::Verdict;
use mutirao_monitors::placement::Standing;
use mutirao_probes::check::Http;
use mutirao_probes::{Check, Probes, Reach, Strangers};
use mutirao_tls::Believe;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::endpoint::{Target, VARIED};
use super::percentile;
use crate::proc;

const FEEDER: &str = "feeder";
/// How often the feeder hands checks over.
const BREATH: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(5);
/// Until as many end as begin.
const SETTLING: Duration = Duration::from_secs(4);

#[derive(Args, Clone)]
pub struct Options {
    #[arg(long)]
    pub offered: u64,
    #[arg(long)]
    pub seconds: u64,
    #[arg(long, value_enum)]
    pub target: Target,
    #[arg(long)]
    pub port: u16,
    #[arg(long)]
    pub host_max: usize,
}

#[derive(Serialize, Deserialize)]
pub struct Found {
    pub checks_per_s: f64,
    pub millicores: f64,
    pub memory_mib: f64,
    pub bad: u64,
    pub missed: u64,
    /// From the instant of a check until its outcome was told, in milliseconds.
    pub told_p50_ms: u64,
    pub told_p99_ms: u64,
}

#[derive(Default)]
struct Heard {
    good: AtomicU64,
    bad: AtomicU64,
    missed: AtomicU64,
    ms: Mutex<Vec<u64>>,
}

pub fn run(options: Options) -> anyhow::Result<Found> {
    let build = |name: &str, threads| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()
    };
    let (work, feed) = (build("checker", 2)?, build(FEEDER, 1)?);
    let clock = SystemClock::shared();
    let broker: Broker = Memory::new(None, Limits::default());
    let parts = CheckerParts {
        broker: broker.clone(),
        probes: Probes::new(Reach::new(&Believe { ca: None, pin: None }, Strangers::Refused)?, clock.clone()),
        clock: clock.clone(),
        kinds: Kinds::try_from(std::collections::BTreeSet::from([CheckKind::Http])).map_err(anyhow::Error::msg)?,
        standing: Standing { layer: Layer::Cloud, labels: Default::default() },
        worker: None,
        bounds: Bounds { host_max: options.host_max, ..Bounds::default() },
        gauge: None,
    };
    let stop = CancellationToken::new();
    work.spawn(checker::run(parts, stop.clone()));
    let heard = Arc::new(Heard::default());
    feed.spawn(offer(broker.clone(), clock.clone(), options.clone()));
    feed.spawn(hear(broker, clock.clone(), heard.clone()));
    let found = feed.block_on(async {
        clock.sleep(SETTLING).await;
        heard.ms.lock().clear();
        let (before, from) = ((spent(), heard.counts()), clock.monotonic());
        clock.sleep(Duration::from_secs(options.seconds)).await;
        let (after, took) = ((spent(), heard.counts()), clock.monotonic().since(from).as_secs_f64());
        let mut ms = std::mem::take(&mut *heard.ms.lock());
        ms.sort_unstable();
        let [good, bad, missed] = [0, 1, 2].map(|n| after.1[n] - before.1[n]);
        Found {
            checks_per_s: good as f64 / took,
            millicores: (after.0 - before.0).as_secs_f64() / took * 1_000.0,
            memory_mib: proc::memory(std::process::id()).0 as f64 / f64::from(1 << 20),
            bad,
            missed,
            told_p50_ms: percentile(&ms, 0.5),
            told_p99_ms: percentile(&ms, 0.99),
        }
    });
    stop.cancel();
    work.shutdown_background();
    feed.shutdown_background();
    Ok(found)
}

impl Heard {
    fn counts(&self) -> [u64; 3] {
        [&self.good, &self.bad, &self.missed].map(|count| count.load(Ordering::Relaxed))
    }
}

fn spent() -> Duration {
    let others = [FEEDER, "lab"];
    proc::cpu_by_thread().into_iter().filter(|(name, _)| !others.contains(&name.as_str())).map(|(_, cpu)| cpu).sum()
}

async fn offer(broker: Broker, clock: Arc<dyn Clock>, options: Options) -> anyhow::Result<()> {
    let check = |n: u64| Arc::new(Check::Http(Http::new(&options.target.url(options.port, n))));
    let checks: Vec<_> = (0..u64::from(VARIED)).map(check).collect();
    let when = Arc::new(Vec::new());
    let (begin, mut sent) = (clock.monotonic(), 0_u64);
    loop {
        let due = (clock.monotonic().since(begin).as_secs_f64() * options.offered as f64) as u64;
        let at = clock.now();
        let ask = |n: u64| Ask {
            monitor: MonitorKey(n),
            at,
            until: Timestamp(at.0 + TIMEOUT.as_millis() as i64),
            timeout_ms: TIMEOUT.as_millis() as u64,
            retries: 0,
            check: checks[(n % u64::from(VARIED)) as usize].clone(),
            when: when.clone(),
        };
        let asks: Vec<Ask> = (sent..due).map(ask).collect();
        let parcel = |asks: &[Ask]| seal(&Checks { v: Version::default(), shard: 0, checks: asks.to_vec() });
        let bodies: Vec<_> = asks.chunks(CHECKS_MAX).map(parcel).collect();
        if !bodies.is_empty() {
            broker.publish(&checks_of(CheckKind::Http), bodies).await?;
        }
        sent = due;
        clock.sleep(BREATH).await;
    }
}

async fn hear(broker: Broker, clock: Arc<dyn Clock>, heard: Arc<Heard>) -> anyhow::Result<()> {
    let mut consumer = broker.consume(&outcomes_of(ShardId(0)), 64).await?;
    loop {
        for delivery in consumer.next().await? {
            let Outcomes { outcomes, missed, .. } = open(&delivery.body)?;
            let now = clock.now();
            let good = outcomes.iter().filter(|told| told.verdict == Verdict::Good).count() as u64;
            heard.good.fetch_add(good, Ordering::Relaxed);
            heard.bad.fetch_add(outcomes.len() as u64 - good, Ordering::Relaxed);
            heard.missed.fetch_add(u64::from(missed), Ordering::Relaxed);
            heard.ms.lock().extend(outcomes.iter().map(|told| now.0.saturating_sub(told.at.0).max(0) as u64));
            consumer.ack_through(delivery.tag).await?;
        }
    }
}
