//! Streams over HTTP.

mod following;
mod hosts;
mod text;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use mutirao_core::Problem;
use mutirao_core::declared::{Became, Wrong};
use mutirao_surface::paging::ByName;
use mutirao_surface::{Args, Body, IdempotencyKey, OpenApiRouter, Part, Rejection, UpTo, only};
use serde::Deserialize;

use crate::service::{PAGE_MAX, Streams};
use crate::store::Over;
use crate::view::{Explained, HostLine, Migrate, Migrating, Pushed, StreamDeployed, StreamLine, StreamView};
use text::Text;

/// Definitions that are checked at once.
const CHECKED_MAX: usize = 100;

pub fn routes() -> OpenApiRouter<Streams> {
    OpenApiRouter::new()
        .routes(mutirao_surface::routes!(deploy, list))
        .routes(mutirao_surface::routes!(check))
        .routes(mutirao_surface::routes!(hosts_list))
        .routes(mutirao_surface::routes!(hosts::beat))
        .routes(mutirao_surface::routes!(hosts::deliver))
        .routes(mutirao_surface::routes!(show, remove))
        .routes(mutirao_surface::routes!(graph))
        .routes(mutirao_surface::routes!(explain))
        .routes(mutirao_surface::routes!(pause))
        .routes(mutirao_surface::routes!(resume))
        .routes(mutirao_surface::routes!(migrate))
        .routes(mutirao_surface::routes!(push))
        .routes(mutirao_surface::routes!(following::events))
        .routes(mutirao_surface::routes!(following::tap))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct DeployArgs {
    /// Put it in the place of one of the same name that says something else. It begins anew.
    #[serde(default)]
    replace: bool,
}

impl DeployArgs {
    fn over(&self) -> Over {
        if self.replace { Over::Replace } else { Over::Refuse }
    }
}

/// Deploy a stream: its definition in YAML or JSON. The same again changes nothing.
#[utoipa::path(post, path = "/v1/streams", tag = "streams", params(DeployArgs),
    request_body(content = String, content_type = "application/yaml", description = "One definition, in YAML or JSON."),
    responses((status = 201, description = "It is there from now on.", body = StreamDeployed),
              (status = 200, description = "It was there, or is another now.", body = StreamDeployed),
              (status = 409, description = "There is one of that name that says something else.", body = Problem),
              (status = 422, description = "It cannot work; each fault has its line and column.", body = Problem)))]
async fn deploy(
    State(streams): State<Streams>,
    only::Operator(caller): only::Operator,
    Args(args): Args<DeployArgs>,
    Text(text): Text,
) -> Result<(StatusCode, Json<StreamDeployed>), Rejection> {
    let deployed = streams.deploy(&caller, &text, args.over()).await?;
    let status = if deployed.became == Became::Made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(deployed)))
}

/// What would be refused of these definitions, and why; nothing is written. At most 100.
#[utoipa::path(post, path = "/v1/check/streams", tag = "streams", params(DeployArgs), request_body = Vec<String>,
    responses((status = 200, description = "Those that cannot be deployed; none when all can.", body = Vec<Wrong>)))]
async fn check(
    State(streams): State<Streams>,
    only::Operator(caller): only::Operator,
    Args(args): Args<DeployArgs>,
    Body(UpTo(all)): Body<UpTo<CHECKED_MAX, String>>,
) -> Result<Json<Vec<Wrong>>, Rejection> {
    Ok(Json(streams.wrong(&caller, all, args.over()).await?))
}

/// Streams, by name.
#[utoipa::path(get, path = "/v1/streams", tag = "streams", params(ByName),
    responses((status = 200, description = "A page of them.", body = Vec<StreamLine>)))]
async fn list(
    State(streams): State<Streams>,
    only::Viewer(caller): only::Viewer,
    Args(args): Args<ByName>,
) -> Result<Json<Vec<StreamLine>>, Rejection> {
    let after = args.after.unwrap_or_default();
    Ok(Json(streams.streams(&caller, &after, args.limit.unwrap_or(PAGE_MAX)).await?))
}

/// A stream: its parts, where they are, and how they do.
#[utoipa::path(get, path = "/v1/streams/{name}", tag = "streams", params(("name" = String, Path)),
    responses((status = 200, description = "The stream.", body = StreamView),
              (status = 404, body = Problem, description = "No such stream.")))]
async fn show(
    State(streams): State<Streams>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
) -> Result<Json<StreamView>, Rejection> {
    Ok(Json(streams.stream(&caller, &name).await?))
}

