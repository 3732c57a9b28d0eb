//! The short way to `GET` and `PUT /v1/kv/{key}`, for requests that are nothing but that: no query, no escapes in the key, a
//! length before the body. The rest takes the long one, to the same [routes](crate::routes).

use std::sync::Arc;

use async_trait::async_trait;
use axum::extract::Request;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use mutirao_core::auth::{Principal, Role};
use mutirao_surface::{Caller, Rejection, Swift};

use crate::intake::Until;
use crate::routes;
use crate::service::{AtLeast, Kv};
use crate::write::{Change, VALUE_BYTES_MAX};

const ROUTE: &str = "/v1/kv/{key}";
const BEFORE_KEY: &str = "/v1/kv/";

/// The key, if it stands there as it is.
fn plain_key(request: &Request) -> Option<&str> {
    let key = request.uri().path().strip_prefix(BEFORE_KEY)?;
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'/');
    (request.uri().query().is_none() && !key.is_empty() && key.bytes().all(plain)).then_some(key)
}

fn has_small_body(request: &Request) -> bool {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    length.is_some_and(|bytes: usize| bytes <= VALUE_BYTES_MAX)
}

#[async_trait]
impl Swift for Kv {
    fn route(&self, request: &Request) -> Option<&'static str> {
        let fits = match *request.method() {
            Method::GET => true,
            Method::PUT => has_small_body(request),
            _ => false,
        };
        (fits && plain_key(request).is_some()).then_some(ROUTE)
    }

    async fn answer(&self, caller: Arc<Principal>, request: Request) -> Response {
        let answered = if request.method() == Method::GET {
            read(self, caller, request).await
        } else {
            put(self, caller, request).await
        };
        answered.unwrap_or_else(IntoResponse::into_response)
    }
}

async fn read(kv: &Kv, caller: Arc<Principal>, request: Request) -> Result<Response, Rejection> {
    let caller = Caller(caller);
    caller.must_be_or_keys(Role::Viewer)?;
    let key = plain_key(&request).unwrap_or_default().parse()?;
    drop(request);
    let (value, entry) = kv.read(&caller.0, key, AtLeast::default(), routes::WAIT).await?;
    Ok(routes::shown(value, &entry))
}

async fn put(kv: &Kv, caller: Arc<Principal>, request: Request) -> Result<Response, Rejection> {
    let caller = Caller(caller);
    caller.must_be_or_keys(Role::Operator)?;
    let key = plain_key(&request).unwrap_or_default().parse()?;
    let condition = routes::said::condition(request.headers())?;
    let change = Change::Put { value: routes::said::value(request).await?, lasts: None };
    Ok(routes::answer(kv.write(&caller.0, key, change, condition, Until::Durable).await?))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(method: Method, path: &str, length: Option<&str>) -> Request {
        let mut request = axum::http::Request::builder().method(method).uri(path);
        if let Some(length) = length {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn only_what_is_plain_is_read_here() {
        let key = |path: &str| plain_key(&request(Method::GET, path, None)).map(str::to_owned);
        assert_eq!(key("/v1/kv/a").as_deref(), Some("a"));
        assert_eq!(key("/v1/kv/a+b:c~").as_deref(), Some("a+b:c~"), "a plus in a path is one");
        for other in ["/v1/kv", "/v1/kv/", "/v1/kv/a%2Fb", "/v1/kv/writes/w1", "/v1/kv/a?min_rev=1", "/v1/jobs/a"] {
            assert_eq!(key(other), None, "{other}");
        }
    }

    #[test]
    fn a_body_must_say_before_that_it_is_small() {
        let small = |length| has_small_body(&request(Method::PUT, "/v1/kv/a", length));
        assert!(small(Some("0")) && small(Some("1048576")));
        assert!(!small(None) && !small(Some("1048577")) && !small(Some("x")));
    }
}
