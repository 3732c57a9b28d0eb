//! What a request says besides its key: the value, a condition, flags and times.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use mutirao_core::Problem;

use crate::intake::Until;
use crate::service::WAIT_MAX;
use crate::write::{Condition, VALUE_BYTES_MAX, Value, too_large};

/// The body, as what the request says that it is.
pub(crate) async fn value(request: Request) -> Result<Value, Problem> {
    let (parts, body) = request.into_parts();
    let content_type = text(&parts.headers, &header::CONTENT_TYPE)?;
    Value::new(bytes(&parts.headers, body).await?, content_type)
}

async fn bytes(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    if let Ok(Some(Ok(bytes))) = text(headers, &header::CONTENT_LENGTH).map(|l| l.map(str::parse::<usize>))
        && bytes > VALUE_BYTES_MAX
    {
        return Err(too_large(bytes));
    }
    // One more than may be, to tell what is too large from what ended early.
    match to_bytes(body, VALUE_BYTES_MAX + 1).await {
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(too_large(VALUE_BYTES_MAX + 1)),
    }
}

pub(crate) fn condition(headers: &HeaderMap) -> Result<Condition, Problem> {
    let matches = text(headers, &header::IF_MATCH)?;
    let absent = text(headers, &header::IF_NONE_MATCH)?;
    match (matches, absent) {
        (None, None) => Ok(Condition::None),
        (None, Some("*")) => Ok(Condition::Absent),
        (None, Some(_)) => Err(Problem::invalid("If-None-Match", "only * is understood: the key must not be there")),
        (Some(tag), None) => {
            let revision = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag).parse().ok();
            revision.map(Condition::At).ok_or_else(|| {
                let shown: String = tag.chars().take(40).collect();
                Problem::invalid("If-Match", format!("{shown} is not a revision")).remedy("take the ETag of an answer")
            })
        }
        (Some(_), Some(_)) => Err(Problem::invalid("If-Match", "a key that is not there has no revision")),
    }
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    headers
        .get(name)
        .map(|value| value.to_str().map_err(|_| Problem::invalid(name.as_str(), "it is not plain text")))
        .transpose()
}

pub(super) fn flag(name: &str, value: Option<&str>) -> Result<bool, Problem> {
    match value {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(_) => Err(Problem::invalid(name, "0 or 1")),
    }
}

pub(super) fn until(sync: Option<&str>) -> Result<Until, Problem> {
    Ok(if flag("sync", sync)? { Until::Applied } else { Until::Durable })
}

pub(super) fn wait(text: &str) -> Result<Duration, Problem> {
    let read = humantime::parse_duration(text).map_err(|_| Problem::invalid("wait", "it is not a time like 5s"))?;
    if read > WAIT_MAX {
        return Err(Problem::invalid("wait", "a minute is the most"));
    }
    Ok(read)
}
