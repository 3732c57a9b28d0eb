//! A refusal, as it goes over the wire: problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mutirao_core::Problem;
use mutirao_core::auth::SIGNATURE_SCHEME;

/// What a handler answers with when it will not. `?` on anything that gives a [`Problem`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection(pub Problem);

impl From<Problem> for Rejection {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

/// A definition that is put under a name is of that name.
pub fn keeps_its_name(what: &str, defined: &str, path: &str) -> Result<(), Rejection> {
    if defined == path {
        return Ok(());
    }
    let path: String = path.chars().take(100).collect();
    let detail = format!("the definition is of \"{defined}\", the path of \"{path}\"");
    Err(Problem::invalid("name", detail).remedy(format!("a {what} keeps its name")).into())
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let Rejection(problem) = self;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&problem).expect("a problem is plain data");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = problem.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static(SIGNATURE_SCHEME));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_when_to_come_back_and_how_to_say_who_one_is() {
        let busy = Rejection(Problem::busy("slow down", 3)).into_response();
        assert_eq!(busy.status(), 429);
        assert_eq!(busy.headers()["retry-after"], "3");
        assert_eq!(busy.headers()["content-type"], "application/problem+json");

        let unknown = Rejection(Problem::unauthenticated("no token")).into_response();
        let ways: Vec<_> = unknown.headers().get_all("www-authenticate").iter().collect();
        assert_eq!(ways, ["Bearer", SIGNATURE_SCHEME]);
    }

    #[test]
    fn a_status_that_is_none_is_our_fault() {
        assert_eq!(Rejection(Problem::new(7, "x", "x")).into_response().status(), 500);
    }
}
