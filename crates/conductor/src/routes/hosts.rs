//! What hosts of streams say over HTTP, each by the key that it was let in with.

use axum::Json;
use axum::extract::State;
use mutirao_core::Problem;
use mutirao_streams::wire::{Beat, Delivered, Delivery, Orders};
use mutirao_surface::{Body, Rejection, only};

use crate::service::Streams;

/// A host says how its parts are, and hears which it is to run: all of them, each second.
#[utoipa::path(post, path = "/v1/streams/beat", tag = "streams", request_body = Object,
    responses((status = 200, description = "What it is to run.", body = Object),
              (status = 403, body = Problem, description = "Not the key of a host of streams.")))]
pub(super) async fn beat(
    State(streams): State<Streams>,
    only::Node(caller): only::Node,
    Body(beat): Body<Beat>,
) -> Result<Json<Orders>, Rejection> {
    Ok(Json(streams.beat_of(&caller, beat).await?))
}

/// A host hands over rows of a sink that become keys or start flows. What comes twice counts once.
#[utoipa::path(post, path = "/v1/streams/deliver", tag = "streams", request_body = Object,
    responses((status = 200, description = "All is done, but for what is refused for good.", body = Object),
              (status = 403, body = Problem, description = "Not the key of a host of streams."),
              (status = 409, body = Problem, description = "The host was not given this sink.")))]
pub(super) async fn deliver(
    State(streams): State<Streams>,
    only::Node(caller): only::Node,
    Body(delivery): Body<Delivery>,
) -> Result<Json<Delivered>, Rejection> {
    // To its end also when the host hangs up.
    let delivering = tokio::spawn(async move { streams.deliver_of(&caller, delivery).await });
    Ok(Json(delivering.await.map_err(|_| Problem::internal())??))
}
