//! The capability at work, on either engine: fired, checked, settled, believed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mutirao_broker::memory::{Limits, Memory};
use mutirao_core::auth::{DEFAULT_NAMESPACE, Principal, Role};
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_elastic::packing::Layer;
use mutirao_monitors::checker::Bounds;
use mutirao_monitors::health::Verdict;
use mutirao_monitors::placement::Standing;
use mutirao_monitors::service::{Based, Inside, Programs};
use mutirao_monitors::{MonitorSpec, Monitors, MonitorsParts, State};
use mutirao_probes::{Probes, Reach, Strangers};
use mutirao_shards::{MemberId, Terms, store as leases};
use mutirao_store::Database;
use mutirao_tls::Believe;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::engine::{Engine, on_both};

on_both!(
    a_service_is_seen_up_then_down_then_up_with_one_incident,
    a_monitor_is_changed_paused_and_removed_while_it_runs,
    a_successor_goes_on_and_no_instant_has_two_outcomes,
);

const PATIENCE: Duration = Duration::from_secs(60);

pub fn ana() -> Principal {
    Principal { id: "t1".into(), name: "ana".into(), role: Role::Operator, namespace: DEFAULT_NAMESPACE.into() }
}

/// A service that can be told to refuse, and counts who comes.
pub struct Service {
    pub address: std::net::SocketAddr,
    pub well: Arc<AtomicBool>,
    pub asked: Arc<AtomicU64>,
}

pub async fn service() -> Service {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (well, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (is_well, count) = (well.clone(), asked.clone());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let word = if is_well.load(Ordering::Relaxed) { "200 OK" } else { "503 Unavailable" };
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(format!("HTTP/1.1 {word}\r\ncontent-length: 2\r\n\r\nhi").as_bytes()).await;
            });
        }
    });
    Service { address, well, asked }
}

pub fn anywhere() -> Standing {
    Standing { layer: Layer::Cloud, labels: BTreeMap::new() }
}

pub async fn start(database: &Database, broker: Arc<Memory>, member: &str) -> Monitors {
    let inside = Inside { standing: anywhere(), bounds: Bounds::default() };
    start_with(database, broker, member, Some(inside)).await
}

pub async fn start_with(database: &Database, broker: Arc<Memory>, member: &str, inside: Option<Inside>) -> Monitors {
    mutirao_tls::install();
    let clock = SystemClock::shared();
    let probes = Probes::new(Reach::new(&Believe::default(), Strangers::Refused).unwrap(), clock.clone());
    let terms = Terms::default();
    Monitors::start(MonitorsParts {
        store: database.clone(),
        leases: leases::open(database, None).await.unwrap(),
        terms,
        member: MemberId::mint(member),
        address: "here".into(),
        broker,
        probes,
        clock,
        dice: Arc::new(Dice::from_os()),
        keep: Duration::from_secs(86_400),
        programs: Programs::Refused,
        inside,
    })
    .await
    .unwrap()
}

pub fn spec(name: &str, address: std::net::SocketAddr, rest: &str) -> MonitorSpec {
    let json = format!(
        r#"{{"name": "{name}", "every": "1s", "timeout": "900ms", "http": {{"url": "http://{address}/"}},
            "thresholds": {{"failures": 2}}{rest}}}"#
    );
    serde_json::from_str(&json).unwrap()
}

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begin = SystemClock.monotonic();
    while !holds().await {
        assert!(SystemClock.monotonic().since(begin) < PATIENCE, "waited in vain for {what}");
        SystemClock.sleep(Duration::from_millis(50)).await;
    }
}

