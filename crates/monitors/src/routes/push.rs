//! Where services call. Open to anybody who knows the token, which is in no log: a request is logged by its route.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use mutirao_core::Problem;
use mutirao_surface::{Args, OpenApiRouter, Part, Rejection, only};
use serde::Deserialize;

use crate::service::pushes::Said;
use crate::service::{MonitorView, Monitors};

pub fn open() -> OpenApiRouter<Monitors> {
    OpenApiRouter::new().routes(mutirao_surface::routes!(push, push_by_get))
}

pub fn closed() -> OpenApiRouter<Monitors> {
    OpenApiRouter::new().routes(mutirao_surface::routes!(renew))
}

/// Where a call comes from.
type Peer = Option<Extension<ConnectInfo<SocketAddr>>>;

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct PushArgs {
    /// up or down; up unless said.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    status: Said,
    /// Why, or anything worth knowing; the first 300 characters are kept.
    msg: Option<String>,
    /// How long it took, in milliseconds.
    ms: Option<u64>,
}

/// Say that a service is well, or is not. No login: the token says which it is. A token may call twice a second.
#[utoipa::path(post, path = "/v1/push/{token}", tag = "monitors", security(()), params(("token" = String, Path), PushArgs),
    responses((status = 204, description = "Written."), (status = 404, body = Problem, description = "No monitor has this token."),
              (status = 429, body = Problem, description = "Too often.")))]
async fn push(
    State(monitors): State<Monitors>,
    peer: Peer,
    Part(token): Part<String>,
    Args(args): Args<PushArgs>,
) -> Result<StatusCode, Rejection> {
    // Unknown only when no socket is involved.
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Extension(ConnectInfo(address))| address.ip());
    monitors.called(&token, peer, args.status, args.msg, args.ms).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The same, for those who can only fetch a page.
#[utoipa::path(get, path = "/v1/push/{token}", tag = "monitors", security(()), params(("token" = String, Path), PushArgs),
    responses((status = 204, description = "Written."), (status = 404, body = Problem, description = "No monitor has this token."),
              (status = 429, body = Problem, description = "Too often.")))]
async fn push_by_get(
    state: State<Monitors>,
    peer: Peer,
    token: Part<String>,
    args: Args<PushArgs>,
) -> Result<StatusCode, Rejection> {
    push(state, peer, token, args).await
}

/// Give a monitor that is called another token, shown in this answer only. The former is good no more.
#[utoipa::path(post, path = "/v1/monitors/{name}/token", tag = "monitors", params(("name" = String, Path)),
    responses((status = 200, description = "With its token.", body = MonitorView), (status = 404, body = Problem, description = "No such monitor."),
              (status = 409, body = Problem, description = "It is not one that is called.")))]
async fn renew(
    State(monitors): State<Monitors>,
    only::Operator(caller): only::Operator,
    Part(name): Part<String>,
) -> Result<Json<MonitorView>, Rejection> {
    Ok(Json(monitors.renew_token(&caller, &name).await?))
}
