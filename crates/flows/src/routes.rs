//! Flows over HTTP.

mod events;

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use mutirao_core::Problem;
use mutirao_core::declared::{Became, Wrong};
use mutirao_core::quantity::Span;
use mutirao_surface::paging::ByName;
use mutirao_surface::{Args, Body, IdempotencyKey, OpenApiRouter, Part, Rejection, UpTo, keeps_its_name, only};
use serde::Deserialize;
use serde_json::Value;

use crate::FlowSpec;
use crate::service::{Flows, PAGE_MAX};
use crate::start::RunRequest;
use crate::store::FLOWS_AT_ONCE;
use crate::view::{FlowDeclared, FlowView, RunExplained, RunLine, RunView};

pub fn routes() -> OpenApiRouter<Flows> {
    OpenApiRouter::new()
        .routes(mutirao_surface::routes!(declare, list))
        .routes(mutirao_surface::routes!(show, replace, remove))
        .routes(mutirao_surface::routes!(run, runs_of))
        .routes(mutirao_surface::routes!(runs))
        .routes(mutirao_surface::routes!(show_run))
        .routes(mutirao_surface::routes!(cancel))
        .routes(mutirao_surface::routes!(explain))
        .routes(mutirao_surface::routes!(events::follow))
        .routes(mutirao_surface::routes!(check))
}

/// Make flows what their definitions say, whether they were there or not: all of them, or none.
#[utoipa::path(put, path = "/v1/flows", tag = "flows", request_body = Vec<Object>,
    responses((status = 200, description = "What became of each, in their order.", body = Vec<FlowDeclared>),
              (status = 422, description = "Some cannot work; each is named.", body = Problem)))]
async fn declare(
    State(flows): State<Flows>,
    only::Operator(caller): only::Operator,
    Body(UpTo(all)): Body<UpTo<FLOWS_AT_ONCE, FlowSpec>>,
) -> Result<Json<Vec<FlowDeclared>>, Rejection> {
    Ok(Json(flows.declare(&caller, all).await?))
}

/// What would be refused of these flows, and why; nothing is written. At most 1,000.
#[utoipa::path(post, path = "/v1/check/flows", tag = "flows", request_body = Vec<Object>,
    responses((status = 200, description = "Those that cannot work; none when all can.", body = Vec<Wrong>)))]
async fn check(
    State(flows): State<Flows>,
    _: only::Operator,
    Body(UpTo(all)): Body<UpTo<FLOWS_AT_ONCE, FlowSpec>>,
) -> Json<Vec<Wrong>> {
    Json(flows.wrong_flows(&all).await)
}

/// Flows, by name.
#[utoipa::path(get, path = "/v1/flows", tag = "flows", params(ByName),
    responses((status = 200, description = "A page of them.", body = Vec<FlowView>)))]
async fn list(
    State(flows): State<Flows>,
    only::Viewer(caller): only::Viewer,
    Args(args): Args<ByName>,
) -> Result<Json<Vec<FlowView>>, Rejection> {
    let after = args.after.unwrap_or_default();
    Ok(Json(flows.flows(&caller, &after, args.limit.unwrap_or(PAGE_MAX)).await?))
}

/// One flow.
#[utoipa::path(get, path = "/v1/flows/{name}", tag = "flows", params(("name" = String, Path)),
    responses((status = 200, description = "The flow.", body = FlowView), (status = 404, body = Problem, description = "No such flow.")))]
async fn show(
    State(flows): State<Flows>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
) -> Result<Json<FlowView>, Rejection> {
    Ok(Json(flows.flow(&caller, &name).await?))
}

/// Make a flow what the definition says, whether it was there or not. Runs that began before go on as they were.
#[utoipa::path(put, path = "/v1/flows/{name}", tag = "flows", request_body = Object, params(("name" = String, Path)),
    responses((status = 200, description = "Changed.", body = FlowView), (status = 201, description = "Made.", body = FlowView),
              (status = 422, description = "It cannot work; the place is named.", body = Problem)))]
async fn replace(
    State(flows): State<Flows>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
    Body(spec): Body<FlowSpec>,
) -> Result<(StatusCode, Json<FlowView>), Rejection> {
    keeps_its_name("flow", &spec.name, &name)?;
    let made = flows.declare(&caller, vec![spec]).await?;
    let is_new = made.first().is_some_and(|one| one.became == Became::Made);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(flows.flow(&caller, &name).await?)))
}

/// Remove a flow. Its runs go on, and are kept as long as others.
#[utoipa::path(delete, path = "/v1/flows/{name}", tag = "flows", params(("name" = String, Path)),
    responses((status = 204, description = "Gone."), (status = 404, body = Problem, description = "No such flow.")))]
