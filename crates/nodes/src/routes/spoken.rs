//! What nodes say by HTTP, for those that speak nothing else: the same words as everywhere, at paths made of the same
//! names with slashes. They show the user's name and password of a device, as HTTP's basic credentials.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mutirao_core::Problem;
use mutirao_probes::reach::is_loopback;
use mutirao_surface::Rejection;

use crate::preference::Protocol;
use crate::switchboard::{Heard, Said, Switchboard, Voice};
use crate::wire::MESSAGE_BYTES_MAX;

/// What cannot be taken is worth another try after this.
const AGAIN: Duration = Duration::from_secs(1);

pub fn routes(board: Switchboard) -> Router {
    let places = board.places();
    let paths = [places.register(), places.results(), places.results_misprinted(), places.requests()];
    let router = paths
        .iter()
        .fold(Router::new(), |router, place| router.route(&format!("/{}", place.replace('.', "/")), post(say)));
    router.layer(DefaultBodyLimit::max(MESSAGE_BYTES_MAX)).with_state(board)
}

async fn say(State(board): State<Switchboard>, headers: HeaderMap, request: Request) -> Result<Response, Rejection> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let Some(kind) = board.places().kind_of(&path) else {
        return Err(Problem::not_found("nothing is said here").into());
    };
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
    let near = peer.is_some_and(is_loopback) && !is_passed_on(&headers);
    let voice = Voice { near, ..voice(&board, &headers).await? };
    let bytes = Bytes::from_request(request, &()).await;
    let bytes = bytes.map_err(|_| Problem::malformed("the body is too long, or ended early"))?;
    let Some(_turn) = board.turn().await else { return Err(Problem::unavailable("the manager is going down").into()) };
    let said = Said { kind, place: &path, over: Protocol::Http, bytes: &bytes, voice };
    match board.hear(said).await {
        Ok(Heard::Registered(ack)) => Ok(Json(ack).into_response()),
        Ok(Heard::Taken) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(Heard::Refused(why)) => Err(Problem::new(422, "refused", "this was refused").detail(why).into()),
        Err(problem) => Err(Problem::busy(problem.line(), AGAIN.as_secs()).into()),
    }
}

/// By a proxy, which may be on this machine for those that are not.
fn is_passed_on(headers: &HeaderMap) -> bool {
    ["forwarded", "x-forwarded-for", "x-real-ip", "via"].iter().any(|name| headers.contains_key(*name))
}

/// Who speaks. One that shows nothing is heard only where that is allowed, as everywhere.
async fn voice(board: &Switchboard, headers: &HeaderMap) -> Result<Voice, Problem> {
    let wrong = || Problem::unauthenticated("the device's name or password is wrong");
    let Some(shown) = headers.get(header::AUTHORIZATION) else {
        return Ok(Voice::nobody());
    };
    let basic = shown.to_str().ok().and_then(|text| text.strip_prefix("Basic ")).ok_or_else(wrong)?;
    let pair = STANDARD.decode(basic.trim()).map_err(|_| wrong())?;
    // Names of devices may have colons in them; passwords of ours never do.
    let at = pair.iter().rposition(|byte| *byte == b':').ok_or_else(wrong)?;
    let name = std::str::from_utf8(&pair[..at]).map_err(|_| wrong())?;
    let device = board.device_of(name, &pair[at + 1..]).await?.ok_or_else(wrong)?;
    Ok(Voice::of_device(&device))
}
