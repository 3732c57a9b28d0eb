//! The link: real TCP on loopback, through a proxy that can be cut, to an in-process broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use mutirao_broker::link::{Link, LinkState, Permit, SUBPROTOCOL, prepare, serve};
use mutirao_broker::suite::{Bounds, Harness, bodies, counts_become, number, soon, take};
use mutirao_broker::{Broker, BrokerError, Counts, Shared};
use mutirao_core::clock::{Clock, Mono, Sleep};
use mutirao_core::{Dice, SystemClock, Timestamp};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::memory::InProcess;
use crate::proxy::Proxy;

/// Passes ten seconds in one, so that waiting for a dead peer does not take a test fifteen.
struct Hurried;

const HURRY: u32 = 10;

impl Clock for Hurried {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn monotonic(&self) -> Mono {
        Mono(SystemClock.monotonic().0 * HURRY)
    }

    fn sleep(&self, for_: Duration) -> Sleep<'_> {
        SystemClock.sleep(for_ / HURRY)
    }
}

#[derive(Clone)]
struct Server {
    broker: Shared,
    permit: Permit,
    clock: Arc<dyn Clock>,
}

const SECRET: &str = "Bearer right";

async fn upgrade(State(server): State<Server>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    if headers.get("authorization").is_none_or(|given| given != SECRET) {
        return (StatusCode::UNAUTHORIZED, "who are you?").into_response();
    }
    prepare(upgrade).on_upgrade(move |socket| serve(socket, server.broker, server.permit, server.clock))
}

