//! Is it alive, can it work, what has it counted, what can it do.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::tasks_of;
use mutirao_core::{Problem, QueueName};
use mutirao_surface::{Rejection, only};
use serde::Serialize;

use super::SharedParts;

/// How long one part may take to say that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(2);

#[derive(Serialize, utoipa::ToSchema)]
pub struct Alive {
    pub version: &'static str,
    /// Whose manager this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installation: Option<String>,
}

/// Says that the process lives, and nothing about what it needs.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = Alive)))]
pub async fn healthz(State(parts): State<SharedParts>) -> Json<Alive> {
    let installation = parts.installation.as_ref().map(|id| id.0.clone());
    Json(Alive { version: env!("CARGO_PKG_VERSION"), installation })
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct CanWork {
    /// The parts that answered.
    pub ready: Vec<&'static str>,
}

/// Says whether store, broker and every capability answer; when not, the problem says which and why.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), responses(
    (status = 200, body = CanWork),
    (status = 503, body = Problem, content_type = "application/problem+json"),
))]
pub async fn readyz(State(parts): State<SharedParts>) -> Result<Json<CanWork>, Rejection> {
    let store = async { parts.auth.store_answers().await.map_err(|problem| problem.line()) };
    let queue = tasks_of(&QueueName::default());
    // One that is away would only let us wait, without saying why.
    let broker = async {
        parts.broker.reachable().map_err(|error| error.to_string())?;
        parts.broker.counts(&queue).await.map(drop).map_err(|error| error.to_string())
    };
    // It may have gone while we waited, and knows by now why.
    let why = |late: String| parts.broker.reachable().err().map_or(late, |error| error.to_string());
    let broker = within(&parts, broker).await.map_err(why);
    let mut answers = vec![("store", within(&parts, store).await), ("broker", broker)];
    for (name, capability) in &parts.ready {
        answers.push((name, within(&parts, capability.ready()).await));
    }
    if parts.shutdown.is_cancelled() {
        answers.push(("server", Err("is going down".into())));
    }
    let missing: Vec<String> =
        answers.iter().filter_map(|(name, answer)| Some(format!("{name}: {}", answer.as_ref().err()?))).collect();
    if missing.is_empty() {
        return Ok(Json(CanWork { ready: answers.into_iter().map(|(name, _)| name).collect() }));
    }
    Err(Problem::unavailable(missing.join("; ")).into())
}

async fn within(parts: &SharedParts, answer: impl Future<Output = Result<(), String>> + Send) -> Result<(), String> {
    match parts.clock.timeout(READY_WITHIN, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} s", READY_WITHIN.as_secs())),
    }
}

/// What was counted and measured, as Prometheus reads it. Role: viewer.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn metrics(State(parts): State<SharedParts>, _: only::Viewer) -> impl IntoResponse {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let shown = parts.shown.iter().map(|show| show());
    let text = std::iter::once(parts.metrics.render()).chain(shown).collect::<String>();
    ([(header::CONTENT_TYPE, kind)], text)
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "health", security(()), responses((status = 200, content_type = "application/json")))]
pub async fn openapi(State(parts): State<SharedParts>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], parts.document.clone())
}
