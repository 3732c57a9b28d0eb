//! One-time tokens and the keys they let in.

use std::time::Duration;

use mutirao_api::Settings;
use mutirao_core::auth::{Enrol, Enrolled, Enrolment, Role};
use mutirao_core::clock::ManualClock;
use mutirao_core::{Timestamp, WorkerId};
use serde_json::json;

use crate::server::{Server, enrol, new_key, problem};

#[tokio::test]
async fn a_host_of_streams_is_invited_as_one_and_a_worker_cannot_come_in_by_that() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    let invite = async |spec: serde_json::Value| {
        server.ask("POST", "/v1/workers/enrolments").bearer_auth(&admin).json(&spec).send().await.unwrap()
    };
    let both = problem(invite(json!({"streams": true, "checks": ["http"]})).await, 422).await;
    assert!(both.line().contains("an enrolment for each"), "{}", both.line());
    let answer = invite(json!({"streams": true})).await;
    assert_eq!(answer.status(), 201);
    let enrolment: Enrolment = answer.json().await.unwrap();
    assert_eq!(enrolment.queue, "streams");

    let spend = enrol(&enrolment.token, &new_key());
    let worker = server.ask("POST", "/v1/workers/enrol?queue=streams").json(&spend).send().await.unwrap();
    let other = problem(worker, 422).await;
    assert!(other.line().contains("mutirao role host") && other.line().contains("still good"), "{}", other.line());
    let host = server.ask("POST", "/v1/workers/enrol").json(&spend).send().await.unwrap();
    assert_eq!(host.status(), 201);
    let enrolled: Enrolled = host.json().await.unwrap();
    assert_eq!((enrolled.queue.as_str(), enrolled.streams, enrolled.checks), ("streams", true, None));
    let keys = server.ask("GET", "/v1/workers/keys").bearer_auth(&admin).send().await.unwrap();
    let keys: serde_json::Value = keys.json().await.unwrap();
    assert_eq!((&keys["items"][0]["streams"], &keys["items"][0]["queue"]), (&json!(true), &json!("streams")));
}

#[tokio::test]
async fn a_one_time_token_is_good_once() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    let request = server.ask("POST", "/v1/workers/enrolments").bearer_auth(&admin);
    let answer = request.json(&json!({"queue": "gpu"})).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    let enrolment: Enrolment = answer.json().await.unwrap();
    assert_eq!(enrolment.queue.as_str(), "gpu");

    let spend = enrol(&enrolment.token, &new_key());
    let send = async |spend: &Enrol| server.ask("POST", "/v1/workers/enrol").json(spend).send().await.unwrap();
    let first = send(&spend).await;
    assert_eq!(first.status(), 201);
    let first: serde_json::Value = first.json().await.unwrap();
    assert_eq!(first["queue"], "gpu");
    let other = send(&enrol(&enrolment.token, &new_key())).await;
    assert!(problem(other, 401).await.line().contains("spent"));
    let again: serde_json::Value = send(&spend).await.json().await.unwrap();
    assert_eq!(again, first, "the same key has the same answer: the first may have got lost");
    server.api.auth().revoke_worker(&WorkerId(first["worker"].as_str().unwrap().into()), "test").await.unwrap();
    problem(send(&spend).await, 401).await;
}

#[tokio::test]
async fn of_many_who_spend_one_token_at_once_one_gets_in() {
    let server = Server::start().await;
    let enrolment = server.api.auth().create_enrolment(&Default::default(), "test").await.unwrap();
    let asks =
        (0..8).map(|_| server.ask("POST", "/v1/workers/enrol").json(&enrol(&enrolment.token, &new_key())).send());
    let answers = futures_util::future::join_all(asks).await;
    let let_in = answers.into_iter().filter(|answer| answer.as_ref().unwrap().status() == 201).count();
    assert_eq!(let_in, 1);
}

#[tokio::test]
async fn a_one_time_token_grows_old() {
    let clock = ManualClock::starting_at(Timestamp(1_000_000));
    let server = Server::start_with(Settings::default(), clock.clone()).await;
    let enrolment = server.api.auth().create_enrolment(&Default::default(), "test").await.unwrap();
    clock.advance(Duration::from_secs(3600));
    let spend = enrol(&enrolment.token, &new_key());
    problem(server.ask("POST", "/v1/workers/enrol").json(&spend).send().await.unwrap(), 401).await;
}

#[tokio::test]
async fn a_bad_key_or_name_does_not_spend_the_token() {
    let server = Server::start().await;
    let enrolment = server.api.auth().create_enrolment(&Default::default(), "test").await.unwrap();
    let good = enrol(&enrolment.token, &new_key());
    let mut bad_key = good.clone();
    bad_key.public_key = "rubbish".into();
    let answer = server.ask("POST", "/v1/workers/enrol").json(&bad_key).send().await.unwrap();
    assert_eq!(problem(answer, 422).await.field.as_deref(), Some("public_key"));
    let mut bad_name = good.clone();
    bad_name.name = "a\u{7}bell".into();
    let answer = server.ask("POST", "/v1/workers/enrol").json(&bad_name).send().await.unwrap();
    assert_eq!(problem(answer, 422).await.field.as_deref(), Some("name"));
    assert_eq!(server.ask("POST", "/v1/workers/enrol").json(&good).send().await.unwrap().status(), 201);
}

#[tokio::test]
async fn a_worker_that_means_another_queue_is_told_and_its_token_is_not_spent() {
    let server = Server::start().await;
    let enrolment = server.api.auth().create_enrolment(&"night".parse().unwrap(), "test").await.unwrap();
    let spend = enrol(&enrolment.token, &new_key());
    let mistyped = server.ask("POST", "/v1/workers/enrol?queue=nigth").json(&spend).send().await.unwrap();
    let problem = problem(mistyped, 422).await;
    assert!(problem.line().contains("for the queue \"night\"") && problem.line().contains("still good"), "{problem:?}");
    let right = server.ask("POST", "/v1/workers/enrol?queue=night").json(&spend).send().await.unwrap();
    assert_eq!(right.status(), 201);
}

#[tokio::test]
async fn a_bad_queue_is_named() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    let request = server.ask("POST", "/v1/workers/enrolments").bearer_auth(&admin);
    let answer = request.json(&json!({"queue": "a.b"})).send().await.unwrap();
    assert_eq!(problem(answer, 422).await.field.as_deref(), Some("queue"));
}

#[tokio::test]
async fn a_worker_is_told_its_way_to_the_broker_and_nobody_else_is() {
    let server = Server::start().await;
    let worker = server.worker("default").await;
    let way = worker.send(&server, "POST", "/v1/workers/broker", b"").await;
    assert_eq!((way.status().as_u16(), way.text().await.unwrap().as_str()), (200, r#"{"over":"link"}"#));
    problem(server.ask("POST", "/v1/workers/broker").send().await.unwrap(), 401).await;
    let admin = server.token(Role::Admin).await;
    problem(server.ask("POST", "/v1/workers/broker").bearer_auth(&admin).send().await.unwrap(), 403).await;
}
