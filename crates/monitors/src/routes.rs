//! Monitors over HTTP.

mod alerts;
mod push;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use mutirao_core::declared::Wrong;
use mutirao_core::{Problem, Timestamp};
use mutirao_surface::paging::ByName;
use mutirao_surface::{Args, Body, OpenApiRouter, Part, Rejection, UpTo, keeps_its_name, only};
use serde::Deserialize;

use crate::rollup::Step;
use crate::service::declaring::{DECLARED_MAX, Declaration, Declared, Draft};
use crate::service::{Based, History, MonitorView, Monitors, PAGE_MAX, Tried};
use crate::spec::MonitorSpec;
use crate::store::Put;

pub fn routes() -> OpenApiRouter<Monitors> {
    OpenApiRouter::new()
        .routes(mutirao_surface::routes!(create, list, declare))
        .routes(mutirao_surface::routes!(show, replace, remove))
        .routes(mutirao_surface::routes!(pause))
        .routes(mutirao_surface::routes!(resume))
        .routes(mutirao_surface::routes!(run))
        .routes(mutirao_surface::routes!(history))
        .routes(mutirao_surface::routes!(check))
        .merge(alerts::routes())
        .merge(push::closed())
}

/// Those that answer anybody.
pub fn open() -> OpenApiRouter<Monitors> {
    push::open()
}

/// Make a monitor. It is checked from its next instant on.
#[utoipa::path(post, path = "/v1/monitors", tag = "monitors", request_body = Object,
    responses((status = 201, description = "Made.", body = MonitorView),
              (status = 409, description = "There is one of this name.", body = Problem),
              (status = 422, description = "It cannot work; the field is named.", body = Problem)))]
async fn create(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Body(spec): Body<MonitorSpec>,
) -> Result<(StatusCode, Json<MonitorView>), Rejection> {
    let (view, _) = monitors.put(&caller, spec, Based::OnNothing).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

/// Make many monitors what their definitions say, whether they were there or not: all of them, or none. At most 10,000.
#[utoipa::path(put, path = "/v1/monitors", tag = "monitors", request_body = Vec<Object>,
    responses((status = 200, description = "What became of each, in their order.", body = Vec<Declaration>),
              (status = 409, description = "Some were changed by somebody else; nothing was written.", body = Problem),
              (status = 422, description = "Some cannot work; each is named.", body = Problem)))]
async fn declare(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Body(UpTo(all)): Body<UpTo<DECLARED_MAX, Declared>>,
) -> Result<Json<Vec<Declaration>>, Rejection> {
    Ok(Json(monitors.declare(&caller, all).await?))
}

/// What would be refused of these monitors, and why; nothing is written. At most 10,000.
#[utoipa::path(post, path = "/v1/check/monitors", tag = "monitors", request_body = Object,
    responses((status = 200, description = "Those that cannot work; none when all can.", body = Vec<Wrong>)))]
async fn check(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Body(draft): Body<Draft>,
) -> Result<Json<Vec<Wrong>>, Rejection> {
    Ok(Json(monitors.wrong_monitors(&caller, draft).await?))
}

/// Monitors, by name.
#[utoipa::path(get, path = "/v1/monitors", tag = "monitors", params(ByName),
    responses((status = 200, description = "A page of them.", body = Vec<MonitorView>)))]
async fn list(
    State(monitors): State<Monitors>,
    only::Viewer(caller): only::Viewer,
    Args(args): Args<ByName>,
) -> Result<Json<Vec<MonitorView>>, Rejection> {
    let after = args.after.unwrap_or_default();
    Ok(Json(monitors.page(&caller, &after, args.limit.unwrap_or(PAGE_MAX)).await?))
}

/// One monitor.
#[utoipa::path(get, path = "/v1/monitors/{name}", tag = "monitors", params(("name" = String, Path)),
    responses((status = 200, description = "The monitor.", body = MonitorView), (status = 404, body = Problem, description = "No such monitor.")))]
