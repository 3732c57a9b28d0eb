//! Channels and alerts over HTTP.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use mutirao_core::Problem;
use mutirao_core::declared::Wrong;
use mutirao_surface::{Args, Body, OpenApiRouter, Part, Rejection, UpTo, only};
use serde::Deserialize;

use crate::alerts::channel::ChannelSpec;
use crate::alerts::{Acknowledged, Silence};
use crate::service::Monitors;
use crate::service::alerts::{AlertView, CHANNELS_MAX, ChannelView, Removal, SilenceSpec};

pub fn routes() -> OpenApiRouter<Monitors> {
    OpenApiRouter::new()
        .routes(mutirao_surface::routes!(channels))
        .routes(mutirao_surface::routes!(channel, put_channel, remove_channel))
        .routes(mutirao_surface::routes!(test_channel))
        .routes(mutirao_surface::routes!(check_channels))
        .routes(mutirao_surface::routes!(alerts))
        .routes(mutirao_surface::routes!(acknowledge))
        .routes(mutirao_surface::routes!(silence, unsilence))
}

/// Channels, by name. What is secret in them is not shown.
#[utoipa::path(get, path = "/v1/channels", tag = "monitors",
    responses((status = 200, description = "All of them.", body = Vec<ChannelView>)))]
async fn channels(
    State(monitors): State<Monitors>,
    only::Viewer(caller): only::Viewer,
) -> Result<Json<Vec<ChannelView>>, Rejection> {
    Ok(Json(monitors.channels(&caller).await?))
}

/// One channel. What is secret in it is not shown.
#[utoipa::path(get, path = "/v1/channels/{name}", tag = "monitors", params(("name" = String, Path)),
    responses((status = 200, description = "The channel.", body = ChannelView), (status = 404, body = Problem, description = "No such channel.")))]
async fn channel(
    State(monitors): State<Monitors>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
) -> Result<Json<ChannelView>, Rejection> {
    Ok(Json(monitors.channel(&caller, &name).await?))
}

/// Make a channel what the definition says. What is written as it is shown stays as it is.
#[utoipa::path(put, path = "/v1/channels/{name}", tag = "monitors", request_body = Object, params(("name" = String, Path)),
    responses((status = 200, description = "As it is now.", body = ChannelView),
              (status = 422, description = "It cannot work; the field is named.", body = Problem)))]
async fn put_channel(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
    Body(spec): Body<ChannelSpec>,
) -> Result<Json<ChannelView>, Rejection> {
    if spec.name != name {
        return Err(Problem::invalid("name", "the definition is of another channel than the path").into());
    }
    Ok(Json(monitors.put_channel(&caller, spec).await?))
}

/// What would be refused of these channels, and why; nothing is written. At most 1,000.
#[utoipa::path(post, path = "/v1/check/channels", tag = "monitors", request_body = Vec<Object>,
    responses((status = 200, description = "Those that cannot work; none when all can.", body = Vec<Wrong>)))]
async fn check_channels(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Body(UpTo(all)): Body<UpTo<CHANNELS_MAX, ChannelSpec>>,
) -> Result<Json<Vec<Wrong>>, Rejection> {
    Ok(Json(monitors.wrong_channels(&caller, all).await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct RemoveArgs {
    /// Also when monitors tell it: their alerts are given up.
    #[serde(default)]
    force: bool,
}

/// Remove a channel that no monitor tells. What waits for it is given up.
#[utoipa::path(delete, path = "/v1/channels/{name}", tag = "monitors", params(("name" = String, Path), RemoveArgs),
    responses((status = 204, description = "Gone."), (status = 404, body = Problem, description = "No such channel."),
              (status = 409, body = Problem, description = "Monitors tell it.")))]
async fn remove_channel(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
    Args(args): Args<RemoveArgs>,
) -> Result<StatusCode, Rejection> {
    let whether = if args.force { Removal::Anyway } else { Removal::IfUnused };
    monitors.remove_channel(&caller, &name, whether).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send something harmless through a channel, now.
#[utoipa::path(post, path = "/v1/channels/{name}/test", tag = "monitors", params(("name" = String, Path)),
    responses((status = 204, description = "It was taken."), (status = 404, body = Problem, description = "No such channel."),
              (status = 502, body = Problem, description = "It was not taken; why is said.")))]
async fn test_channel(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<StatusCode, Rejection> {
    monitors.test_channel(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct AlertsArgs {
    /// How many, at most 1,000; 100 unless said.
    limit: Option<u32>,
}

/// Alerts of a monitor, and what came of them.
#[utoipa::path(get, path = "/v1/monitors/{name}/alerts", tag = "monitors", params(("name" = String, Path), AlertsArgs),
    responses((status = 200, description = "The latest first.", body = Vec<AlertView>), (status = 404, body = Problem, description = "No such monitor.")))]
async fn alerts(
    State(monitors): State<Monitors>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
    Args(args): Args<AlertsArgs>,
) -> Result<Json<Vec<AlertView>>, Rejection> {
    Ok(Json(monitors.alerts(&caller, &name, args.limit.unwrap_or(100)).await?))
}

/// Say that somebody takes care of the incident that is open: nobody is reminded of it any more.
#[utoipa::path(post, path = "/v1/monitors/{name}/ack", tag = "monitors", params(("name" = String, Path)),
    responses((status = 200, description = "Written.", body = Acknowledged), (status = 404, body = Problem, description = "No such monitor."),
              (status = 409, body = Problem, description = "No incident is open.")))]
async fn acknowledge(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<Json<Acknowledged>, Rejection> {
    Ok(Json(monitors.acknowledge(&caller, &name).await?))
}

/// Tell nobody anything for a while. What opens meanwhile is told at the end, if it is still open.
#[utoipa::path(put, path = "/v1/monitors/{name}/silence", tag = "monitors", params(("name" = String, Path)), request_body = SilenceSpec,
    responses((status = 200, description = "Written.", body = Silence), (status = 404, body = Problem, description = "No such monitor.")))]
async fn silence(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
    Body(spec): Body<SilenceSpec>,
) -> Result<Json<Silence>, Rejection> {
    Ok(Json(monitors.silence(&caller, &name, spec).await?))
}

/// End a silence.
#[utoipa::path(delete, path = "/v1/monitors/{name}/silence", tag = "monitors", params(("name" = String, Path)),
    responses((status = 204, description = "It is over."), (status = 404, body = Problem, description = "No such monitor.")))]
async fn unsilence(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<StatusCode, Rejection> {
    monitors.unsilence(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
