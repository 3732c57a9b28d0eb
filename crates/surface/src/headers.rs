//! What rides in headers: the key that makes a POST repeatable, and the trace a request belongs to.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use mutirao_core::Problem;
use mutirao_core::dice;
use mutirao_core::trace::{self, Followed};

use crate::Rejection;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
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
        let given = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).and_then(trace_of);
        given.map_or_else(Self::random, |id| Self(id.to_owned()))
    }

    fn random() -> Self {
        // A trace of zeroes is none.
        Self(format!("{:032x}", dice::name().max(1)))
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

/// Whether, and under which span, a request is followed: as its caller wishes by `traceparent`, else one in so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish(pub Option<Followed>);

impl Wish {
    fn of(headers: &HeaderMap, trace: &TraceId) -> Self {
        let Ok(id) = u128::from_str_radix(&trace.0, 16) else { return Self(None) };
        let given = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let given = given.filter(|given| trace_of(given).is_some());
        Self(match given {
            Some(given) => wished(given).filter(|_| trace::is_listening()).map(|parent| Followed { trace: id, parent }),
            None => trace::chooses(id).then_some(Followed { trace: id, parent: 0 }),
        })
    }
}

/// The caller's span, when its last flag says that it is followed.
fn wished(traceparent: &str) -> Option<u64> {
    let mut parts = traceparent.split('-').skip(2);
    let (span, flags) = (parts.next()?, parts.next()?);
    let followed = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
    followed.then(|| u64::from_str_radix(span, 16).ok()).flatten()
}

impl<S: Send + Sync> FromRequestParts<S> for Wish {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let trace = TraceId::from_request_parts(parts, state).await?;
        Ok(Self::of(&parts.headers, &trace))
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

    #[test]
    fn a_caller_says_by_its_last_flag_whether_it_is_followed() {
        let header = |flags: &str| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
        assert_eq!(wished(&header("01")), Some(0x00f0_67aa_0ba9_02b7));
        assert_eq!(wished(&header("03")), Some(0x00f0_67aa_0ba9_02b7));
        assert_eq!((wished(&header("00")), wished(&header("x"))), (None, None));
    }
}