/// Delete a stream, with all that it keeps. Its hosts stop first; then logs and snapshots go.
#[utoipa::path(delete, path = "/v1/streams/{name}", tag = "streams", params(("name" = String, Path)),
    responses((status = 204, description = "It is being taken down."),
              (status = 404, body = Problem, description = "No such stream.")))]
async fn remove(
    State(streams): State<Streams>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<StatusCode, Rejection> {
    streams.delete(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What its definition became: operators, stages, and the fields of what flows between them.
#[utoipa::path(get, path = "/v1/streams/{name}/graph", tag = "streams", params(("name" = String, Path)),
    responses((status = 200, description = "The graph.", body = Object),
              (status = 404, body = Problem, description = "No such stream.")))]
async fn graph(
    State(streams): State<Streams>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
) -> Result<Json<serde_json::Value>, Rejection> {
    let graph = streams.graph(&caller, &name).await?;
    Ok(Json(serde_json::to_value(graph).map_err(|_| Problem::internal())?))
}

/// Where each part is and why, what is in the way, and what happened last.
#[utoipa::path(get, path = "/v1/streams/{name}/explain", tag = "streams", params(("name" = String, Path)),
    responses((status = 200, description = "Part by part.", body = Explained),
              (status = 404, body = Problem, description = "No such stream.")))]
async fn explain(
    State(streams): State<Streams>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
) -> Result<Json<Explained>, Rejection> {
    Ok(Json(streams.explain(&caller, &name).await?))
}

/// Pause a stream: its sources take nothing, what is under way goes on to its end. One that is paused stays so.
#[utoipa::path(post, path = "/v1/streams/{name}/pause", tag = "streams", params(("name" = String, Path)),
    responses((status = 204, description = "It is paused."), (status = 404, body = Problem, description = "No such stream.")))]
async fn pause(
    State(streams): State<Streams>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<StatusCode, Rejection> {
    streams.pause(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Let a stream go on that was paused.
#[utoipa::path(post, path = "/v1/streams/{name}/resume", tag = "streams", params(("name" = String, Path)),
    responses((status = 204, description = "It goes on."), (status = 404, body = Problem, description = "No such stream.")))]
async fn resume(
    State(streams): State<Streams>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<StatusCode, Rejection> {
    streams.resume(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Move a replica of a stage to another host while it runs. Both run it until the other has caught up, so that nothing waits.
#[utoipa::path(post, path = "/v1/streams/{name}/migrate", tag = "streams", params(("name" = String, Path)),
    request_body = Migrate,
    responses((status = 202, description = "It is begun; `explain` tells how it goes.", body = Migrating),
              (status = 404, body = Problem, description = "No such stream, stage or host."),
              (status = 409, body = Problem, description = "It cannot go there, and why."),
              (status = 422, body = Problem, description = "A replica that there is not, or a source or sink.")))]
async fn migrate(
    State(streams): State<Streams>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
    Body(ask): Body<Migrate>,
) -> Result<(StatusCode, Json<Migrating>), Rejection> {
    Ok((StatusCode::ACCEPTED, Json(streams.migrate(&caller, &name, ask).await?)))
}

/// Push events to a source of kind http: one JSON object, an array of them, or one a line. In the log when answered.
#[utoipa::path(post, path = "/v1/streams/{name}/sources/{source}", tag = "streams",
    params(("name" = String, Path), ("source" = String, Path)),
    request_body(content = String, content_type = "application/json", description = "Events, at most a megabyte of them."),
    responses((status = 202, description = "How many were taken, and how many did not fit.", body = Pushed),
              (status = 404, body = Problem, description = "No such stream, or no such source."),
              (status = 409, body = Problem, description = "It is paused."),
              (status = 429, body = Problem, description = "The stream is held back by what is slow in it.")))]
async fn push(
    State(streams): State<Streams>,
    only::Operator(caller): only::Operator,
    Part((name, source)): Part<(String, String)>,
    IdempotencyKey(key): IdempotencyKey,
    text::Raw(events): text::Raw,
) -> Result<(StatusCode, Json<Pushed>), Rejection> {
    // Also when whoever pushes hangs up: what is numbered has to be in the log.
    let pushing = tokio::spawn(async move { streams.push(&caller, &name, &source, key, events).await });
    let pushed = pushing.await.map_err(|_| Problem::internal())??;
    Ok((StatusCode::ACCEPTED, Json(pushed)))
}

/// Hosts of streams, and how they are.
#[utoipa::path(get, path = "/v1/stream-hosts", tag = "streams",
    responses((status = 200, description = "All of them.", body = Vec<HostLine>)))]
async fn hosts_list(State(streams): State<Streams>, _: only::Viewer) -> Result<Json<Vec<HostLine>>, Rejection> {
    Ok(Json(streams.hosts().await?))
}
