//! Nodes, and what people want of them.

use axum::Json;
use axum::extract::State;
use mutirao_core::Problem;
use mutirao_elastic::packing::NodeName;
use mutirao_elastic::protocol::Wish;
use mutirao_elastic::view::NodeView;
use mutirao_surface::{Part, Rejection, only};

use crate::service::Fleets;

/// The nodes that a resource manager offers, by name, with the workers on them. Role: viewer.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes", responses((status = 200, body = Vec<NodeView>)))]
pub async fn list(State(fleets): State<Fleets>, _: only::Viewer) -> Result<Json<Vec<NodeView>>, Rejection> {
    Ok(Json(fleets.nodes().await?))
}

/// One node. Role: viewer.
#[utoipa::path(get, path = "/v1/nodes/{node}", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeView), (status = 404, description = "No such node.", body = Problem)))]
pub async fn show(
    State(fleets): State<Fleets>,
    _: only::Viewer,
    Part(node): Part<String>,
) -> Result<Json<NodeView>, Rejection> {
    Ok(Json(fleets.node(&NodeName(node)).await?))
}

/// Put no new workers on it. Those it has stay. Role: operator.
#[utoipa::path(post, path = "/v1/nodes/{node}/cordon", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeView), (status = 404, description = "No such node.", body = Problem)))]
pub async fn cordon(
    State(fleets): State<Fleets>,
    only::Operator(caller): only::Operator,
    Part(node): Part<String>,
) -> Result<Json<NodeView>, Rejection> {
    Ok(Json(fleets.wish(&NodeName(node), Wish::Cordoned, &caller).await?))
}

/// Let it take workers again. Role: operator.
#[utoipa::path(post, path = "/v1/nodes/{node}/uncordon", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeView), (status = 404, description = "No such node.", body = Problem)))]
pub async fn uncordon(
    State(fleets): State<Fleets>,
    only::Operator(caller): only::Operator,
    Part(node): Part<String>,
) -> Result<Json<NodeView>, Rejection> {
    Ok(Json(fleets.wish(&NodeName(node), Wish::Open, &caller).await?))
}

/// Put no new workers on it, and have those it has drained and replaced elsewhere. Role: operator.
#[utoipa::path(post, path = "/v1/nodes/{node}/drain", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeView), (status = 404, description = "No such node.", body = Problem)))]
pub async fn drain(
    State(fleets): State<Fleets>,
    only::Operator(caller): only::Operator,
    Part(node): Part<String>,
) -> Result<Json<NodeView>, Rejection> {
    Ok(Json(fleets.wish(&NodeName(node), Wish::Drained, &caller).await?))
}
