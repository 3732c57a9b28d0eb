//! The outermost layer: gives each request its trace, says in the log (at debug) and in the metrics what became of it, and
//! turns a panic into a plain 500.

use std::any::Any;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mutirao_core::{Clock, Problem};
use mutirao_surface::{Rejection, TraceId};
use tracing::Instrument;

use crate::recorder::{REQUEST, REQUESTS};

/// Answers carry the trace, so that a caller can name the request when asking what happened.
pub const REQUEST_ID_HEADER: &str = "x-request-id";

pub async fn note(State(clock): State<Arc<dyn Clock>>, mut request: Request, next: Next) -> Response {
    let trace = TraceId::of(request.headers());
    request.extensions_mut().insert(trace.clone());
    let method = request.method().clone();
    // The pattern and not the path: few enough for a label, and without anybody's names in it.
    let route = request.extensions().get::<MatchedPath>().map_or("none".to_owned(), |path| path.as_str().to_owned());
    let began = clock.monotonic();

    let span = tracing::debug_span!("request", trace = trace.0);
    let mut response = next.run(request).instrument(span).await;

    let took = clock.monotonic().since(began);
    let status = response.status().as_u16();
    tracing::debug!(%method, route, status, took_us = took.as_micros() as u64, trace = trace.0, "answered");
    let labels = [("method", method_label(method.as_str())), ("route", route), ("status", status.to_string())];
    metrics::counter!(REQUESTS, &labels).increment(1);
    metrics::histogram!(REQUEST).record(took.as_secs_f64());

    if let Ok(id) = HeaderValue::from_str(&trace.0) {
        response.headers_mut().insert(REQUEST_ID_HEADER, id);
    }
    response
}

/// A method can be any word; a label cannot.
fn method_label(method: &str) -> String {
    match method {
        "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "PATCH" | "OPTIONS" => method.to_owned(),
        _ => "other".to_owned(),
    }
}

/// For `CatchPanicLayer`: one request failed, the server goes on.
pub fn panicked(payload: Box<dyn Any + Send>) -> Response {
    let what = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into());
    tracing::error!(what, "a handler panicked");
    Rejection(Problem::internal()).into_response()
}