async fn remove(
    State(flows): State<Flows>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<StatusCode, Rejection> {
    flows.remove(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct RunBody {
    /// What steps see as `input`.
    #[serde(default)]
    #[schema(value_type = Object)]
    input: Value,
}

/// Run a flow. Durable when answered; with an `Idempotency-Key`, whoever asks again gets the same run.
#[utoipa::path(post, path = "/v1/flows/{name}/runs", tag = "flows", params(("name" = String, Path)), request_body = RunBody,
    responses((status = 202, description = "It will be run.", body = RunLine),
              (status = 404, body = Problem, description = "No such flow."),
              (status = 409, description = "The key was used for another run.", body = Problem),
              (status = 429, description = "Too many runs are under way, or they take too much memory.", body = Problem)))]
async fn run(
    State(flows): State<Flows>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
    IdempotencyKey(idempotency_key): IdempotencyKey,
    Body(body): Body<RunBody>,
) -> Result<(StatusCode, Json<RunLine>), Rejection> {
    let request = RunRequest { flow: name, input: body.input, idempotency_key };
    Ok((StatusCode::ACCEPTED, Json(flows.run(&caller, request).await?)))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct RunsArgs {
    /// Runs before this one: the last of the page before.
    before: Option<u64>,
    /// How many, at most 1,000.
    limit: Option<u32>,
}

/// Runs of a flow, newest first.
#[utoipa::path(get, path = "/v1/flows/{name}/runs", tag = "flows", params(("name" = String, Path), RunsArgs),
    responses((status = 200, description = "A page of them.", body = Vec<RunLine>)))]
async fn runs_of(
    State(flows): State<Flows>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
    Args(args): Args<RunsArgs>,
) -> Result<Json<Vec<RunLine>>, Rejection> {
    Ok(Json(flows.runs(&caller, Some(name), args.before, args.limit.unwrap_or(PAGE_MAX)).await?))
}

/// Runs of all flows, newest first.
#[utoipa::path(get, path = "/v1/runs", tag = "flows", params(RunsArgs),
    responses((status = 200, description = "A page of them.", body = Vec<RunLine>)))]
async fn runs(
    State(flows): State<Flows>,
    only::Viewer(caller): only::Viewer,
    Args(args): Args<RunsArgs>,
) -> Result<Json<Vec<RunLine>>, Rejection> {
    Ok(Json(flows.runs(&caller, None, args.before, args.limit.unwrap_or(PAGE_MAX)).await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct WaitArgs {
    /// How long to wait for its end, like `30s`; 50 seconds at most.
    #[param(value_type = Option<String>)]
    wait: Option<Span>,
}

/// A run, with what its steps gave so far.
#[utoipa::path(get, path = "/v1/runs/{run}", tag = "flows", params(("run" = u64, Path), WaitArgs),
    responses((status = 200, description = "The run.", body = RunView), (status = 404, body = Problem, description = "No such run.")))]
async fn show_run(
    State(flows): State<Flows>,
    only::Viewer(caller): only::Viewer,
    Part(run): Part<u64>,
    Args(args): Args<WaitArgs>,
) -> Result<Json<RunView>, Rejection> {
    Ok(Json(flows.show(&caller, run, args.wait.map_or(Duration::ZERO, |wait| wait.0)).await?))
}

/// End a run early. What its steps have done stays done.
#[utoipa::path(post, path = "/v1/runs/{run}/cancel", tag = "flows", params(("run" = u64, Path)),
    responses((status = 202, description = "It will end.", body = RunLine),
              (status = 404, body = Problem, description = "No such run."),
              (status = 409, description = "It has ended already.", body = Problem)))]
async fn cancel(
    State(flows): State<Flows>,
    only::Operator(caller): only::Operator,
    Part(run): Part<u64>,
) -> Result<(StatusCode, Json<RunLine>), Rejection> {
    Ok((StatusCode::ACCEPTED, Json(flows.cancel(&caller, run).await?)))
}

/// Where a run waits, and why each of its nodes was chosen.
#[utoipa::path(get, path = "/v1/runs/{run}/explain", tag = "flows", params(("run" = u64, Path)),
    responses((status = 200, description = "Step by step.", body = RunExplained),
              (status = 404, body = Problem, description = "No such run.")))]
async fn explain(
    State(flows): State<Flows>,
    only::Viewer(caller): only::Viewer,
    Part(run): Part<u64>,
) -> Result<Json<RunExplained>, Rejection> {
    Ok(Json(flows.explain(&caller, run).await?))
}
