//! Event streams end when the server goes down: a stream that never ends would hold its connection, and the shutdown, for
//! as long as anybody listens. Handlers need not know.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

pub async fn end(State(shutdown): State<CancellationToken>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        return response;
    }
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(shutdown.cancelled_owned())))
}
