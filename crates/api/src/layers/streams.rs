//! Event streams end when the server goes down: a stream that never ends would hold its connection, and the shutdown, for
//! as long as anybody listens. Handlers need not know.

use axum::body::Body;
use axum::http::header;
use axum::response::Response;
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

pub fn end(response: Response, shutdown: &CancellationToken) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        return response;
    }
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(shutdown.clone().cancelled_owned())))
}
