//! A key's routes with the key in the query, where any key can stand.

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use mutirao_core::Problem;
use mutirao_surface::{Args, Rejection, only};
use serde::Deserialize;

use super::said::{condition, until};
use super::{PutArgs, answer, kept};
use crate::service::{Kv, WriteView};
use crate::write::Change;

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyedArgs {
    key: String,
    /// How long the value lasts, like `10m`; then the key is gone.
    ttl: Option<String>,
    /// 1: answer when it is applied, with its revision. A write on a condition always is.
    sync: Option<String>,
}

/// The same, with the key in the query. For keys that no path can have: `.` and `..`.
#[utoipa::path(put, path = "/v1/kv", tag = "kv", params(KeyedArgs,
        ("If-Match" = Option<String>, Header, description = "Only if the key is at this revision."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if the key is not there.")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The value, up to 1 MiB; its content type is kept."),
    responses((status = 200, description = "Applied.", body = WriteView),
              (status = 202, description = "Durable, and applied soon.", body = WriteView),
              (status = 412, description = "The condition does not hold.", body = Problem),
              (status = 413, description = "The value is too large.", body = Problem),
              (status = 429, description = "Too many writes wait.", body = Problem)))]
pub(super) async fn put_by_query(
    State(kv): State<Kv>,
    only::KeysWriter(caller): only::KeysWriter,
    Args(KeyedArgs { key, ttl, sync }): Args<KeyedArgs>,
    request: Request,
) -> Result<Response, Rejection> {
    kept(&kv, &caller, key.parse()?, PutArgs { ttl, sync }, request).await
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyedDeletion {
    key: String,
    /// 1: answer when it is applied, with its revision. A write on a condition always is.
    sync: Option<String>,
}

/// The same, with the key in the query. For keys that no path can have: `.` and `..`.
#[utoipa::path(delete, path = "/v1/kv", tag = "kv", params(KeyedDeletion,
        ("If-Match" = Option<String>, Header, description = "Only if the key is at this revision.")),
    responses((status = 200, description = "Applied.", body = WriteView),
              (status = 202, description = "Durable, and applied soon.", body = WriteView),
              (status = 412, description = "The condition does not hold.", body = Problem)))]
pub(super) async fn delete_by_query(
    State(kv): State<Kv>,
    only::KeysWriter(caller): only::KeysWriter,
    Args(KeyedDeletion { key, sync }): Args<KeyedDeletion>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let until = until(sync.as_deref())?;
    Ok(answer(kv.write(&caller, key.parse()?, Change::Delete, condition(&headers)?, until).await?))
}
