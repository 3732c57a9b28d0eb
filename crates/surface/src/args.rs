//! A request's query and path, or a problem that names the argument.

use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use mutirao_core::Problem;
use serde::de::DeserializeOwned;

use crate::{Rejection, body};

/// Reads the query: `?limit=10&state=failed`. Arguments are marked `#[serde(deny_unknown_fields)]`, so that a slip of the
/// pen does not pass for a wider question.
#[derive(Debug, Clone)]
pub struct Args<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Args<T> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        Ok(Self(read(parts.uri.query().unwrap_or_default())?))
    }
}

fn read<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    must_be_text(query)?;
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
    serde_path_to_error::deserialize(pairs)
        .map_err(|error| body::at_path(&error.path().to_string(), error.inner().to_string()))
}

/// What stands for bytes that are no text.
const NO_TEXT: &str = "\u{FFFD}";
const NO_TEXT_WRITTEN: &str = "%EF%BF%BD";

/// The parser puts a sign in the place of bytes that are no text: whoever meant one key would get another.
fn must_be_text(query: &str) -> Result<(), Problem> {
    if !query.contains('%') {
        return Ok(());
    }
    for pair in query.split('&') {
        let meant = pair.to_ascii_uppercase().matches(NO_TEXT_WRITTEN).count() + pair.matches(NO_TEXT).count();
        for (name, value) in form_urlencoded::parse(pair.as_bytes()) {
            if name.matches(NO_TEXT).count() + value.matches(NO_TEXT).count() > meant {
                return Err(Problem::malformed(format!("{name} in the query is not UTF-8")));
            }
        }
    }
    Ok(())
}

/// Reads what the route's `{…}` stand for. A part that does not have the form of what is asked for names nothing, so it
/// is answered with 404, and with the form it should have.
#[derive(Debug, Clone)]
pub struct Part<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Part<T> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(part)) => Ok(Self(part)),
            Err(rejection) => Err(misnamed(rejection).into()),
        }
    }
}

fn misnamed(rejection: PathRejection) -> Problem {
    // What remains is a handler that asks for parts its route does not have: our fault, not the caller's.
    let PathRejection::FailedToDeserializePathParams(failure) = rejection else { return Problem::internal() };
    match failure.into_kind() {
        ErrorKind::Message(message) | ErrorKind::DeserializeError { message, .. } => Problem::not_found(message),
        ErrorKind::InvalidUtf8InPathParam { key } => Problem::malformed(format!("{key} in the path is not UTF-8")),
        ErrorKind::ParseErrorAtKey { value, expected_type, .. }
        | ErrorKind::ParseErrorAtIndex { value, expected_type, .. }
        | ErrorKind::ParseError { value, expected_type } => {
            let value: String = value.chars().take(64).collect();
            Problem::not_found(format!("\"{value}\" in the path is not of type {expected_type}"))
        }
        _ => Problem::internal(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageArgs;
    use axum::body::Body;
    use axum::http::Request;
    use axum::routing::get;
    use mutirao_core::{JobKey, TaskKey};
    use tower::ServiceExt;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its reading is tested")]
    struct Search {
        state: Option<String>,
        depth: Option<u8>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Paged {
        state: Option<String>,
        #[serde(flatten)]
        page: PageArgs,
    }

    #[test]
    fn a_wrong_argument_is_named() {
        let refusal = |query| read::<Search>(query).unwrap_err();
        assert_eq!(refusal("state=a&depth=deep").field.as_deref(), Some("depth"));
        assert_eq!(refusal("stat=a").field.as_deref(), Some("stat"));
        assert_eq!(read::<Paged>("limit=1&stat=a").unwrap_err().field.as_deref(), Some("stat"));
        assert_eq!(read::<PageArgs>("limits=1").unwrap_err().field.as_deref(), Some("limits"));
        assert!(read::<Search>("").is_ok());
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_and_not_read_as_something_else() {
        let refused = read::<Search>("state=a%ff&depth=1").unwrap_err();
        assert!(refused.status == 400 && refused.line().contains("state in the query is not UTF-8"), "{refused:?}");
        assert_eq!(read::<Search>("state=%ef%bf%bd").unwrap().state.as_deref(), Some("\u{FFFD}"));
        assert_eq!(read::<Search>("state=%C3%A9+%26").unwrap().state.as_deref(), Some("\u{e9} &"));
    }

    #[test]
    fn paging_can_be_flattened_into_other_arguments() {
        let paged: Paged = read("state=ok&limit=7&cursor=abc").unwrap();
        assert_eq!(
            (paged.state.as_deref(), paged.page.limit, paged.page.cursor.as_deref()),
            (Some("ok"), Some(7), Some("abc"))
        );
        assert!(read::<Paged>("limit=many").is_err());
        assert_eq!(read::<Paged>("").unwrap().page.limit, None);
    }

    async fn ask(path: &str) -> (u16, String) {
        let router: axum::Router = axum::Router::new()
            .route("/jobs/{id}", get(|Part(id): Part<JobKey>| async move { id.to_string() }))
            .route("/tasks/{id}/{n}", get(|Part((id, n)): Part<(TaskKey, u32)>| async move { format!("{id} {n}") }));
        let response = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_malformed_id_is_answered_with_the_form_it_should_have() {
        let id = JobKey(5).to_string();
        assert_eq!(ask(&format!("/jobs/{id}")).await, (200, id.clone()));
        assert_eq!(ask(&format!("/tasks/{id}.3/1")).await, (200, format!("{id}.3 1")));
        let (status, body) = ask("/jobs/seven").await;
        assert!(status == 404 && body.contains("j7f3k9q2"), "{body}");
        let (status, body) = ask(&format!("/tasks/{id}.3/many")).await;
        assert!(status == 404 && body.contains("many"), "{body}");
        assert_eq!(ask("/jobs/%ff").await.0, 400);
    }
}
