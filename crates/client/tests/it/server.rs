//! A real HTTP server on a free port of the loopback interface, with whatever routes a test gives it.

use axum::Router;
use axum::response::{IntoResponse, Response};
use mutirao_client::{Client, Credentials};
use mutirao_core::Problem;

/// Serves `routes` for as long as the test's runtime lives.
pub async fn serve(routes: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    url
}

pub async fn client_of(routes: Router) -> Client {
    Client::new(&serve(routes).await, Credentials::Token("mut_1_secret".into())).unwrap()
}

pub fn refuse(problem: Problem) -> Response {
    let status = axum::http::StatusCode::from_u16(problem.status).unwrap();
    (status, [("content-type", "application/problem+json")], axum::Json(problem)).into_response()
}

pub fn job_view(state: &str) -> serde_json::Value {
    serde_json::json!({
        "id": mutirao_core::JobKey(7), "queue": "default", "owner": "t1", "state": state, "tasks": 1,
        "counts": {"ready": 0, "dispatched": 0, "running": 0, "ok": 1, "failed": 0, "timed_out": 0, "cancelled": 0,
                   "lost": 0, "dead": 0},
        "created_at": 1, "trace": "0123"
    })
}
