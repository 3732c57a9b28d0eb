//! Who owns what: the shards of every capability that is cut into some.

use axum::Json;
use axum::extract::State;
use mutirao_core::shard::ShardView;
use mutirao_surface::only;

use super::SharedParts;

/// Who owns which share of the queues, the monitors and the keys. Role: operator.
#[utoipa::path(get, path = "/v1/shards", tag = "shards",
    responses((status = 200, description = "Every shard of every group, as this manager sees it.", body = Vec<ShardView>)))]
pub async fn shards(State(parts): State<SharedParts>, _: only::Operator) -> Json<Vec<ShardView>> {
    Json(parts.shards.iter().flat_map(|shards| shards()).collect())
}
