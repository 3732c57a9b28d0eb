//! The trace of each request; what became of it, in the log (at debug) and in the metrics; and a panic as a plain 500.

use std::any::Any;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use mutirao_core::{Clock, Problem};
use mutirao_surface::{Rejection, TraceId};
use tracing::Instrument;

use super::tally::Tally;

/// Answers carry the trace, so that a caller can name the request when asking what happened.
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// What it takes to note requests.
pub struct Access {
    pub clock: Arc<dyn Clock>,
    pub tally: Tally,
}

impl Access {
    /// Notes what `answer` makes of the request.
    pub async fn note<F>(&self, mut request: Request, answer: impl FnOnce(Request) -> F) -> Response
    where
        F: Future<Output = Response>,
    {
        let trace = TraceId::of(request.headers());
        request.extensions_mut().insert(trace.clone());
        // The pattern and not the path: few enough for a label, and without anybody's names in it.
        let route = request.extensions().get::<MatchedPath>().cloned();
        let route = route.as_ref().map_or("none", MatchedPath::as_str);
        self.note_as(trace, route, request, answer).await
    }

    /// The same for a request whose route is known.
    pub async fn note_as<F>(
        &self,
        trace: TraceId,
        route: &str,
        request: Request,
        answer: impl FnOnce(Request) -> F,
    ) -> Response
    where
        F: Future<Output = Response>,
    {
        let id = HeaderValue::from_str(&trace.0).ok();
        let span = tracing::debug_span!("request", trace = trace.0);
        let method = request.method().clone();
        let began = self.clock.monotonic();

        let mut response = answer(request).instrument(span).await;

        let took = self.clock.monotonic().since(began);
        let status = response.status().as_u16();
        tracing::debug!(%method, route, status, took_us = took.as_micros() as u64, trace = trace.0, "answered");
        self.tally.answered(method_label(&method), route, status, took);
        if let Some(id) = id {
            response.headers_mut().insert(REQUEST_ID_HEADER, id);
        }
        response
    }
}

/// A method can be any word; a label cannot.
fn method_label(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// One request failed, the server goes on.
pub fn panicked(payload: Box<dyn Any + Send>) -> Response {
    let what = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into());
    tracing::error!(what, "a handler panicked");
    Rejection(Problem::internal()).into_response()
}
