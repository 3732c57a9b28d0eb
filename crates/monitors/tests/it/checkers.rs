//! Checkers apart from owners: what they take, what they leave, and what they tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::memory::{Limits, Memory};
use mutirao_broker::{Broker, Consumer};
use mutirao_core::check::{CheckKind, checks_of};
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::{Clock, ShardId, SystemClock, Timestamp, WorkerId};
use mutirao_elastic::packing::Layer;
use mutirao_monitors::checker::{self, Bounds, CheckerParts};
use mutirao_monitors::envelope::{Ask, Checks, Outcomes, outcomes_of};
use mutirao_monitors::health::Verdict;
use mutirao_monitors::placement::Standing;
use mutirao_monitors::service::Based;
use mutirao_monitors::{MonitorKey, State};
use mutirao_probes::{Probes, Reach, Strangers};
use mutirao_tls::Believe;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::running::{ana, anywhere, service, spec, start, start_with, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// Ends with the test.
struct Running(CancellationToken);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn checker(broker: &Arc<Memory>, standing: Standing, bounds: Bounds) -> Running {
    mutirao_tls::install();
    let clock = SystemClock::shared();
    let parts = CheckerParts {
        broker: broker.clone(),
        probes: Probes::new(Reach::new(&Believe::default(), Strangers::Refused).unwrap(), clock.clone()),
        clock,
        kinds: "http,tcp".parse().unwrap(),
        standing,
        worker: Some(WorkerId("c1".into())),
        gauge: None,
        bounds,
    };
    let stop = CancellationToken::new();
    tokio::spawn(checker::run(parts, stop.clone()));
    Running(stop)
}

fn in_zone(zone: &str) -> Standing {
    Standing { layer: Layer::Edge, labels: BTreeMap::from([("zone".into(), zone.into())]) }
}

fn ask(monitor: u64, address: &str, timeout_ms: u64, until: Timestamp) -> Ask {
    Ask {
        monitor: MonitorKey(monitor),
        at: Timestamp(1_000),
        until,
        timeout_ms,
        retries: 0,
        check: Arc::new(serde_json::from_str(&format!(r#"{{"http": {{"url": "http://{address}/"}}}}"#)).unwrap()),
        when: Arc::default(),
    }
}

fn soon() -> Timestamp {
    SystemClock.now().plus(PATIENCE)
}

async fn hand_out(broker: &Memory, shard: u32, checks: Vec<Ask>) {
    let body = seal(&Checks { v: Version::default(), shard, checks });
    broker.publish(&checks_of(CheckKind::Http), vec![body]).await.unwrap();
}

async fn heard(consumer: &mut Box<dyn Consumer>) -> Vec<Outcomes> {
    let deliveries = SystemClock.timeout(PATIENCE, consumer.next()).await.expect("in time").unwrap();
    consumer.ack_through(deliveries.last().unwrap().tag).await.unwrap();
    deliveries.iter().map(|delivery| open(&delivery.body).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_are_made_by_a_checker_of_its_own() {
    let (engine, service) = (Engine::sqlite(), service().await);
    let (database, broker) = (engine.database().await, Memory::new(None, Limits::default()));
    let monitors = start_with(&database, broker.clone(), "one", None).await;
    monitors.put(&ana(), spec("shop", service.address, ""), Based::OnNothing).await.unwrap();
    let view = monitors.monitor(&ana(), "shop").await.unwrap();
    assert_eq!(view.note.as_deref(), Some("no checker for http"));
    let _checker = checker(&broker, anywhere(), Bounds::default());
    until("it to be up", async || monitors.monitor(&ana(), "shop").await.unwrap().state == State::Up).await;
    assert_eq!(monitors.monitor(&ana(), "shop").await.unwrap().note, None);
    monitors.stop().await;
    database.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_checker_that_stands_there_makes_the_checks_of_a_place() {
    let (engine, placed, free) = (Engine::sqlite(), service().await, service().await);
    let (database, broker) = (engine.database().await, Memory::new(None, Limits::default()));
    let monitors = start(&database, broker.clone(), "one").await;
    let on = r#", "on": {"layer": "edge", "labels": {"zone": "a"}}"#;
    monitors.put(&ana(), spec("placed", placed.address, on), Based::OnNothing).await.unwrap();
    monitors.put(&ana(), spec("free", free.address, ""), Based::OnNothing).await.unwrap();
    let _elsewhere = checker(&broker, in_zone("b"), Bounds::default());
    let state = async |name: &str| monitors.monitor(&ana(), name).await.unwrap().state;
    until("the free one to be up", async || state("free").await == State::Up).await;
    let view = monitors.monitor(&ana(), "placed").await.unwrap();
    assert_eq!(view.note.as_deref(), Some("no checker for http with layer edge, zone=a"));
    assert_eq!(placed.asked.load(Ordering::Relaxed), 0, "somebody went there who does not stand there");
    let _there = checker(&broker, in_zone("a"), Bounds::default());
    until("the placed one to be up", async || state("placed").await == State::Up).await;
    monitors.stop().await;
    database.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_past_its_deadline_is_not_made_and_is_told_as_missed() {
    let (service, broker) = (service().await, Memory::new(None, Limits::default()));
    let address = service.address.to_string();
    let late = ask(1, &address, 900, Timestamp(SystemClock.now().0 - 1));
    hand_out(&broker, 3, vec![late, ask(2, &address, 5_000, soon())]).await;
    let _checker = checker(&broker, anywhere(), Bounds::default());
    let mut told = broker.consume(&outcomes_of(ShardId(3)), 10).await.unwrap();
    let (mut outcomes, mut missed) = (Vec::new(), 0);
    while outcomes.is_empty() || missed == 0 {
        for parcel in heard(&mut told).await {
            assert_eq!(parcel.worker, Some(WorkerId("c1".into())));
            missed += parcel.missed;
            outcomes.extend(parcel.outcomes);
        }
    }
    assert_eq!((missed, outcomes.len(), service.asked.load(Ordering::Relaxed)), (1, 1, 1));
    assert_eq!((outcomes[0].monitor, outcomes[0].verdict), (MonitorKey(2), Verdict::Good));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_cannot_be_told_holds_up_no_other() {
    let service = service().await;
    let broker = Memory::new(None, Limits { queue_messages_max: 4, ..Limits::default() });
    let stuck = outcomes_of(ShardId(0));
    broker.publish(&stuck, vec![Bytes::from_static(b"{}"); 4]).await.unwrap();
    let _checker = checker(&broker, anywhere(), Bounds::default());
    let mut told = broker.consume(&outcomes_of(ShardId(1)), 10).await.unwrap();
    let address = service.address.to_string();
    for n in 0..3 {
        hand_out(&broker, 0, vec![ask(n, &address, 5_000, soon())]).await;
        hand_out(&broker, 1, vec![ask(100 + n, &address, 5_000, soon())]).await;
        let parcels = heard(&mut told).await;
        assert_eq!(parcels[0].outcomes[0].monitor, MonitorKey(100 + n));
    }
}

/// Takes connections, and says nothing on any of them. Counts those that are open.
async fn silent(ip: &str) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind((ip, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let most = Arc::new(AtomicU64::new(0));
    let count = most.clone();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
            count.store(open.len() as u64, Ordering::Relaxed);
        }
    });
    (address, most)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_never_answers_holds_up_nobody_else_and_is_asked_by_a_few_at_once() {
    let (service, (mute, open)) = (service().await, silent("127.0.0.2").await);
    let broker = Memory::new(None, Limits::default());
    let _checker = checker(&broker, anywhere(), Bounds { under_way_max: 100, host_max: 3 });
    let mut told = broker.consume(&outcomes_of(ShardId(1)), 10).await.unwrap();
    let forever = PATIENCE.as_millis() as u64 * 2;
    hand_out(&broker, 0, (0..200).map(|n| ask(n, &mute, forever, soon())).collect()).await;
    let address = service.address.to_string();
    hand_out(&broker, 1, (0..50).map(|n| ask(1_000 + n, &address, 30_000, soon())).collect()).await;
    let mut good = 0;
    while good < 50 {
        for parcel in heard(&mut told).await {
            good += parcel.outcomes.iter().filter(|told| told.verdict == Verdict::Good).count();
        }
    }
    assert!((1..=3).contains(&open.load(Ordering::Relaxed)), "{open:?} at once");
}
