//! A request's JSON body, or a problem that names the field.

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use mutirao_core::Problem;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::Rejection;

/// Reads a JSON body. How large it may be is the layer's business; that it was too large is said here.
#[derive(Debug, Clone)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        if !says_json(request.headers()) {
            return Err(wrong_type().into());
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            match rejection.into_response().status() {
                StatusCode::PAYLOAD_TOO_LARGE => too_large(),
                _ => Problem::malformed("the body ended early"),
            }
        })?;
        Ok(Self(read(&bytes)?))
    }
}

fn says_json(headers: &HeaderMap) -> bool {
    let Some(Ok(kind)) = headers.get(header::CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

fn wrong_type() -> Problem {
    Problem::new(415, "unsupported-media-type", "the body is not of a type that is understood here")
        .detail("the body must be JSON")
        .remedy("send it with Content-Type: application/json")
}

fn too_large() -> Problem {
    Problem::new(413, "too-large", "the body is too large").remedy("send less at a time")
}

/// Reads JSON, or says what is wrong with it and where.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Keeping track of the path costs time on every field, so only a failure pays for it.
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(error) => Err(explain::<T>(bytes, error)),
    }
}

fn explain<T: DeserializeOwned>(bytes: &[u8], plain: serde_json::Error) -> Problem {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Problem::malformed("the body is empty").remedy("send a JSON value");
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        return Problem::malformed(format!("the body is not UTF-8: byte {} is wrong", error.valid_up_to()))
            .remedy("send the text as UTF-8");
    }
    // Some shapes, such as an enum with two variants at once, are no "data" error to serde although they are JSON.
    if !plain.is_data() && serde_json::from_slice::<IgnoredAny>(bytes).is_err() {
        return Problem::malformed(format!("the body is not JSON: {plain}"));
    }
    match serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(bytes)) {
        Err(error) => {
            let path = error.path().to_string();
            at_path(&path, error.inner().to_string())
        }
        Ok(_) => Problem::malformed(format!("the body is not what is expected: {plain}")),
    }
}

/// A problem at `path`, which is `.` at the top. Unknown and missing fields are reported by serde at their parent; they
/// are named themselves here.
pub(crate) fn at_path(path: &str, message: String) -> Problem {
    let parent = if path == "." { "" } else { path };
    let named = ["unknown field `", "missing field `"]
        .iter()
        .find_map(|start| message.strip_prefix(start)?.split_once('`').map(|(name, _)| name))
        .filter(|name| parent != *name && !parent.ends_with(&format!(".{name}")));
    let field = match (parent, named) {
        ("", None) => None,
        ("", Some(name)) => Some(name.to_owned()),
        (parent, None) => Some(parent.to_owned()),
        (parent, Some(name)) => Some(format!("{parent}.{name}")),
    };
    match field {
        Some(field) => Problem::invalid(&field, message),
        None => Problem::new(422, "invalid", "the request is not valid").detail(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its reading is tested")]
    struct Outer {
        inner: Inner,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its reading is tested")]
    struct Inner {
        items: Vec<u8>,
    }

    fn refusal(text: &[u8]) -> Problem {
        read::<Outer>(text).unwrap_err()
    }

    #[test]
    fn a_wrong_value_is_named_by_its_path() {
        let problem = refusal(br#"{"inner": {"items": [1, 2, 999]}}"#);
        assert_eq!((problem.status, problem.field.as_deref()), (422, Some("inner.items[2]")));
    }

    #[test]
    fn unknown_and_missing_fields_are_named_themselves() {
        assert_eq!(refusal(br#"{"inner": {"items": [], "colour": 1}}"#).field.as_deref(), Some("inner.colour"));
        assert_eq!(refusal(br#"{"inner": {}}"#).field.as_deref(), Some("inner.items"));
        assert_eq!(refusal(br#"{}"#).field.as_deref(), Some("inner"));
        assert_eq!(refusal(br#"{"x": 1}"#).field.as_deref(), Some("x"));
    }

    #[test]
    fn what_is_not_json_is_told_apart() {
        let says = |text: &[u8], words: &str| {
            let problem = refusal(text);
            assert_eq!(problem.status, 400, "{problem}");
            assert!(problem.line().contains(words), "{problem}");
        };
        says(b"", "empty");
        says(b"{\"inner\": \"\xff\"}", "not UTF-8");
        says(b"{nope", "not JSON");
        says(br#"{"inner": {"items": []}} trailing"#, "not JSON");
    }

    #[test]
    fn one_choice_too_many_is_not_taken_for_broken_json() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[allow(dead_code, reason = "only its reading is tested")]
        enum Choice {
            One {},
            Other {},
        }
        let problem = read::<Vec<Choice>>(br#"[{"one": {}}, {"one": {}, "other": {}}]"#).unwrap_err();
        assert_eq!(
            (problem.status, problem.field.as_deref().unwrap_or("").starts_with("[1]")),
            (422, true),
            "{problem}"
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_at_the_top_has_no_field() {
        let problem = refusal(b"7");
        assert_eq!((problem.status, problem.field), (422, None));
    }
}