async fn show(
    State(monitors): State<Monitors>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
) -> Result<Json<MonitorView>, Rejection> {
    Ok(Json(monitors.monitor(&caller, &name).await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ReplaceArgs {
    /// The revision that the change is based on; refused if there is a later one. Without it, whatever is there.
    revision: Option<u64>,
}

/// Make a monitor what the definition says, whether it was there or not. Every scheduler goes by it within a second.
#[utoipa::path(put, path = "/v1/monitors/{name}", tag = "monitors", request_body = Object,
    params(("name" = String, Path), ReplaceArgs),
    responses((status = 200, description = "Changed.", body = MonitorView), (status = 201, description = "Made.", body = MonitorView),
              (status = 409, description = "It was changed by somebody else.", body = Problem),
              (status = 422, description = "It cannot work; the field is named.", body = Problem)))]
async fn replace(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
    Args(args): Args<ReplaceArgs>,
    Body(spec): Body<MonitorSpec>,
) -> Result<(StatusCode, Json<MonitorView>), Rejection> {
    keeps_its_name("monitor", &spec.name, &name)?;
    let (view, put) = monitors.put(&caller, spec, args.revision.map_or(Based::OnAnything, Based::On)).await?;
    let status = if matches!(put, Put::Created(_)) { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(view)))
}

/// Remove a monitor. Its history goes with what is too old to be kept.
#[utoipa::path(delete, path = "/v1/monitors/{name}", tag = "monitors", params(("name" = String, Path)),
    responses((status = 204, description = "Gone."), (status = 404, body = Problem, description = "No such monitor.")))]
async fn remove(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<StatusCode, Rejection> {
    monitors.remove(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Check it no more, for now.
#[utoipa::path(post, path = "/v1/monitors/{name}/pause", tag = "monitors", params(("name" = String, Path)),
    responses((status = 200, description = "As it is now.", body = MonitorView), (status = 404, body = Problem, description = "No such monitor.")))]
async fn pause(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<Json<MonitorView>, Rejection> {
    Ok(Json(monitors.pause(&caller, &name).await?))
}

/// Check it again.
#[utoipa::path(post, path = "/v1/monitors/{name}/resume", tag = "monitors", params(("name" = String, Path)),
    responses((status = 200, description = "As it is now.", body = MonitorView), (status = 404, body = Problem, description = "No such monitor.")))]
async fn resume(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<Json<MonitorView>, Rejection> {
    Ok(Json(monitors.resume(&caller, &name).await?))
}

/// Make one check now, from the manager that is asked. Nothing of it is written.
#[utoipa::path(post, path = "/v1/monitors/{name}/run", tag = "monitors", params(("name" = String, Path)),
    responses((status = 200, description = "How it ended.", body = Tried), (status = 404, body = Problem, description = "No such monitor.")))]
async fn run(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<Json<Tried>, Rejection> {
    Ok(Json(monitors.try_now(&caller, &name).await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct HistoryArgs {
    /// Milliseconds since 1970: outcomes before this moment.
    before: Option<i64>,
    /// How many, at most 1,000; 100 unless said.
    limit: Option<u32>,
    /// minute, hour or day: what outcomes came to, instead of each of them.
    #[param(value_type = Option<String>)]
    by: Option<Step>,
}

/// What is remembered of a monitor: outcomes, incidents, how much of the time it was up.
#[utoipa::path(get, path = "/v1/monitors/{name}/history", tag = "monitors", params(("name" = String, Path), HistoryArgs),
    responses((status = 200, description = "The latest first.", body = History), (status = 404, body = Problem, description = "No such monitor.")))]
async fn history(
    State(monitors): State<Monitors>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
    Args(args): Args<HistoryArgs>,
) -> Result<Json<History>, Rejection> {
    if let Some(by) = args.by {
        return Ok(Json(monitors.sums(&caller, &name, by, args.limit.unwrap_or(100)).await?));
    }
    Ok(Json(monitors.history(&caller, &name, args.before.map(Timestamp), args.limit.unwrap_or(100)).await?))
}
