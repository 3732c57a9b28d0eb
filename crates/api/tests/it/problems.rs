//! Every shape of refusal, as a client sees it.

use mutirao_core::auth::Role;
use serde_json::json;

use crate::server::{Server, problem};

async fn submit(server: &Server, token: &str, kind: &str, body: Vec<u8>) -> reqwest::Response {
    server.ask("POST", "/v1/jobs").bearer_auth(token).header("content-type", kind).body(body).send().await.unwrap()
}

#[tokio::test]
async fn a_bad_body_is_told_what_is_wrong_with_it() {
    let server = Server::start().await;
    let token = server.token(Role::Operator).await;
    let json = "application/json";
    let refusal = async |body: &[u8], status| problem(submit(&server, &token, json, body.to_vec()).await, status).await;

    assert!(refusal(b"", 400).await.line().contains("empty"));
    assert!(refusal(b"{nope", 400).await.line().contains("not JSON"));
    assert!(refusal(b"{\"lines\": [\"\xff\xfe\"]}", 400).await.line().contains("UTF-8"));
    assert_eq!(refusal(br#"{"lines": [], "colour": 1}"#, 422).await.field.as_deref(), Some("colour"));
    assert_eq!(refusal(br#"{}"#, 422).await.field.as_deref(), Some("lines"));
    assert_eq!(refusal(br#"{"lines": ["a", 7]}"#, 422).await.field.as_deref(), Some("lines[1]"));
    assert!(problem(submit(&server, &token, "text/plain", b"{}".to_vec()).await, 415).await.remedy.is_some());

    let fine = submit(&server, &token, "application/json; charset=utf-8", br#"{"lines": ["a"]}"#.to_vec()).await;
    assert_eq!(fine.status(), 200);
}

#[tokio::test]
async fn bad_paths_queries_and_headers_are_named() {
    let server = Server::start().await;
    let token = server.token(Role::Admin).await;
    let ask = async |path: &str| server.ask("GET", path).bearer_auth(&token).send().await.unwrap();

    assert!(problem(ask("/v1/jobs/seven").await, 404).await.line().contains("j7f3k9q2"));
    assert_eq!(problem(ask("/v1/tokens?limit=0").await, 422).await.field.as_deref(), Some("limit"));
    assert_eq!(problem(ask("/v1/tokens?limit=many").await, 422).await.field.as_deref(), Some("limit"));
    assert_eq!(problem(ask("/v1/tokens?cursor=rubbish").await, 422).await.field.as_deref(), Some("cursor"));

    let keyed = server.ask("POST", "/v1/jobs").bearer_auth(&token).json(&json!({"lines": []}));
    let answer = keyed.header("idempotency-key", "x".repeat(201)).send().await.unwrap();
    assert_eq!(problem(answer, 422).await.field.as_deref(), Some("Idempotency-Key"));
}

#[tokio::test]
async fn what_is_not_there_and_what_is_not_done_are_told_apart() {
    let server = Server::start().await;
    let token = server.token(Role::Admin).await;
    problem(server.ask("GET", "/v1/nothing").bearer_auth(&token).send().await.unwrap(), 404).await;
    problem(server.ask("GET", "/").send().await.unwrap(), 404).await;

    let answer = server.ask("DELETE", "/healthz").send().await.unwrap();
    assert!(answer.headers()["allow"].to_str().unwrap().contains("GET"));
    problem(answer, 405).await;
    problem(server.ask("PATCH", "/v1/tokens").bearer_auth(&token).send().await.unwrap(), 405).await;
}

#[tokio::test]
async fn a_panic_is_one_failed_request() {
    let server = Server::start().await;
    let token = server.token(Role::Viewer).await;
    let refusal = problem(server.ask("GET", "/v1/panic").bearer_auth(&token).send().await.unwrap(), 500).await;
    assert!(!refusal.line().contains("a test asked for it"), "the cause is for the log");
    assert_eq!(server.ask("GET", "/healthz").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_strange_name_or_page_is_refused_before_anything_else() {
    let server = Server::start().await;
    let token = server.token(Role::Admin).await;
    let ask = async |name: &str, value: &str| {
        server.ask("GET", "/v1/tokens").bearer_auth(&token).header(name, value).send().await.unwrap()
    };
    problem(ask("host", "evil.example").await, 421).await;
    problem(ask("origin", "http://evil.example").await, 403).await;
    assert_eq!(ask("host", "localhost:1").await.status(), 200);
}

#[tokio::test]
async fn a_trace_goes_in_and_comes_out() {
    let server = Server::start().await;
    let token = server.token(Role::Operator).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = server.ask("POST", "/v1/jobs").bearer_auth(&token).json(&json!({"lines": []}));
    let request = request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
    let answer = request.header("idempotency-key", "k1").send().await.unwrap();
    assert_eq!(answer.headers()["x-request-id"], trace);
    let body: serde_json::Value = answer.json().await.unwrap();
    assert_eq!((body["trace"].as_str(), body["key"].as_str()), (Some(trace), Some("k1")));
}

#[tokio::test]
async fn readiness_says_what_is_missing() {
    let server = Server::start().await;
    assert_eq!(server.ask("GET", "/readyz").send().await.unwrap().status(), 200);
    *server.mood.0.lock() = Some("has a cold".into());
    let refusal = problem(server.ask("GET", "/readyz").send().await.unwrap(), 503).await;
    assert_eq!(refusal.detail.as_deref(), Some("made-up: has a cold"));

    *server.mood.0.lock() = None;
    server.store.close().await;
    let refusal = problem(server.ask("GET", "/readyz").send().await.unwrap(), 503).await;
    assert!(refusal.line().starts_with("store: "), "{refusal}");
    assert_eq!(server.ask("GET", "/healthz").send().await.unwrap().status(), 200);
}
