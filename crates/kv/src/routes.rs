//! kv over HTTP. A key is one part of the path, so a slash in it is written `%2F`.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::sse::KeepAlive;
use axum::response::{IntoResponse, Response, Sse};
use mutirao_core::Problem;
use mutirao_surface::{Args, Body as Told, OpenApiRouter, PageArgs, Part, Rejection, only, paging};
use serde::Deserialize;

use crate::fold::Entry;
use crate::intake::Until;
use crate::point::Point;
use crate::service::{AtLeast, BATCH_MAX, Kv, WAIT_MAX, WriteState, WriteView};
use crate::view::{EntriesView, EntryView, Operated, Operation, Values, ttl};
use crate::watch::Watch;
use crate::write::{Change, Condition, Key, Named, VALUE_BYTES_MAX, Value, too_large};

/// How long a read waits for what it must have seen, unless it says so.
pub(crate) const WAIT: Duration = Duration::from_secs(5);
const CHANGED_AT: HeaderName = HeaderName::from_static("mutirao-changed-at");
const EXPIRES_AT: HeaderName = HeaderName::from_static("mutirao-expires-at");

pub fn routes() -> OpenApiRouter<Kv> {
    OpenApiRouter::new()
        .routes(mutirao_surface::routes!(list, batch))
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
    let key: Key = key.parse()?;
    let condition = condition(request.headers())?;
    let lasts = args.ttl.as_deref().map(ttl).transpose()?;
    let until = until(args.sync.as_deref())?;
    let value = value(request).await?;
    Ok(answer(kv.write(&caller, key, Change::Put { value, lasts }, condition, until).await?))
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
    min_rev: Option<u64>,
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
    let write = args.write.as_deref().map(str::parse::<Named>).transpose()?;
    let wait = args.wait.as_deref().map(wait).transpose()?.unwrap_or(WAIT);
    let at_least = AtLeast { revision: args.min_rev, write };
    let (value, entry) = kv.read(&caller, key.parse()?, at_least, wait).await?;
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

/// Keys in their order, as they were when the list was begun; or what changes.
#[utoipa::path(get, path = "/v1/kv", tag = "kv", params(ListArgs),
    responses((status = 200, description = "A page of them, or events.", body = EntriesView),
              (status = 410, description = "The cursor is from before what is remembered.", body = Problem)))]
async fn list(
    State(kv): State<Kv>,
    only::KeysReader(caller): only::KeysReader,
    headers: HeaderMap,
    Args(args): Args<ListArgs>,
) -> Result<Response, Rejection> {
    if flag("watch", args.watch.as_deref())? {
        let resumed = text(&headers, &HeaderName::from_static("last-event-id"))?;
        let point = match resumed.or(args.cursor.as_deref()) {
            Some(cursor) => Point::decode(cursor)?,
            None => kv.point().await?,
        };
        kv.still_known(&point).await?;
        let watch = Watch { kv, namespace: caller.namespace.clone(), prefix: args.prefix, point };
        return Ok(Sse::new(watch.events()).keep_alive(KeepAlive::default()).into_response());
    }
    let values = if flag("values", args.values.as_deref())? { Values::Shown } else { Values::LeftOut };
    let page = PageArgs { limit: args.limit, cursor: args.cursor };
    let page = kv.list(&caller, args.prefix, page.after()?, page.rows()?).await?;
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
    only::KeysReader(_): only::KeysReader,
    Part(id): Part<String>,
    Args(args): Args<WriteArgs>,
) -> Result<Json<WriteView>, Rejection> {
    let wait = args.wait.as_deref().map(wait).transpose()?.unwrap_or(Duration::ZERO);
    Ok(Json(kv.settled(id.parse()?, wait).await?))
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

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    headers
        .get(name)
        .map(|value| value.to_str().map_err(|_| Problem::invalid(name.as_str(), "it is not plain text")))
        .transpose()
}

fn flag(name: &str, value: Option<&str>) -> Result<bool, Problem> {
    match value {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(_) => Err(Problem::invalid(name, "0 or 1")),
    }
}

fn until(sync: Option<&str>) -> Result<Until, Problem> {
    Ok(if flag("sync", sync)? { Until::Applied } else { Until::Durable })
}

fn wait(text: &str) -> Result<Duration, Problem> {
    let read = humantime::parse_duration(text).map_err(|_| Problem::invalid("wait", "it is not a time like 5s"))?;
    if read > WAIT_MAX {
        return Err(Problem::invalid("wait", "a minute is the most"));
    }
    Ok(read)
}
