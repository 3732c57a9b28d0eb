//! What rides in headers: the key that makes a POST repeatable, and the trace a request belongs to.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use mutirao_core::Problem;
use mutirao_core::dice::os_random;

use crate::Rejection;

pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 200;

/// The `Idempotency-Key` of a POST, if it has one. Two requests with the same key are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        Ok(Self(idempotency_key(&parts.headers)?))
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bytes = value.as_bytes();
    let fits = (1..=IDEMPOTENCY_KEY_CHARS_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    match (fits, values.next()) {
        (true, None) => Ok(Some(bytes.iter().map(|byte| *byte as char).collect())),
        _ => Err(Problem::invalid(
            "Idempotency-Key",
            format!("must be sent once, with 1 to {IDEMPOTENCY_KEY_CHARS_MAX} visible ASCII characters"),
        )),
    }
}

/// The trace a request belongs to: the caller's, from `traceparent` (W3C Trace Context), or a new one. 32 hex digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceId(pub String);

impl TraceId {
    pub fn of(headers: &HeaderMap) -> Self {
        let given = headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(trace_of);
        given.map_or_else(Self::random, |id| Self(id.to_owned()))
    }

    fn random() -> Self {
        let mut bytes = [0u8; 16];
        os_random(&mut bytes);
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// `00-<32 hex>-<16 hex>-<2 hex>`; a trace of zeroes is none.
fn trace_of(traceparent: &str) -> Option<&str> {
    let lower_hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let mut parts = traceparent.split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let fits = version.len() == 2
        && lower_hex(version)
        && version != "ff"
        && trace.len() == 32
        && lower_hex(trace)
        && trace.bytes().any(|b| b != b'0')
        && span.len() == 16
        && lower_hex(span);
    fits.then_some(trace)
}

impl<S: Send + Sync> FromRequestParts<S> for TraceId {
    type Rejection = Infallible;

    /// The same id every time it is asked for within one request.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        if let Some(known) = parts.extensions.get::<TraceId>() {
            return Ok(known.clone());
        }
        let id = Self::of(&parts.headers);
        parts.extensions.insert(id.clone());
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn an_idempotency_key_is_short_and_visible() {
        assert_eq!(idempotency_key(&HeaderMap::new()), Ok(None));
        assert_eq!(idempotency_key(&with("idempotency-key", "a-1")), Ok(Some("a-1".into())));
        for bad in ["", "two words", &"x".repeat(201)] {
            assert_eq!(idempotency_key(&with("idempotency-key", bad)).unwrap_err().status, 422, "{bad}");
        }
        let mut twice = with("idempotency-key", "a");
        twice.append("idempotency-key", HeaderValue::from_static("b"));
        assert!(idempotency_key(&twice).is_err());
    }

    #[test]
    fn a_trace_is_taken_over_when_it_is_one_and_made_when_not() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let given = TraceId::of(&with("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01")));
        assert_eq!(given.0, trace);
        let zeroes = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        for bad in ["", "00-xyz", &zeroes, "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"] {
            let made = TraceId::of(&with("traceparent", bad)).0;
            assert!(made.len() == 32 && made.bytes().all(|b| b.is_ascii_hexdigit()) && made != trace, "{made}");
        }
    }
}
