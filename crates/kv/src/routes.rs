//! kv over HTTP. A key is one part of the path, so a slash in it is written `%2F`; or it stands in the query, as it must where it
//! is `.` or `..`: what sends requests takes those for steps in the path, however they are escaped.

mod by_query;
pub(crate) mod said;

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::sse::KeepAlive;
use axum::response::{IntoResponse, Response, Sse};
use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_surface::{Args, Body as Told, OpenApiRouter, PageArgs, Part, Rejection, only, paging};
use serde::Deserialize;

use crate::fold::Entry;
use crate::point::Point;
use crate::problems::ahead;
use crate::service::{AtLeast, BATCH_MAX, Kv, WriteState, WriteView};
use crate::view::{EntriesView, EntryView, Operated, Operation, Values, ttl};
use crate::watch::Watch;
use crate::write::{Change, Key, Named, Value};
use said::{condition, flag, min_rev, prefix, text, until, value, wait};

/// How long a read waits for what it must have seen, unless it says so.
pub(crate) const WAIT: Duration = Duration::from_secs(5);
const CHANGED_AT: HeaderName = HeaderName::from_static("mutirao-changed-at");
const EXPIRES_AT: HeaderName = HeaderName::from_static("mutirao-expires-at");

pub fn routes() -> OpenApiRouter<Kv> {
    OpenApiRouter::new()
        .routes(mutirao_surface::routes!(list, batch, by_query::put_by_query, by_query::delete_by_query))
        .routes(mutirao_surface::routes!(read, put, delete))
        .routes(mutirao_surface::routes!(write))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct PutArgs {
    /// How long the value lasts, like `10m`; then the key is gone.
    ttl: Option<String>,
    /// 1: answer when it is applied, with its revision. A write on a condition always is.
    sync: Option<String>,
}

/// Keep a value under a key. Answered when it is durable.
#[utoipa::path(put, path = "/v1/kv/{key}", tag = "kv", params(("key" = String, Path), PutArgs,
        ("If-Match" = Option<String>, Header, description = "Only if the key is at this revision."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if the key is not there.")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The value, up to 1 MiB; its content type is kept."),
    responses((status = 200, description = "Applied.", body = WriteView),
              (status = 202, description = "Durable, and applied soon.", body = WriteView),
              (status = 412, description = "The condition does not hold.", body = Problem),
              (status = 413, description = "The value is too large.", body = Problem),
              (status = 429, description = "Too many writes wait.", body = Problem)))]
async fn put(
    State(kv): State<Kv>,
    only::KeysWriter(caller): only::KeysWriter,
    Part(key): Part<String>,
    Args(args): Args<PutArgs>,
    request: Request,
) -> Result<Response, Rejection> {
    kept(&kv, &caller, key.parse()?, args, request).await
}

async fn kept(kv: &Kv, caller: &Principal, key: Key, args: PutArgs, request: Request) -> Result<Response, Rejection> {
    let condition = condition(request.headers())?;
    let lasts = args.ttl.as_deref().map(ttl).transpose()?;
    let until = until(args.sync.as_deref())?;
    let value = value(request).await?;
    Ok(answer(kv.write(caller, key, Change::Put { value, lasts }, condition, until).await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct SyncArgs {
    /// 1: answer when it is applied, with its revision. A write on a condition always is.
    sync: Option<String>,
}

/// Remove a key. Answered when that is durable; removing what is not there is no mistake.
#[utoipa::path(delete, path = "/v1/kv/{key}", tag = "kv", params(("key" = String, Path), SyncArgs,
        ("If-Match" = Option<String>, Header, description = "Only if the key is at this revision.")),
    responses((status = 200, description = "Applied.", body = WriteView),
              (status = 202, description = "Durable, and applied soon.", body = WriteView),
              (status = 412, description = "The condition does not hold.", body = Problem)))]
