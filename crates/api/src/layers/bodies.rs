//! How large a body may be, and how many bytes of large ones are held at once: a thousand requests of 128 MB each would
//! otherwise fit every other bound.

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use mutirao_core::Problem;
use mutirao_core::limits::BODY_BYTES_MAX;
use mutirao_surface::Rejection;
use tokio::sync::Semaphore;

/// For all but the routes below: a blob's chunk and the frame around a megabyte of standard input.
pub const SMALL_BODY_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// Ten thousand nodes, or workers, with what is told of each.
const ELASTIC_BODY_BYTES_MAX: usize = 8 << 20;
/// A batch of keys and their values, in base64 where they are no text.
const KEYS_BODY_BYTES_MAX: usize = 8 << 20;

/// Routes that take more; one that ends in a slash stands for all below it. A job brings its tasks along, a file of
/// declarations everything that is in it.
const LARGE: [(Method, &str, usize); 6] = [
    (Method::POST, "/v1/jobs", BODY_BYTES_MAX),
    (Method::PUT, "/v1/monitors", BODY_BYTES_MAX),
    (Method::PUT, "/v1/flows", BODY_BYTES_MAX),
    (Method::POST, "/v1/check/", BODY_BYTES_MAX),
    (Method::POST, "/v1/kv", KEYS_BODY_BYTES_MAX),
    (Method::PUT, "/v1/elastic/", ELASTIC_BODY_BYTES_MAX),
];

/// A client that is still sending would miss the refusal when the connection closes under it, so this much is read away.
const READ_AWAY_BYTES_MAX: usize = 16 << 20;

const UNIT_BYTES: usize = 1 << 10;

/// What is left for large bodies.
pub struct Room(Semaphore);

impl Room {
    pub fn of(bytes: usize) -> Self {
        Self(Semaphore::new(bytes / UNIT_BYTES))
    }

    pub async fn limit(&self, mut request: Request, next: Next) -> Response {
        let most = allowance(request.method(), request.uri().path());
        let said = content_length(request.headers());
        if said.is_some_and(|bytes| bytes > most as u64) {
            read_away(request.into_body()).await;
            return Rejection(too_large(most)).into_response();
        }
        DefaultBodyLimit::max(most).apply(&mut request);
        if most <= SMALL_BODY_BYTES_MAX {
            return next.run(request).await;
        }
        // Without a length it may become the largest.
        let bytes = said.map_or(most, |bytes| bytes as usize);
        let Ok(_held) = self.0.try_acquire_many(bytes.div_ceil(UNIT_BYTES) as u32) else {
            return Rejection(Problem::busy("too many large requests at once", 1)).into_response();
        };
        next.run(request).await
    }
}

pub fn allowance(method: &Method, path: &str) -> usize {
    let is_it = |route: &str| route == path || (route.ends_with('/') && path.starts_with(route));
    let large = LARGE.iter().find(|(at, route, _)| at == method && is_it(route));
    large.map_or(SMALL_BODY_BYTES_MAX, |(.., bytes)| *bytes)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub fn too_large(most: usize) -> Problem {
    Problem::new(413, "too-large", "the body is too large")
        .detail(format!("the most is {most} bytes"))
        .remedy("send less at a time")
}

async fn read_away(body: Body) {
    let mut chunks = body.into_data_stream();
    let mut read = 0;
    while let Some(Ok(chunk)) = chunks.next().await {
        read += chunk.len();
        if read > READ_AWAY_BYTES_MAX {
            return;
        }
    }
}
