//! What a request says besides its key: the value, a condition, flags and times.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use http_body_util::LengthLimitError;
use mutirao_core::Problem;

use crate::intake::Until;
use crate::service::WAIT_MAX;
use crate::write::{Condition, KEY_BYTES_MAX, VALUE_BYTES_MAX, Value, too_large, too_large_by_at_least};

/// The body, as what the request says that it is.
pub(crate) async fn value(request: Request) -> Result<Value, Problem> {
    let (parts, body) = request.into_parts();
    whole(&parts.headers)?;
    let content_type = text(&parts.headers, &header::CONTENT_TYPE)?;
    Value::new(bytes(&parts.headers, body).await?, content_type)
}

/// Refuses what would be kept as something that it is not.
fn whole(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::CONTENT_RANGE) {
        return Err(
            Problem::malformed("a part of a value cannot be put").remedy("send all of it, without Content-Range")
        );
    }
    match text(headers, &header::CONTENT_ENCODING)? {
        None | Some("identity") => Ok(()),
        Some(_) => Err(Problem::new(415, "unsupported-media-type", "the value is encoded")
            .detail("its encoding would not be kept, and nobody could read it")
            .remedy("send it as it is, or say what it is with Content-Type only")),
    }
}

/// What keys are to begin with. What no key can begin with is a slip.
pub(super) fn prefix(prefix: String) -> Result<String, Problem> {
    if prefix.len() > KEY_BYTES_MAX {
        let bytes = prefix.len();
        return Err(Problem::invalid(
            "prefix",
            format!("{bytes} bytes are too many, no key has more than {KEY_BYTES_MAX}"),
        ));
    }
    match prefix.chars().find(|c| c.is_control()) {
        Some(c) => {
            let detail = format!("it has a control character in it, U+{:04X}, which no key has", u32::from(c));
            Err(Problem::invalid("prefix", detail))
        }
        None => Ok(prefix),
    }
}

async fn bytes(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    if let Ok(Some(Ok(bytes))) = text(headers, &header::CONTENT_LENGTH).map(|l| l.map(str::parse::<usize>))
        && bytes > VALUE_BYTES_MAX
    {
        return Err(too_large(bytes));
    }
    to_bytes(body, VALUE_BYTES_MAX).await.map_err(|error| {
        if error.into_inner().is::<LengthLimitError>() {
            return too_large_by_at_least(VALUE_BYTES_MAX + 1);
        }
        Problem::malformed("the body ended early; nothing was written").remedy("send it again, whole")
    })
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
                Problem::invalid("If-Match", format!("{shown} is not a revision"))
                    .remedy("give one revision, the ETag of an answer; lists of them and * are not understood")
            })
        }
        (Some(_), Some(_)) => Err(Problem::invalid("If-Match", "a key that is not there has no revision")),
    }
}

/// One that is there twice is a list, of which only the first would be heeded.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::invalid(name.as_str(), "it is there more than once").remedy("send it once"));
    }
    value.to_str().map(Some).map_err(|_| Problem::invalid(name.as_str(), "it is not plain text"))
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

/// A revision that an answer must not be older than.
pub(super) fn min_rev(text: &str) -> Result<u64, Problem> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        Problem::invalid("min_rev", format!("\"{shown}\" is not a revision"))
            .remedy("give the revision of an answer to a write or a read of this key")
    })
}

pub(super) fn wait(text: &str) -> Result<Duration, Problem> {
    let read = humantime::parse_duration(text).map_err(|_| Problem::invalid("wait", "it is not a time like 5s"))?;
    if read > WAIT_MAX {
        return Err(Problem::invalid("wait", "a minute is the most"));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    async fn refused(parts: Vec<Result<Bytes, std::io::Error>>) -> Problem {
        value(Request::new(Body::from_stream(stream::iter(parts)))).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_body_that_is_cut_off_is_not_called_too_large() {
        let cut = || Err(std::io::Error::other("the connection was reset"));
        let problem = refused(vec![Ok("half".into()), cut()]).await;
        assert_eq!(
            (problem.status, problem.detail.as_deref()),
            (400, Some("the body ended early; nothing was written"))
        );
        let large = Bytes::from(vec![0; VALUE_BYTES_MAX]);
        let problem = refused(vec![Ok(large.clone()), Ok(large.clone()), cut()]).await;
        assert_eq!(problem.status, 413);
        assert!(problem.detail.unwrap().contains("1048577 bytes or more are too many"));
        let whole =
            value(Request::new(Body::from_stream(stream::iter([Ok::<_, std::io::Error>(large.clone())])))).await;
        assert_eq!(whole.unwrap().bytes, large, "as much as may be");
    }

    #[tokio::test]
    async fn what_would_be_kept_as_something_else_is_refused() {
        let of = async |name: &str, said: &str| {
            let request = axum::http::Request::builder().header(name, said).body(Body::from("half")).unwrap();
            value(request).await.map(|value| value.bytes).map_err(|problem| problem.status)
        };
        assert_eq!(of("content-range", "bytes 0-3/8").await, Err(400));
        assert_eq!(of("content-encoding", "gzip").await, Err(415));
        assert_eq!(of("content-encoding", "identity").await, Ok("half".into()));
    }

    #[test]
    fn a_header_that_is_there_twice_is_no_condition() {
        let twice = |name: HeaderName, values: [&'static str; 2]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(&name, value.parse().unwrap());
            }
            condition(&headers).unwrap_err()
        };
        for (name, values) in [(header::IF_MATCH, ["\"7\"", "\"8\""]), (header::IF_NONE_MATCH, ["*", "\"8\""])] {
            let problem = twice(name, values);
            assert!(problem.status == 422 && problem.line().contains("more than once"), "{}", problem.line());
        }
    }

    #[test]
    fn a_prefix_that_no_key_has_is_refused() {
        assert_eq!(prefix("ä/".into()).unwrap(), "ä/");
        for bad in ["a\0b".to_owned(), "\n".into(), "x".repeat(KEY_BYTES_MAX + 1)] {
            assert_eq!(prefix(bad).unwrap_err().field.as_deref(), Some("prefix"));
        }
    }

    #[test]
    fn what_is_no_revision_is_named_with_what_would_be() {
        assert_eq!(min_rev("7").unwrap(), 7);
        for bad in ["", "x", "-1", "18446744073709551616"] {
            let problem = min_rev(bad).unwrap_err();
            assert_eq!((problem.status, problem.field.as_deref()), (422, Some("min_rev")));
            assert!(problem.line().contains(&format!("\"{bad}\" is not a revision")), "{}", problem.line());
        }
    }

    #[test]
    fn a_condition_that_is_not_understood_says_what_would_be() {
        let of = |tag: &'static str| condition(&HeaderMap::from_iter([(header::IF_MATCH, tag.parse().unwrap())]));
        assert_eq!(of("\"7\"").unwrap(), Condition::At(7));
        for tag in ["*", "\"7\", \"8\"", "W/\"7\""] {
            let problem = of(tag).unwrap_err();
            assert!(problem.status == 422 && problem.line().contains("one revision, the ETag"), "{}", problem.line());
        }
    }
}