async fn a_service_is_seen_up_then_down_then_up_with_one_incident(engine: &Engine) {
    let (database, service) = (engine.database().await, service().await);
    let monitors = start(&database, Memory::new(None, Limits::default()), "one").await;
    let (view, _) = monitors.put(&ana(), spec("shop", service.address, ""), Based::OnNothing).await.unwrap();
    assert_eq!(view.state, State::New);
    let state = async || monitors.monitor(&ana(), "shop").await.unwrap().state;
    until("it to be up", async || state().await == State::Up).await;
    service.well.store(false, Ordering::Relaxed);
    until("it to be down", async || state().await == State::Down).await;
    service.well.store(true, Ordering::Relaxed);
    until("it to be up again", async || state().await == State::Up).await;
    let history = monitors.history(&ana(), "shop", None, 1_000).await.unwrap();
    assert_eq!(history.incidents.len(), 1, "{history:?}");
    let incident = &history.incidents[0];
    assert!(incident.closed_at.is_some() && incident.evidence == "status 503", "{incident:?}");
    let bad = history.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Bad).count();
    assert!(bad >= 2 && history.outcomes.len() > bad, "{history:?}");
    let instants: Vec<i64> = history.outcomes.iter().map(|outcome| outcome.at.0).collect();
    assert!(instants.windows(2).all(|pair| pair[0] > pair[1] && (pair[0] - pair[1]) % 1_000 == 0), "{instants:?}");
    let uptime = history.uptime.uptime_day_percent.unwrap();
    assert!(uptime > 0.0 && uptime < 100.0);
    let tried = monitors.try_now(&ana(), "shop").await.unwrap();
    assert_eq!((tried.verdict, tried.seen.seen.status), (Verdict::Good, Some(200)));
    monitors.stop().await;
    database.close().await;
}

async fn a_monitor_is_changed_paused_and_removed_while_it_runs(engine: &Engine) {
    let (database, service) = (engine.database().await, service().await);
    let monitors = start(&database, Memory::new(None, Limits::default()), "one").await;
    let asked = || service.asked.load(Ordering::Relaxed);
    monitors.put(&ana(), spec("shop", service.address, ""), Based::OnNothing).await.unwrap();
    until("it to be asked", async || asked() > 0).await;
    let picky = spec("shop", service.address, r#", "when": ["status == 204"]"#);
    monitors.put(&ana(), picky, Based::OnAnything).await.unwrap();
    let state = async || monitors.monitor(&ana(), "shop").await.unwrap().state;
    until("the new condition to count", async || state().await == State::Down).await;
    let view = monitors.pause(&ana(), "shop").await.unwrap();
    assert!(view.definition.paused);
    // What was under way may still come.
    SystemClock.sleep(Duration::from_secs(2)).await;
    let before = asked();
    SystemClock.sleep(Duration::from_secs(3)).await;
    assert_eq!(asked(), before, "a paused monitor asks nobody");
    monitors.resume(&ana(), "shop").await.unwrap();
    until("it to go on", async || asked() > before).await;
    monitors.remove(&ana(), "shop").await.unwrap();
    assert_eq!(monitors.monitor(&ana(), "shop").await.unwrap_err().status, 404);
    SystemClock.sleep(Duration::from_secs(2)).await;
    let before = asked();
    SystemClock.sleep(Duration::from_secs(3)).await;
    assert_eq!(asked(), before, "one that is gone asks nobody");
    monitors.stop().await;
    database.close().await;
}

async fn a_successor_goes_on_and_no_instant_has_two_outcomes(engine: &Engine) {
    let (database, service) = (engine.database().await, service().await);
    let broker = Memory::new(None, Limits::default());
    let first = start(&database, broker.clone(), "one").await;
    for n in 0..20 {
        first.put(&ana(), spec(&format!("m{n}"), service.address, ""), Based::OnNothing).await.unwrap();
    }
    let all = async |monitors: &Monitors| monitors.page(&ana(), "", 100).await.unwrap();
    until("all to be up", async || all(&first).await.iter().all(|view| view.state == State::Up)).await;
    // Dropped without a word: its leases must run out.
    drop(first);
    let second = start(&database, broker, "two").await;
    let since = all(&second).await.iter().map(|view| view.last_at.unwrap()).max().unwrap();
    until("all to be checked again", async || {
        all(&second).await.iter().all(|view| view.last_at.is_some_and(|at| at > since))
    })
    .await;
    for view in all(&second).await {
        let history = second.history(&ana(), &view.definition.name, None, 1_000).await.unwrap();
        let mut instants: Vec<i64> = history.outcomes.iter().map(|outcome| outcome.at.0).collect();
        let all = instants.len();
        instants.dedup();
        assert_eq!(instants.len(), all);
        assert!(history.incidents.is_empty() && history.uptime.uptime_day_percent == Some(100.0), "{history:?}");
    }
    second.stop().await;
    database.close().await;
}