async fn listen(server: Server) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let app = Router::new().route("/v1/link", get(upgrade)).with_state(server);
    let listener = listener.tap_io(|socket| socket.set_nodelay(true).expect("nodelay"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn connect(address: SocketAddr, secret: &'static str, clock: Arc<dyn Clock>) -> Arc<Link> {
    let url = format!("ws://{address}/v1/link");
    Link::connect(url, Arc::new(move || secret.into()), clock, Arc::new(Dice::seeded(7)))
}

pub struct OverLink {
    behind: InProcess,
    proxy: Proxy,
    clock: Arc<dyn Clock>,
}

impl OverLink {
    async fn new(permit: Permit, clock: Arc<dyn Clock>) -> Self {
        let behind = InProcess::new();
        let server = Server { broker: behind.broker.clone(), permit, clock: clock.clone() };
        Self { proxy: Proxy::to(listen(server).await).await, behind, clock }
    }

    async fn link(&self) -> Arc<Link> {
        let link = connect(self.proxy.address, SECRET, self.clock.clone());
        soon("connecting", link.connected()).await;
        link
    }
}

async fn becomes(link: &Link, test: fn(&LinkState) -> bool) -> LinkState {
    let mut state = link.state();
    soon("a change of state", async { state.wait_for(test).await.expect("a live link").clone() }).await
}

fn is_down(state: &LinkState) -> bool {
    matches!(state, LinkState::Down(_))
}

#[async_trait::async_trait]
impl Harness for OverLink {
    async fn broker(&self) -> Shared {
        self.link().await
    }

    fn bounds(&self) -> Bounds {
        // Behind the subscriber stand the server's backlog, its outbox and the client's backlog.
        Bounds { backlog_messages: 3_000, ..self.behind.bounds() }
    }

    async fn cut(&self) {
        self.proxy.cut();
        self.proxy.ended().await;
    }

    async fn heal(&self) {
        self.proxy.heal();
    }
}

async fn harness() -> OverLink {
    OverLink::new(Permit::everything(), SystemClock::shared()).await
}

mutirao_broker::broker_suite!(harness);
mutirao_broker::behaviours!(harness; logs::records_as_large_as_a_message_pass_and_larger_ones_do_not);
mutirao_broker::behaviours!(harness; logs::concurrent_appends_keep_their_batches_together);
mutirao_broker::broker_cut_suite!(harness);

fn is_refused<T: std::fmt::Debug>(result: Result<T, BrokerError>) -> bool {
    matches!(result, Err(BrokerError::Refused { .. }))
}

#[tokio::test]
async fn a_permit_lets_through_what_it_names_and_nothing_else() {
    let permit = Permit::nothing().publish("results.").consume("tasks.a").subscribe("control.a");
    let harness = OverLink::new(permit, SystemClock::shared()).await;
    let link = harness.link().await;
    link.publish("results.jobs.0", bodies(0..1)).await.expect("allowed");
    drop(link.consume("tasks.a", 1).await.expect("allowed"));
    drop(link.subscribe("control.a").await.expect("allowed"));
    link.counts("tasks.a").await.expect("allowed");

    assert!(is_refused(link.publish("tasks.a", bodies(0..1)).await));
    assert!(is_refused(link.consume("results.jobs.0", 1).await.map(|_| ())));
    assert!(is_refused(link.subscribe("control.b").await.map(|_| ())));
    assert!(is_refused(link.announce("control.a", Bytes::new()).await));
    assert!(is_refused(link.append("log", bodies(0..1)).await));
    assert!(is_refused(link.read("log", 0, 1).await));
    assert!(is_refused(link.extent("log").await));
    assert!(is_refused(link.counts("tasks.b").await));
    assert!(is_refused(link.dead_letters("results.jobs.0", 1).await));
    // Refusals cost the connection nothing.
    link.publish("results.jobs.1", bodies(0..1)).await.expect("still allowed");
    let ready = Counts { ready: 1, ..Counts::default() };
    counts_become(&harness.behind.broker().await, "results.jobs.0", ready).await;
    counts_become(&harness.behind.broker().await, "tasks.a", Counts::default()).await;
}

#[tokio::test]
async fn a_body_that_is_vetoed_is_refused_with_the_reason() {
    let vet = |_: &str, body: &Bytes| if number(body) < 10 { Ok(()) } else { Err("not yours".to_string()) };
    let harness = OverLink::new(Permit::everything().vet(Arc::new(vet)), SystemClock::shared()).await;
    let link = harness.link().await;
    link.publish("q", bodies(8..10)).await.expect("allowed");
    let refused = link.publish("q", bodies(9..11)).await;
    assert!(matches!(&refused, Err(BrokerError::Refused { why, .. }) if why == "not yours"), "{refused:?}");
    assert_eq!(link.counts("q").await.unwrap().ready, 2, "nothing of the batch was taken");
}

#[tokio::test]
async fn a_wrong_secret_is_a_state_and_not_an_end() {
    let harness = harness().await;
    let link = connect(harness.proxy.address, "Bearer wrong", SystemClock::shared());
    let refused = becomes(&link, |state| matches!(state, LinkState::Refused(_))).await;
    assert!(matches!(&refused, LinkState::Refused(why) if why.contains("401") && why.contains("who are you?")));
}

#[tokio::test]
async fn each_attempt_asks_for_a_fresh_authorization() {
    let harness = OverLink::new(Permit::everything(), Arc::new(Hurried)).await;
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let authorize = move || match attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => "Bearer stale".to_string(),
        _ => SECRET.to_string(),
    };
    let url = format!("ws://{}/v1/link", harness.proxy.address);
    let link = Link::connect(url, Arc::new(authorize), Arc::new(Hurried), Arc::new(Dice::seeded(1)));
    soon("the second attempt", link.connected()).await;
}

#[tokio::test]
async fn a_link_that_starts_while_its_server_is_away_waits_for_it() {
    let harness = harness().await;
    harness.cut().await;
    let link = connect(harness.proxy.address, SECRET, SystemClock::shared());
    becomes(&link, is_down).await;
    assert!(matches!(link.announce("t", Bytes::new()).await, Err(BrokerError::Unreachable(_))));
    let publishing = {
        let link = link.clone();
        tokio::spawn(async move { link.publish("q", bodies(0..1)).await })
    };
    harness.heal().await;
    soon("publishing", publishing).await.unwrap().expect("publish");
    assert_eq!(harness.behind.broker.counts("q").await.unwrap().ready, 1);
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_noticed_by_both_sides() {
    let harness = OverLink::new(Permit::everything(), Arc::new(Hurried)).await;
    let link = harness.link().await;
    link.publish("q", bodies(0..2)).await.unwrap();
    let mut consumer = link.consume("q", 2).await.unwrap();
    take(&mut consumer, 2).await;
    harness.proxy.silence();
    let started = Hurried.monotonic();
    becomes(&link, is_down).await;
    // The server gives back what the silent peer held.
    let back = Counts { ready: 2, ..Counts::default() };
    counts_become(&harness.behind.broker().await, "q", back).await;
    let noticed = Hurried.monotonic().since(started);
    assert!(noticed > Duration::from_secs(5), "silence of {noticed:?} is not yet death");
    assert!(noticed < Duration::from_secs(40), "noticed only after {noticed:?} of a hurried clock");
    harness.proxy.heal();
    assert!(take(&mut consumer, 2).await.iter().all(|delivery| delivery.redelivered));
}

#[tokio::test]
async fn an_idle_link_stays_up() {
    let harness = OverLink::new(Permit::everything(), Arc::new(Hurried)).await;
    let link = harness.link().await;
    let mut state = link.state();
    state.mark_unchanged();
    Hurried.sleep(Duration::from_secs(40)).await;
    assert!(!state.has_changed().unwrap(), "it went {:?}", *state.borrow());
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_given_up_and_what_it_held_returns() {
    let harness = OverLink::new(Permit::everything(), Arc::new(Hurried)).await;
    let behind = harness.behind.broker().await;
    let body = Bytes::from(vec![1; 1 << 20]);
    behind.publish("q", vec![body; 150]).await.unwrap();
    let mut request = format!("ws://{}/v1/link", harness.proxy.address).into_client_request().unwrap();
    request.headers_mut().insert("authorization", SECRET.parse().unwrap());
    request.headers_mut().insert("sec-websocket-protocol", SUBPROTOCOL.parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    // Consume { channel: 1, queue: "q", credit: 150 } and no bodies, by hand.
    socket.send(Message::Binary(Bytes::from_static(&[1, 1, 1, b'q', 150, 1, 0]))).await.unwrap();
    counts_become(&behind, "q", Counts { unacked: 150, consumers: 1, ..Counts::default() }).await;
    // It never reads, and never closes.
    counts_become(&behind, "q", Counts { ready: 150, ..Counts::default() }).await;
    drop(socket);
}

#[tokio::test]
async fn rubbish_closes_the_connection_with_a_reason_and_harms_nobody_else() {
    let harness = harness().await;
    let link = harness.link().await;
    for rubbish in [
        Message::Binary(Bytes::from_static(&[0xff; 40])),
        Message::Text("hello".into()),
        // An announcement without its body, and a frame that promises more than it has.
        Message::Binary(Bytes::from_static(&[8, 1, 1, b't', 0])),
        Message::Binary(Bytes::from_static(&[0, 1, 1, b'q', 1, 200, 1])),
    ] {
        let mut request = format!("ws://{}/v1/link", harness.proxy.address).into_client_request().unwrap();
        request.headers_mut().insert("authorization", SECRET.parse().unwrap());
        request.headers_mut().insert("sec-websocket-protocol", SUBPROTOCOL.parse().unwrap());
        let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        socket.send(rubbish.clone()).await.unwrap();
        match soon("the close", socket.next()).await {
            Some(Ok(Message::Close(Some(close)))) => assert!(!close.reason.is_empty(), "{rubbish:?}"),
            other => panic!("{rubbish:?} was answered with {other:?}"),
        }
    }
    link.publish("q", bodies(0..1)).await.expect("another link goes on");
}

#[tokio::test]
async fn closing_a_link_ends_what_waits_on_it() {
    let harness = harness().await;
    let link = harness.link().await;
    let mut consumer = link.consume("q", 1).await.unwrap();
    let waiting = tokio::spawn(async move { consumer.next().await });
    link.close();
    assert_eq!(soon("the end", waiting).await.unwrap(), Err(BrokerError::Closed));
    assert_eq!(link.publish("q", bodies(0..1)).await, Err(BrokerError::Closed));
    assert_eq!(*link.state().borrow(), LinkState::Closed);
    counts_become(&harness.behind.broker().await, "q", Counts::default()).await;
}
