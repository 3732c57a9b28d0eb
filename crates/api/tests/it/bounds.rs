//! Bounds: how large, how often, how many, how long; and an end in order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use mutirao_api::{Rate, Settings};
use mutirao_core::auth::Role;
use mutirao_core::clock::ManualClock;
use mutirao_core::{SystemClock, Timestamp};

use crate::server::{Server, enrol, new_key, problem};

#[tokio::test]
async fn a_body_past_its_bound_is_refused_said_or_unsaid() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    let post = |path: &str| server.ask("POST", path).bearer_auth(&admin).header("content-type", "application/json");

    let said = post("/v1/tokens").body(vec![b' '; 2 << 20]).send().await.unwrap();
    problem(said, 413).await;
    let chunks = futures_util::stream::iter((0..32).map(|_| Ok::<_, std::io::Error>(vec![b' '; 64 << 10])));
    let unsaid = post("/v1/tokens").body(reqwest::Body::wrap_stream(chunks)).send().await.unwrap();
    problem(unsaid, 413).await;

    let lines = vec!["x".repeat(1000); 5_000];
    let large = post("/v1/jobs").json(&serde_json::json!({"lines": lines})).send().await.unwrap();
    assert_eq!(large.status(), 200, "a job may bring its tasks along");
}

#[tokio::test]
async fn large_bodies_share_a_room() {
    let settings = Settings { body_bytes_held_max: 1 << 20, ..Settings::default() };
    let server = Server::start_with(settings, SystemClock::shared()).await;
    let token = server.token(Role::Operator).await;
    let post = |lines: usize| {
        let body = serde_json::json!({"lines": vec!["x".repeat(1000); lines]});
        server.ask("POST", "/v1/jobs").bearer_auth(&token).json(&body).send()
    };
    assert_eq!(post(10).await.unwrap().status(), 200);
    problem(post(2_000).await.unwrap(), 429).await;
    assert_eq!(post(10).await.unwrap().status(), 200, "the room is given back");
}

#[tokio::test]
async fn each_principal_has_its_own_rate() {
    let clock = ManualClock::starting_at(Timestamp(0));
    let settings = Settings { rate: Rate::new(1, 3), ..Settings::default() };
    let server = Server::start_with(settings, clock.clone()).await;
    let (one, other) = (server.token(Role::Viewer).await, server.token(Role::Viewer).await);
    let ask = async |token: &str| server.ask("GET", "/v1/forgetful").bearer_auth(token).send().await.unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&one).await.status(), 200);
    }
    assert_eq!(problem(ask(&one).await, 429).await.retry_after_s, Some(1));
    assert_eq!(ask(&other).await.status(), 200);
    clock.advance(Duration::from_secs(1));
    assert_eq!(ask(&one).await.status(), 200);
}

#[tokio::test]
async fn failures_from_one_address_are_slowed_and_good_callers_are_not() {
    let clock = ManualClock::starting_at(Timestamp(0));
    let settings = Settings { failures: Rate::new(1, 3), ..Settings::default() };
    let server = Server::start_with(settings, clock.clone()).await;
    let good = server.token(Role::Viewer).await;
    let ask = async |token: &str| server.ask("GET", "/v1/forgetful").bearer_auth(token).send().await.unwrap();
    for _ in 0..3 {
        problem(ask("rubbish").await, 401).await;
    }
    problem(ask("rubbish").await, 429).await;
    let guess = enrol("enr_guessed", &new_key());
    problem(server.ask("POST", "/v1/workers/enrol").json(&guess).send().await.unwrap(), 429).await;
    assert_eq!(ask(&good).await.status(), 200);
    clock.advance(Duration::from_secs(1));
    problem(ask("rubbish").await, 401).await;
}

#[tokio::test]
async fn too_many_at_once_are_pushed_back_and_the_slow_are_given_up() {
    let clock = ManualClock::starting_at(Timestamp(0));
    let settings = Settings { requests_max: 1, ..Settings::default() };
    let server = Arc::new(Server::start_with(settings, clock.clone()).await);
    let token = server.token(Role::Viewer).await;
    let slow = tokio::spawn({
        let (server, token) = (server.clone(), token.clone());
        async move { server.ask("GET", "/v1/slow").bearer_auth(token).send().await.unwrap() }
    });
    let pushed_back = loop {
        let answer = server.ask("GET", "/healthz").send().await.unwrap();
        if answer.status() != 200 {
            break answer;
        }
    };
    problem(pushed_back, 503).await;
    clock.advance(Duration::from_secs(60));
    problem(slow.await.unwrap(), 504).await;
    assert_eq!(server.ask("GET", "/healthz").send().await.unwrap().status(), 200, "the place is given back");
}

#[tokio::test]
async fn a_shutdown_ends_streams_and_the_server() {
    let mut server = Server::start().await;
    let token = server.token(Role::Viewer).await;
    let answer = server.ask("GET", "/v1/events").bearer_auth(&token).send().await.unwrap();
    let mut events = answer.bytes_stream();
    assert_eq!(events.next().await.unwrap().unwrap(), "data: hello\n\n");
    server.shutdown.cancel();
    assert!(events.next().await.is_none(), "the stream ends as a whole answer does");
    (&mut server.served).await.unwrap().unwrap();
    assert!(server.ask("GET", "/healthz").send().await.is_err(), "nobody listens any more");
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "a real socket is waited for, and a hang must be a failure")]
async fn what_does_not_end_is_cut_when_the_drain_time_is_over() {
    let settings = Settings { drain: Duration::from_millis(100), requests_max: 1, ..Settings::default() };
    let mut server = Server::start_with(settings, SystemClock::shared()).await;
    let token = server.token(Role::Viewer).await;
    let slow = tokio::spawn(server.ask("GET", "/v1/slow").bearer_auth(&token).send());
    // It has the only place once others are pushed back.
    while server.ask("GET", "/healthz").send().await.unwrap().status() == 200 {}
    server.shutdown.cancel();
    (&mut server.served).await.unwrap().unwrap();
    let cut = tokio::time::timeout(Duration::from_secs(5), slow).await.expect("it is cut, not forgotten");
    assert!(cut.unwrap().is_err());
}
