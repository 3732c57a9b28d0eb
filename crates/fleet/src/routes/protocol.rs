//! The three protocols, as `elastic::protocol` has them. Only for resource managers, each request signed.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use mutirao_core::{Problem, QueueName, WorkerId};
use mutirao_elastic::protocol::{Balance, Create, Created, Fenced, Invitation, LeaseAnswer, LeaseCall, Offer, Record};
use mutirao_surface::{Body, Part, Rejection, only};

use super::Asker;
use crate::service::Fleets;

/// Who is the one that acts: a call to the store of leases, passed on. Role: elastic, signed.
#[utoipa::path(post, path = "/v1/elastic/lease", tag = "elastic", request_body(content = Object, description = "`LeaseCall`; see docs/elastic.md."),
    responses((status = 200, description = "`LeaseAnswer`.", body = Object), (status = 403, description = "The name is another's.", body = Problem),
        (status = 422, description = "Not valid.", body = Problem)))]
pub async fn lease(
    State(fleets): State<Fleets>,
    asker: Asker,
    Body(call): Body<LeaseCall>,
) -> Result<Json<LeaseAnswer>, Rejection> {
    Ok(Json(fleets.lease(call, &asker).await?))
}

/// The balance check: every elastic queue, its load, its workers, and what was kept. Role: elastic, signed.
#[utoipa::path(get, path = "/v1/elastic/balance", tag = "elastic",
    responses((status = 200, description = "`Balance`; what could not be asked is left out.", body = Object)))]
pub async fn balance(State(fleets): State<Fleets>, _: only::Elastic) -> Result<Json<Balance>, Rejection> {
    Ok(Json(fleets.balance().await?))
}

/// Creation: ids of workers and their records. The same request gives the same workers. Role: elastic, signed.
#[utoipa::path(post, path = "/v1/elastic/queues/{queue}/workers", tag = "elastic", params(("queue" = String, Path)),
    request_body(content = Object, description = "`Create`."),
    responses((status = 200, description = "`Created`.", body = Object),
              (status = 409, description = "Another has taken over (`not_the_owner`).", body = Problem)))]
pub async fn create(
    State(fleets): State<Fleets>,
    asker: Asker,
    Part(queue): Part<QueueName>,
    Body(create): Body<Create>,
) -> Result<Json<Created>, Rejection> {
    Ok(Json(fleets.create(queue, create, &asker).await?))
}

/// The one-time token to launch a worker with; the one before is worthless. Role: elastic, signed.
#[utoipa::path(post, path = "/v1/elastic/workers/{worker}/invitation", tag = "elastic", params(("worker" = String, Path)),
    request_body(content = Object, description = "`Fenced`."),
    responses((status = 200, description = "`Invitation`.", body = Object),
              (status = 404, description = "No record of it.", body = Problem),
              (status = 409, description = "Another has taken over (`not_the_owner`).", body = Problem)))]
pub async fn invitation(
    State(fleets): State<Fleets>,
    asker: Asker,
    Part(worker): Part<String>,
    Body(fenced): Body<Fenced>,
) -> Result<Json<Invitation>, Rejection> {
    Ok(Json(fleets.invitation(&WorkerId(worker), fenced, &asker).await?))
}

/// Removal: from here on nothing is handed to the worker. Role: elastic, signed.
#[utoipa::path(post, path = "/v1/elastic/workers/{worker}/drain", tag = "elastic", params(("worker" = String, Path)),
    request_body(content = Object, description = "`Fenced`."),
    responses((status = 204, description = "Written."), (status = 404, description = "No record of it.", body = Problem),
              (status = 409, description = "Another has taken over (`not_the_owner`).", body = Problem)))]
pub async fn drain(
    State(fleets): State<Fleets>,
    asker: Asker,
    Part(worker): Part<String>,
    Body(fenced): Body<Fenced>,
) -> Result<StatusCode, Rejection> {
    fleets.drain_recorded(&WorkerId(worker), fenced, &asker).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What was decided and done about a queue. Role: elastic, signed.
#[utoipa::path(put, path = "/v1/elastic/queues/{queue}", tag = "elastic", params(("queue" = String, Path)),
    request_body(content = Object, description = "`Record`."),
    responses((status = 204, description = "Written."),
              (status = 409, description = "Another has taken over (`not_the_owner`).", body = Problem)))]
pub async fn record(
    State(fleets): State<Fleets>,
    asker: Asker,
    Part(queue): Part<QueueName>,
    Body(record): Body<Record>,
) -> Result<StatusCode, Rejection> {
    fleets.record(queue, record, &asker).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The nodes there are and the sorts that could be had, whole. Role: elastic, signed.
#[utoipa::path(put, path = "/v1/elastic/offer", tag = "elastic", request_body(content = Object, description = "`Offer`."),
    responses((status = 204, description = "Written."),
              (status = 409, description = "Another has taken over (`not_the_owner`).", body = Problem)))]
pub async fn offer(
    State(fleets): State<Fleets>,
    asker: Asker,
    Body(offer): Body<Offer>,
) -> Result<StatusCode, Rejection> {
    fleets.offer(offer, &asker).await?;
    Ok(StatusCode::NO_CONTENT)
}
