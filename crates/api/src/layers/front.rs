//! What is around every route, as one layer: each further one would cost every request a few allocations and a copy of the
//! rest of the way. From the outside in: [`access`], [`streams`], panics, [`host`], [`bounds`], [`bodies`].

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use mutirao_surface::{Rejection, TraceId};
use tokio_util::sync::CancellationToken;

use super::access::{self, Access};
use super::bodies::Room;
use super::bounds::Bounds;
use super::host::Names;
use super::streams;

#[derive(Clone)]
pub struct Front(pub Arc<Parts>);

pub struct Parts {
    pub access: Access,
    pub names: Names,
    pub bounds: Bounds,
    pub room: Room,
    pub shutdown: CancellationToken,
}

pub async fn pass(State(Front(parts)): State<Front>, request: Request, next: Next) -> Response {
    let Parts { access, names, bounds, room, shutdown } = &*parts;
    let answer = |request: Request| async move {
        let inner = async {
            match names.check(request.uri(), request.headers()) {
                Ok(()) => bounds.hold(room.limit(request, next)).await,
                Err(problem) => Rejection(problem).into_response(),
            }
        };
        let response = AssertUnwindSafe(inner).catch_unwind().await.unwrap_or_else(access::panicked);
        streams::end(response, shutdown)
    };
    access.note(request, answer).await
}

impl Front {
    /// The same around what takes the [short way](mutirao_surface::Swift): its bodies are small, and its answers whole.
    pub async fn pass_swiftly<F>(
        &self,
        route: &str,
        request: Request,
        rest: impl FnOnce(Request) -> F + Send,
    ) -> Response
    where
        F: Future<Output = Response> + Send,
    {
        let Parts { access, names, bounds, .. } = &*self.0;
        let answer = |request: Request| async move {
            let inner = async {
                match names.check(request.uri(), request.headers()) {
                    Ok(()) => bounds.hold(rest(request)).await,
                    Err(problem) => Rejection(problem).into_response(),
                }
            };
            AssertUnwindSafe(inner).catch_unwind().await.unwrap_or_else(access::panicked)
        };
        access.note_as(TraceId::of(request.headers()), route, request, answer).await
    }
}