async fn delete(
    State(kv): State<Kv>,
    only::KeysWriter(caller): only::KeysWriter,
    Part(key): Part<String>,
    Args(args): Args<SyncArgs>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let until = until(args.sync.as_deref())?;
    Ok(answer(kv.write(&caller, key.parse()?, Change::Delete, condition(&headers)?, until).await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    /// A revision of this key that the answer must not be older than.
    #[param(value_type = Option<u64>)]
    min_rev: Option<String>,
    /// A write that must have been applied: to read one's own.
    write: Option<String>,
    /// How long to wait for that, at most a minute.
    wait: Option<String>,
}

/// The value under a key, with its content type; its revision is the ETag.
#[utoipa::path(get, path = "/v1/kv/{key}", tag = "kv", params(("key" = String, Path), ReadArgs),
    responses((status = 200, description = "The value.", content_type = "application/octet-stream", body = Vec<u8>),
              (status = 404, description = "There is nothing under this key.", body = Problem),
              (status = 504, description = "What was asked for is not applied yet.", body = Problem)))]
async fn read(
    State(kv): State<Kv>,
    only::KeysReader(caller): only::KeysReader,
    Part(key): Part<String>,
    Args(args): Args<ReadArgs>,
) -> Result<Response, Rejection> {
    found(&kv, &caller, key.parse()?, args).await
}

async fn found(kv: &Kv, caller: &Principal, key: Key, args: ReadArgs) -> Result<Response, Rejection> {
    let write = args.write.as_deref().map(str::parse::<Named>).transpose()?;
    let wait = args.wait.as_deref().map(wait).transpose()?.unwrap_or(WAIT);
    let revision = args.min_rev.as_deref().map(min_rev).transpose()?;
    let at_least = AtLeast { revision, write };
    let (value, entry) = kv.read(caller, key, at_least, wait).await?;
    Ok(shown(value, &entry))
}

pub(crate) fn shown(value: Value, entry: &Entry) -> Response {
    let mut response = Response::new(Body::from(value.bytes));
    let headers = response.headers_mut();
    let mut say = |name: HeaderName, text: &str| {
        if let Ok(text) = HeaderValue::from_str(text) {
            headers.insert(name, text);
        }
    };
    say(header::CONTENT_TYPE, &value.content_type);
    say(header::ETAG, &format!("\"{}\"", entry.revision));
    say(CHANGED_AT, &entry.changed_at.to_string());
    if let Some(at) = entry.expires_at {
        say(EXPIRES_AT, &at.to_string());
    }
    response
}

/// Not a list, but the value under a key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyedReadArgs {
    key: String,
    min_rev: Option<String>,
    write: Option<String>,
    wait: Option<String>,
}

/// What `GET /v1/kv` is asked for.
enum Question {
    Value(KeyedReadArgs),
    List(ListArgs),
}

impl<S: Send + Sync> FromRequestParts<S> for Question {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(if query.split('&').any(|arg| arg.starts_with("key=")) {
            Self::Value(Args::from_request_parts(parts, state).await?.0)
        } else {
            Self::List(Args::from_request_parts(parts, state).await?.0)
        })
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    /// Only keys that begin so.
    #[serde(default)]
    prefix: String,
    /// How many, at most 1000; 100 when left out. A page ends earlier once its values have 4 MiB together.
    limit: Option<u32>,
    /// `next` of the page before; `watch` of a page, or the id of an event, to watch from there.
    cursor: Option<String>,
    /// 1: with their values.
    #[serde(default)]
    values: Option<String>,
    /// 1: not a list, but what changes from now on, or from `cursor` on: server-sent events `begin`, `put`, `delete`, `expire`
    /// and `compacted`, each with a cursor as its id.
    #[serde(default)]
    watch: Option<String>,
}

/// Keys in their order, as they were when the list was begun; or what changes; or the value under one key.
#[utoipa::path(get, path = "/v1/kv", tag = "kv", params(ListArgs, ("key" = Option<String>, Query,
        description = "Not a list, but the value under this key, for keys that no path can have: `.` and `..`. With it come `min_rev`, `write` and `wait`, as for a key in the path.")),
    responses((status = 200, description = "A page of them, or events, or the value.", body = EntriesView),
              (status = 410, description = "The cursor is from before what is remembered.", body = Problem)))]
