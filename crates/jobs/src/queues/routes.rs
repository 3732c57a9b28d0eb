//! Queues over HTTP.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use mutirao_core::Problem;
use mutirao_core::declared::Wrong;
use mutirao_core::id::QueueName;
use mutirao_queues::{Explanation, QueueSpec, QueueView};
use mutirao_surface::{Args, Body, OpenApiRouter, Part, Rejection, UpTo, only};
use serde::{Deserialize, Serialize};

use super::Precondition;
use crate::routes::unheard;
use crate::service::Jobs;
use crate::store::queues::{Put, Unfinished};

/// Queues looked at together.
const CHECKED_MAX: usize = 10_000;

pub fn routes(routes: OpenApiRouter<Jobs>) -> OpenApiRouter<Jobs> {
    routes
        .routes(mutirao_surface::routes!(create, list))
        .routes(mutirao_surface::routes!(show, replace, delete))
        .routes(mutirao_surface::routes!(pause))
        .routes(mutirao_surface::routes!(resume))
        .routes(mutirao_surface::routes!(explain))
        .routes(mutirao_surface::routes!(check))
}

/// Make a queue.
#[utoipa::path(post, path = "/v1/queues", tag = "queues", request_body = QueueSpec,
    responses((status = 201, description = "Made.", body = QueueView),
              (status = 409, description = "There is one of this name.", body = Problem),
              (status = 422, description = "Not valid; the field is named.", body = Problem)))]
async fn create(
    State(jobs): State<Jobs>,
    only::Admin(caller): only::Admin,
    Body(spec): Body<QueueSpec>,
) -> Result<(StatusCode, Json<QueueView>), Rejection> {
    let row = jobs.create_queue(&caller, spec).await?;
    Ok((StatusCode::CREATED, Json(jobs.view(row).await)))
}

/// Every queue, by name.
#[utoipa::path(get, path = "/v1/queues", tag = "queues",
    responses((status = 200, description = "All of them.", body = Vec<QueueView>,
        headers(("mutirao-unheard" = String, description = "Shards whose owner did not answer: their queues have no load.")))))]
async fn list(State(jobs): State<Jobs>, _: only::Viewer) -> Result<(HeaderMap, Json<Vec<QueueView>>), Rejection> {
    let (queues, silent) = jobs.queues().await?;
    Ok((unheard(&silent), Json(queues)))
}

/// One queue.
#[utoipa::path(get, path = "/v1/queues/{name}", tag = "queues", params(("name" = String, Path)),
    responses((status = 200, description = "The queue.", body = QueueView), (status = 404, body = Problem, description = "No such queue.")))]
async fn show(
    State(jobs): State<Jobs>,
    _: only::Viewer,
    Part(name): Part<QueueName>,
) -> Result<Json<QueueView>, Rejection> {
    Ok(Json(jobs.queue(&name).await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ReplaceArgs {
    /// The revision that the change is based on; refused if there is a later one. Without it, whatever is there.
    revision: Option<u64>,
}

/// Make a queue what the definition says, whether it was there or not. It acts at once on all that waits.
#[utoipa::path(put, path = "/v1/queues/{name}", tag = "queues", request_body = QueueSpec,
    params(("name" = String, Path), ReplaceArgs),
    responses((status = 200, description = "Changed.", body = QueueView), (status = 201, description = "Made.", body = QueueView),
              (status = 409, description = "It was changed by somebody else.", body = Problem),
              (status = 422, description = "Not valid; the field is named.", body = Problem)))]
async fn replace(
    State(jobs): State<Jobs>,
    only::Admin(caller): only::Admin,
    Part(name): Part<QueueName>,
    Args(args): Args<ReplaceArgs>,
    Body(spec): Body<QueueSpec>,
) -> Result<(StatusCode, Json<QueueView>), Rejection> {
    if spec.name != name {
        let detail = format!("the definition is of \"{}\", the path of \"{name}\"", spec.name);
        return Err(Problem::invalid("name", detail).remedy("a queue keeps its name").into());
    }
    let precondition = args.revision.map_or(Precondition::None, Precondition::Revision);
    let (status, row) = match jobs.replace_queue(&caller, spec, precondition).await? {
        Put::Created(row) => (StatusCode::CREATED, row),
        Put::Changed(row) => (StatusCode::OK, row),
        Put::Unexpected(_) => return Err(jobs.missing(&name).into()),
    };
    Ok((status, Json(jobs.view(row).await)))
}

/// Hand out nothing more. What is with workers goes on.
#[utoipa::path(post, path = "/v1/queues/{name}/pause", tag = "queues", params(("name" = String, Path)),
    responses((status = 200, description = "The queue as it is now.", body = QueueView), (status = 404, body = Problem, description = "No such queue.")))]
