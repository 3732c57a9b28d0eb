//! A node over HTTP, with somebody who serves what a manager does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use mutirao_actions::agent::http::{Http, Options};
use mutirao_actions::agent::spool::Spool;
use mutirao_actions::agent::{Agent, Line, Me};
use mutirao_core::{Dice, SystemClock};
use mutirao_nodes::Namespace;
use mutirao_nodes::wire::{Ack, Register, Word};
use mutirao_tls::Trust;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::agent::{me, message, read_result};
use crate::stage::{Stage, eventually};

#[derive(Clone)]
struct Manager {
    said: mpsc::Sender<String>,
    refusals: Arc<AtomicUsize>,
}

async fn register(State(manager): State<Manager>, headers: HeaderMap, body: String) -> impl IntoResponse {
    assert_eq!(headers["authorization"], "Basic Z2F0ZTpzM2NyZXQ=");
    let register = Register::read(body.as_bytes()).unwrap();
    let ack = Ack { token: "t".into(), node: register.node, actions: register.actions };
    manager.said.send(body).await.unwrap();
    Json(ack)
}

/// Busy at first.
async fn result(State(manager): State<Manager>, body: String) -> StatusCode {
    if manager.refusals.fetch_add(1, Ordering::Relaxed) == 0 {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    manager.said.send(body).await.unwrap();
    StatusCode::NO_CONTENT
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_registers_takes_messages_and_posts_results_until_they_are_taken() {
    mutirao_tls::install();
    let (said, mut heard) = mpsc::channel(16);
    let routes = Router::new()
        .route("/actuator/health", get(async || r#"{"status":"UP"}"#))
        .route("/mutirao/nodes/register", post(register))
        .route("/mutirao/task/handler/saida", post(result))
        .with_state(Manager { said, refusals: Arc::default() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let stage = Stage::new();
    stage.define(json!({"kind": "Action", "name": "echo", "command": ["cat"]}));
    let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::seeded(4)));
    let options = Options {
        url,
        trust: Trust::nobody(),
        user: Some("gate".into()),
        password: Some("s3cret".into()),
        namespace: Namespace::default(),
        listen: "127.0.0.1:0".parse().unwrap(),
        clock: clock.clone(),
    };
    let (line, events, address) = Http::start(options).await.unwrap();
    let me = Me { endpoint: format!("http://{address}"), ..me(2) };
    let spool = Spool::open(&stage.folder.path().join("spool")).unwrap();
    let agent = Agent::new(me, stage.table.clone(), Arc::new(line), spool, clock, dice);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(agent.run(events, async move { drop(stopped.await) }));

    let register = Register::read(heard.recv().await.unwrap().as_bytes()).unwrap();
    let post = async |text: String| {
        let to = format!("{}/mutirao/messages", register.endpoint);
        reqwest::Client::new().post(to).body(text).send().await.unwrap().status()
    };
    assert_eq!(post(message("r1", "echo", r#"{"a":1}"#)).await, StatusCode::ACCEPTED);
    assert_eq!(read_result(&heard.recv().await.unwrap()), ("r1".into(), json!({"a": 1})));
    assert_eq!(post("rubbish".into()).await, StatusCode::ACCEPTED, "left, and no harm done");
    assert_eq!(post(message("r2", "echo", "2")).await, StatusCode::ACCEPTED);
    assert_eq!(read_result(&heard.recv().await.unwrap()), ("r2".into(), json!(2)));
    drop(stop);
    running.await.unwrap();
}

/// A captive portal, or whatever else answers there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_never_ends_is_not_read_to_its_end() {
    mutirao_tls::install();
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    let endless = move || {
        let count = count.clone();
        let pieces = futures_util::stream::repeat_with(move || {
            count.fetch_add(4_096, Ordering::Relaxed);
            Ok::<_, std::io::Error>(vec![b'x'; 4_096])
        });
        async move { axum::body::Body::from_stream(pieces) }
    };
    let routes = Router::new().route("/mutirao/nodes/register", post(endless));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        url: format!("http://{}", listener.local_addr().unwrap()),
        trust: Trust::nobody(),
        user: None,
        password: None,
        namespace: Namespace::default(),
        listen: "127.0.0.1:0".parse().unwrap(),
        clock: SystemClock::shared(),
    };
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let (line, _events, _) = Http::start(options).await.unwrap();
    let why = line.register("{}".into()).await.unwrap_err();
    assert!(why.contains("longer than any of a manager's"), "{why}");
    // What it had in its hands, and what was on its way.
    assert!(told.load(Ordering::Relaxed) < 64 << 20, "{told:?} bytes were taken");
}

#[tokio::test]
async fn many_that_are_sent_at_once_are_all_taken() {
    mutirao_tls::install();
    let options = Options {
        // Nobody is there.
        url: "http://127.0.0.1:1".into(),
        trust: Trust::nobody(),
        user: None,
        password: None,
        namespace: Namespace::default(),
        listen: "127.0.0.1:0".parse().unwrap(),
        clock: SystemClock::shared(),
    };
    let (_line, mut events, address) = Http::start(options).await.unwrap();
    let (client, to) = (reqwest::Client::new(), format!("http://{address}/mutirao/messages"));
    let post = |n: u32| client.post(&to).body(message(&format!("r{n}"), "echo", "1")).send();
    let posts = futures_util::future::join_all((0..64).map(post));
    let hearing = async {
        // Only once no more goes in.
        eventually("as many wait as may", async || events.len() == events.max_capacity()).await;
        while events.recv().await.is_some() {}
    };
    let answers = tokio::select! {
        answers = posts => answers,
        () = hearing => panic!("nobody listens any more"),
    };
    for answer in answers {
        assert_eq!(answer.unwrap().status(), StatusCode::ACCEPTED);
    }
}
