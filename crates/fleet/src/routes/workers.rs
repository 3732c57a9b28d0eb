//! Workers that are there, and draining them.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use mutirao_core::job::WorkerView;
use mutirao_core::{Problem, WorkerId};
use mutirao_elastic::view::WorkerDetail;
use mutirao_surface::{Part, Rejection, only};

use super::unheard;
use crate::service::Fleets;

/// The worker processes that are alive, with their state and the node they are on. Role: viewer.
#[utoipa::path(get, path = "/v1/workers", tag = "workers",
    responses((status = 200, description = "All of them.", body = Vec<WorkerView>,
        headers(("mutirao-unheard" = String, description = "Shards whose owner did not answer: their workers are missing.")))))]
pub async fn list(
    State(fleets): State<Fleets>,
    _: only::Viewer,
) -> Result<(HeaderMap, Json<Vec<WorkerView>>), Rejection> {
    let (workers, silent) = fleets.workers().await?;
    Ok((unheard(&silent), Json(workers)))
}

/// All that is known of one worker. Role: viewer.
#[utoipa::path(get, path = "/v1/workers/{worker}", tag = "workers", params(("worker" = String, Path)),
    responses((status = 200, body = WorkerDetail), (status = 404, description = "No such worker.", body = Problem)))]
pub async fn show(
    State(fleets): State<Fleets>,
    _: only::Viewer,
    Part(worker): Part<String>,
) -> Result<Json<WorkerDetail>, Rejection> {
    Ok(Json(fleets.worker(&WorkerId(worker)).await?))
}

/// Hand it nothing more: it finishes what it has, and waits to be ended. Role: operator.
#[utoipa::path(post, path = "/v1/workers/{worker}/drain", tag = "workers", params(("worker" = String, Path)),
    responses((status = 200, body = WorkerDetail), (status = 404, description = "No such worker.", body = Problem)))]
pub async fn drain(
    State(fleets): State<Fleets>,
    only::Operator(caller): only::Operator,
    Part(worker): Part<String>,
) -> Result<Json<WorkerDetail>, Rejection> {
    Ok(Json(fleets.drain(&WorkerId(worker), &caller).await?))
}

/// Let it be handed tasks again, from its next start on. Role: operator.
#[utoipa::path(post, path = "/v1/workers/{worker}/resume", tag = "workers", params(("worker" = String, Path)),
    responses((status = 200, body = WorkerDetail), (status = 404, description = "No such worker.", body = Problem),
              (status = 409, description = "A resource manager drained it.", body = Problem)))]
pub async fn resume(
    State(fleets): State<Fleets>,
    only::Operator(caller): only::Operator,
    Part(worker): Part<String>,
) -> Result<Json<WorkerDetail>, Rejection> {
    Ok(Json(fleets.resume(&WorkerId(worker), &caller).await?))
}
