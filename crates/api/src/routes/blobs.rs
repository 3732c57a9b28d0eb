//! Blobs over HTTP, for enrolled nodes and workers. Whose they are is for the capability that guards the prefix to say;
//! what nobody guards is nobody's to touch.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use mutirao_core::Problem;
use mutirao_core::blobs::{BLOB_LEN_HEADER, BlobError};
use mutirao_surface::{Args, BlobGuard, Part, Rejection, only};
use serde::Deserialize;

use super::{Parts, SharedParts};

/// Bytes written or read by one request.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Place {
    /// Where the bytes belong; at most the blob's length.
    #[serde(default)]
    offset: u64,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Window {
    #[serde(default)]
    offset: u64,
    /// At most 1 MiB, which is also the default; zero asks only for the length.
    limit: Option<usize>,
}

/// Writes bytes at a place. Sending again what is there changes nothing. Role: node.
///
/// The answer's `mutirao-blob-len` header is the new length, and after a 409 the place to go on from.
#[utoipa::path(put, path = "/v1/blobs/{*key}", tag = "blobs", params(("key" = String, Path), Place),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 204),
    (status = 409, body = Problem, content_type = "application/problem+json"),
))]
pub async fn put(
    State(parts): State<SharedParts>,
    only::Node(caller): only::Node,
    Part(key): Part<String>,
    Args(place): Args<Place>,
    body: Bytes,
) -> Result<Response, Rejection> {
    if body.len() > CHUNK_BYTES_MAX {
        return Err(crate::layers::bodies::too_large(CHUNK_BYTES_MAX).into());
    }
    let guard = guard_of(&parts, &key)?;
    guard.may_append(&caller, &key).await?;
    let most = guard.bytes_max();
    if place.offset.saturating_add(body.len() as u64) > most {
        return Err(Problem::forbidden(format!("a blob of this kind has at most {most} bytes")).into());
    }
    match parts.blobs.append(&key, place.offset, body).await {
        Ok(len) => Ok((StatusCode::NO_CONTENT, len_header(Some(len))).into_response()),
        Err(BlobError::Gap { len, .. }) => {
            let problem = Problem::conflict(format!("the blob ends at {len}")).remedy("send again from there");
            Ok((len_header(Some(len)), Rejection(problem)).into_response())
        }
        Err(error) => Err(problem_of(error).into()),
    }
}

/// Reads bytes from a place; none past the end. Role: node.
///
/// The answer's `mutirao-blob-len` header is the blob's length; it is absent when there is no such blob.
#[utoipa::path(get, path = "/v1/blobs/{*key}", tag = "blobs", params(("key" = String, Path), Window), responses(
    (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
))]
pub async fn get(
    State(parts): State<SharedParts>,
    only::Node(caller): only::Node,
    Part(key): Part<String>,
    Args(window): Args<Window>,
) -> Result<Response, Rejection> {
    guard_of(&parts, &key)?.may_read(&caller, &key).await?;
    let limit = window.limit.unwrap_or(CHUNK_BYTES_MAX).min(CHUNK_BYTES_MAX);
    let len = parts.blobs.len(&key).await.map_err(problem_of)?;
    let bytes = match limit {
        0 => Bytes::new(),
        limit => parts.blobs.read(&key, window.offset, limit).await.map_err(problem_of)?,
    };
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], len_header(len), bytes).into_response())
}

fn guard_of<'a>(parts: &'a Parts, key: &str) -> Result<&'a dyn BlobGuard, Problem> {
    if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(problem_of(BlobError::BadKey { key: key.chars().take(200).collect() }));
    }
    let guard = parts.guards.iter().find(|(prefix, _)| key.starts_with(prefix));
    guard.map(|(_, guard)| guard.as_ref()).ok_or_else(|| Problem::forbidden("these blobs are not open to nodes"))
}

fn len_header(len: Option<u64>) -> HeaderMap {
    len.map(|len| (header::HeaderName::from_static(BLOB_LEN_HEADER), HeaderValue::from(len))).into_iter().collect()
}

fn problem_of(error: BlobError) -> Problem {
    match error {
        BlobError::Gap { .. } => Problem::conflict(error.to_string()),
        BlobError::BadKey { .. } => Problem::invalid("key", error.to_string()),
        BlobError::Refused(why) => Problem::forbidden(why),
        BlobError::Unreachable(why) => {
            tracing::error!(why, "blobs cannot be reached");
            Problem::unavailable("blobs cannot be reached; the server's log says why")
        }
    }
}