async fn pause(
    State(jobs): State<Jobs>,
    only::Operator(caller): only::Operator,
    Part(name): Part<QueueName>,
) -> Result<Json<QueueView>, Rejection> {
    let row = jobs.pause_queue(&caller, &name).await?;
    Ok(Json(jobs.view(row).await))
}

/// Hand out again.
#[utoipa::path(post, path = "/v1/queues/{name}/resume", tag = "queues", params(("name" = String, Path)),
    responses((status = 200, description = "The queue as it is now.", body = QueueView), (status = 404, body = Problem, description = "No such queue.")))]
async fn resume(
    State(jobs): State<Jobs>,
    only::Operator(caller): only::Operator,
    Part(name): Part<QueueName>,
) -> Result<Json<QueueView>, Rejection> {
    let row = jobs.resume_queue(&caller, &name).await?;
    Ok(Json(jobs.view(row).await))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct DeleteArgs {
    /// Cancel its unfinished jobs; without it, a queue that has any stays.
    cancel: Option<bool>,
}

/// What a deletion did.
#[derive(Serialize, utoipa::ToSchema)]
struct Cancelled {
    /// Jobs that were cancelled with it.
    cancelled: u64,
}

/// Delete a queue.
#[utoipa::path(delete, path = "/v1/queues/{name}", tag = "queues", params(("name" = String, Path), DeleteArgs),
    responses((status = 200, description = "Gone.", body = Cancelled), (status = 404, body = Problem, description = "No such queue."),
              (status = 409, body = Problem, description = "It has unfinished jobs, or is always there.")))]
async fn delete(
    State(jobs): State<Jobs>,
    only::Admin(caller): only::Admin,
    Part(name): Part<QueueName>,
    Args(args): Args<DeleteArgs>,
) -> Result<Json<Cancelled>, Rejection> {
    let unfinished = if args.cancel == Some(true) { Unfinished::Cancel } else { Unfinished::Refuse };
    let cancelled = jobs.delete_queue(&caller, &name, unfinished).await?;
    Ok(Json(Cancelled { cancelled }))
}

/// Why tasks of a queue do not run, and what would let them.
#[utoipa::path(get, path = "/v1/queues/{name}/explain", tag = "queues", params(("name" = String, Path)),
    responses((status = 200, description = "In words.", body = Explanation), (status = 404, body = Problem, description = "No such queue.")))]
async fn explain(
    State(jobs): State<Jobs>,
    _: only::Viewer,
    Part(name): Part<QueueName>,
) -> Result<Json<Explanation>, Rejection> {
    Ok(Json(jobs.explain_queue(&name).await?))
}

/// What would be refused of these queues, and why; nothing is written. At most 10,000.
#[utoipa::path(post, path = "/v1/check/queues", tag = "queues", request_body = Vec<QueueSpec>,
    responses((status = 200, description = "Those that cannot work; none when all can.", body = Vec<Wrong>)))]
async fn check(
    State(jobs): State<Jobs>,
    _: only::Admin,
    Body(UpTo(all)): Body<UpTo<CHECKED_MAX, QueueSpec>>,
) -> Json<Vec<Wrong>> {
    Json(jobs.wrong_queues(&all).await)
}
