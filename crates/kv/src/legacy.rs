//! The four routes of the store that this one takes the place of, so that its clients and its load test run unchanged. They
//! ask nobody who it is: they are off unless an installation switches them on, for a network that is trusted.
//!
//! Everybody is one operator of the default namespace there; values are texts.

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use futures_util::stream;
use mutirao_core::Problem;
use mutirao_core::auth::{DEFAULT_NAMESPACE, Principal, Role};
use mutirao_surface::{Args, Body, Rejection};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::intake::Until;
use crate::service::{AtLeast, Kv, Position};
use crate::write::{Change, Condition, Key, Value};

const PAGE_ROWS: u32 = 1_000;
/// What `/api` keeps is text.
const TEXT: &str = "text/plain; charset=utf-8";

pub fn routes(kv: Kv) -> Router {
    Router::new().route("/api", put(keep).get(read).delete(remove)).route("/api/all", get(all)).with_state(kv)
}

fn anybody() -> Principal {
    Principal { id: "legacy".into(), name: "legacy".into(), role: Role::Operator, namespace: DEFAULT_NAMESPACE.into() }
}

#[derive(Deserialize, Serialize)]
struct Pair {
    key: String,
    value: String,
}

#[derive(Deserialize)]
struct Asked {
    key: String,
}

/// Durable, as the original's was not.
fn queued() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], r#"{"status":"queued"}"#).into_response()
}

/// A body that is JSON whatever it is said to be, as the original took it: `curl -d` calls it a form.
struct AsJson<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for AsJson<T> {
    type Rejection = Rejection;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, Rejection> {
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let Body(body) = Body::from_request(request, state).await?;
        Ok(Self(body))
    }
}

async fn keep(State(kv): State<Kv>, AsJson(pair): AsJson<Pair>) -> Result<Response, Rejection> {
    let value = Value::new(pair.value.into(), Some(TEXT))?;
    let change = Change::Put { value, lasts: None };
    kv.write(&anybody(), pair.key.parse()?, change, Condition::None, Until::Durable).await?;
    Ok(queued())
}

async fn remove(State(kv): State<Kv>, Args(asked): Args<Asked>) -> Result<Response, Rejection> {
    kv.write(&anybody(), asked.key.parse()?, Change::Delete, Condition::None, Until::Durable).await?;
    Ok(queued())
}

async fn read(State(kv): State<Kv>, Args(asked): Args<Asked>) -> Result<Json<Pair>, Rejection> {
    let key: Key = asked.key.parse()?;
    let (value, _) = kv.read(&anybody(), key, AtLeast::default(), std::time::Duration::ZERO).await?;
    Ok(Json(Pair { key: asked.key, value: String::from_utf8_lossy(&value.bytes).into_owned() }))
}

/// Where the list of everything is.
struct Listing {
    kv: Kv,
    /// Read, and not told yet.
    page: Option<(Vec<String>, Option<Position>)>,
    next: Option<Position>,
    /// What comes before the next pair.
    before: &'static str,
}

impl Listing {
    /// The next part of the text; none when it is over.
    async fn next(mut self) -> Option<(Result<String, std::io::Error>, Option<Self>)> {
        let read = match self.page.take() {
            Some(page) => Ok(page),
            None => page(&self.kv, self.next.take()).await,
        };
        let (pairs, next) = match read {
            Ok(page) => page,
            // It was begun: to break it off is all that is left.
            Err(problem) => return Some((Err(std::io::Error::other(problem.line())), None)),
        };
        let mut text = String::new();
        for pair in pairs {
            text.push_str(std::mem::replace(&mut self.before, ","));
            text.push_str(&pair);
        }
        if next.is_some() {
            self.next = next;
            return Some((Ok(text), Some(self)));
        }
        text.push_str(if self.before == "[" { "[]" } else { "]" });
        Some((Ok(text), None))
    }
}

/// Every pair as it was when it was asked for, page after page, so that it may be of any length.
async fn all(State(kv): State<Kv>) -> Result<Response, Rejection> {
    // The first page before the first word: what is wrong can still be said then.
    let first = page(&kv, None).await?;
    let listing = Listing { kv, page: Some(first), next: None, before: "[" };
    let parts = stream::unfold(Some(listing), |listing| async { listing?.next().await });
    let body = axum::body::Body::from_stream(parts);
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

async fn page(kv: &Kv, position: Option<Position>) -> Result<(Vec<String>, Option<Position>), Problem> {
    let page = kv.list(&anybody(), String::new(), position, PAGE_ROWS).await?;
    let pair = |listed: crate::service::Listed| {
        let value = String::from_utf8_lossy(&listed.entry.value.as_ref()?.bytes).into_owned();
        serde_json::to_string(&Pair { key: listed.key.as_str().into(), value }).ok()
    };
    Ok((page.entries.into_iter().filter_map(pair).collect(), page.next))
}