async fn list(
    State(kv): State<Kv>,
    only::KeysReader(caller): only::KeysReader,
    headers: HeaderMap,
    question: Question,
) -> Result<Response, Rejection> {
    let args = match question {
        Question::List(args) => args,
        Question::Value(KeyedReadArgs { key, min_rev, write, wait }) => {
            return found(&kv, &caller, key.parse()?, ReadArgs { min_rev, write, wait }).await;
        }
    };
    let prefix = prefix(args.prefix)?;
    if flag("watch", args.watch.as_deref())? {
        if args.limit.is_some() {
            let endless = Problem::invalid("limit", "a watch tells everything, for as long as it is open");
            return Err(endless.remedy("leave it out, or watch=1").into());
        }
        let resumed = text(&headers, &HeaderName::from_static("last-event-id"))?;
        let now = kv.point().await?;
        let point = match resumed.or(args.cursor.as_deref()).map(Point::decode).transpose()? {
            // Nothing would be told of all that happens until it is reached.
            Some(point) if point.is_ahead_of(&now) => return Err(ahead().into()),
            Some(point) => point,
            None => now,
        };
        kv.still_known(&point).await?;
        let watch = Watch { kv, namespace: caller.namespace.clone(), prefix, point };
        return Ok(Sse::new(watch.events()).keep_alive(KeepAlive::default()).into_response());
    }
    let values = if flag("values", args.values.as_deref())? { Values::Shown } else { Values::LeftOut };
    let page = PageArgs { limit: args.limit, cursor: args.cursor };
    let page = kv.list(&caller, prefix, page.after()?, page.rows()?).await?;
    let entries = page.entries.iter().filter_map(|listed| EntryView::listed(listed, values)).collect();
    let next = page.next.as_ref().map(paging::encode);
    Ok(Json(EntriesView { entries, next, watch: page.point.encode() }).into_response())
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Batch {
    /// At most 1,000. Each for itself; those of one key are applied in this order.
    operations: Vec<Operation>,
}

/// Several writes at once. Each has an answer of its own, in the same order; if one of them cannot be understood, none is made.
#[utoipa::path(post, path = "/v1/kv", tag = "kv", params(SyncArgs), request_body = Batch,
    responses((status = 200, description = "What became of each.", body = Vec<Operated>),
              (status = 422, description = "One of them is wrong; it is named, and none was made.", body = Problem)))]
async fn batch(
    State(kv): State<Kv>,
    only::KeysWriter(caller): only::KeysWriter,
    Args(args): Args<SyncArgs>,
    Told(batch): Told<Batch>,
) -> Result<Json<Vec<Operated>>, Rejection> {
    let until = until(args.sync.as_deref())?;
    if batch.operations.len() > BATCH_MAX {
        let detail = format!("{} are too many at once, the most is {BATCH_MAX}", batch.operations.len());
        return Err(Problem::invalid("operations", detail).into());
    }
    let mut operations = Vec::new();
    for (n, operation) in batch.operations.into_iter().enumerate() {
        operations.push(operation.read().map_err(|problem| problem.under(&format!("operations[{n}]")))?);
    }
    let done = kv.batch(&caller, operations, until).await.into_iter().map(|done| match done {
        Ok(view) => Operated::Written(view),
        Err(problem) => Operated::Refused { problem },
    });
    Ok(Json(done.collect()))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    /// How long to wait for it to be applied, at most a minute.
    wait: Option<String>,
}

/// What became of a write.
#[utoipa::path(get, path = "/v1/kv/writes/{id}", tag = "kv", params(("id" = String, Path), WriteArgs),
    responses((status = 200, description = "How it stands.", body = WriteView),
              (status = 404, description = "No such write is known.", body = Problem),
              (status = 410, description = "It is from so long ago that nothing is known of it any more.", body = Problem)))]
async fn write(
    State(kv): State<Kv>,
    only::KeysReader(caller): only::KeysReader,
    Part(id): Part<String>,
    Args(args): Args<WriteArgs>,
) -> Result<Json<WriteView>, Rejection> {
    let wait = args.wait.as_deref().map(wait).transpose()?.unwrap_or(Duration::ZERO);
    Ok(Json(kv.settled(&caller, id.parse()?, wait).await?))
}

pub(crate) fn answer(view: WriteView) -> Response {
    let status = if view.state == WriteState::Queued { StatusCode::ACCEPTED } else { StatusCode::OK };
    let tag = view.revision.and_then(|revision| HeaderValue::from_str(&format!("\"{revision}\"")).ok());
    let mut response = (status, Json(view)).into_response();
    if let Some(tag) = tag {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
