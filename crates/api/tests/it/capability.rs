//! A capability made for these tests: one route for each thing a layer must handle.

use std::convert::Infallible;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Json;
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::{Stream, StreamExt, stream};
use mutirao_core::auth::{Principal, Role};
use mutirao_core::{JobKey, Problem};
use mutirao_surface::{
    BlobGuard, Body, Caller, Capability, IdempotencyKey, OpenApiRouter, Part, Ready, Rejection, TraceId, only, routes,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Work {
    lines: Vec<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct Accepted {
    lines: usize,
    key: Option<String>,
    trace: String,
}

#[utoipa::path(post, path = "/v1/jobs", request_body = Work, responses((status = 200, body = Accepted)))]
async fn submit(
    _: only::Operator,
    IdempotencyKey(key): IdempotencyKey,
    TraceId(trace): TraceId,
    Body(work): Body<Work>,
) -> Result<Json<Accepted>, Rejection> {
    Ok(Json(Accepted { lines: work.lines.len(), key, trace }))
}

#[utoipa::path(get, path = "/v1/jobs/{id}", params(("id" = String, Path)), responses((status = 200, body = String)))]
async fn show(caller: Caller, Part(id): Part<JobKey>) -> Result<Json<String>, Rejection> {
    caller.must_be(Role::Viewer)?;
    Ok(Json(id.to_string()))
}

#[utoipa::path(get, path = "/v1/keys", responses((status = 200, body = String)))]
async fn keys(only::KeysReader(caller): only::KeysReader) -> Json<String> {
    Json(caller.name.clone())
}

#[utoipa::path(get, path = "/v1/forgetful", responses((status = 200, body = String)))]
async fn forgets_to_ask_who_calls() -> Json<&'static str> {
    Json("anybody")
}

#[utoipa::path(get, path = "/v1/panic", responses((status = 200)))]
async fn panics() -> Json<()> {
    panic!("a test asked for it")
}

#[utoipa::path(get, path = "/v1/slow", responses((status = 200)))]
async fn never_answers() -> Json<()> {
    std::future::pending().await
}

#[utoipa::path(get, path = "/v1/events", responses((status = 200, content_type = "text/event-stream")))]
async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(stream::once(async { Ok(Event::default().data("hello")) }).chain(stream::pending()))
}

/// Lets the worker named in the key's second part in: `logs/<worker>/…`.
struct ByName;

#[async_trait]
impl BlobGuard for ByName {
    fn bytes_max(&self) -> u64 {
        8 << 20
    }

    async fn may_append(&self, caller: &Principal, key: &str) -> Result<(), Problem> {
        match key.split('/').nth(1) {
            Some(owner) if owner == caller.id => Ok(()),
            _ => Err(Problem::forbidden("not your blob")),
        }
    }
}

#[derive(Clone, Default)]
pub struct Mood(pub Arc<Mutex<Option<String>>>);

#[async_trait]
impl Ready for Mood {
    async fn ready(&self) -> Result<(), String> {
        self.0.lock().clone().map_or(Ok(()), Err)
    }
}

pub fn capability(mood: Mood) -> Capability {
    let routes = OpenApiRouter::new()
        .routes(routes!(submit))
        .routes(routes!(show))
        .routes(routes!(keys))
        .routes(routes!(forgets_to_ask_who_calls))
        .routes(routes!(panics))
        .routes(routes!(never_answers))
        .routes(routes!(events));
    Capability::new("made-up", routes).guard_blobs("logs/", Arc::new(ByName)).ready_when(Arc::new(mood))
}
