//! How workers get in.

use axum::Json;
use axum::extract::State;
use axum::http::{Extensions, StatusCode};
use mutirao_core::Problem;
use mutirao_core::auth::{Enrol, Enrolled, Enrolment, EnrolmentSpec};
use mutirao_surface::{Body, Rejection, only};

use super::SharedParts;
use crate::layers::gate::peer_of;

/// Makes a one-time token that lets one worker in. Role: admin.
#[utoipa::path(post, path = "/v1/workers/enrolments", tag = "workers", request_body = EnrolmentSpec, responses(
    (status = 201, body = Enrolment),
    (status = 422, body = Problem, content_type = "application/problem+json"),
))]
pub async fn create_enrolment(
    State(parts): State<SharedParts>,
    only::Admin(caller): only::Admin,
    Body(spec): Body<EnrolmentSpec>,
) -> Result<(StatusCode, Json<Enrolment>), Rejection> {
    let enrolment = parts.auth.create_enrolment(&spec.queue, &caller.id).await?;
    Ok((StatusCode::CREATED, Json(enrolment)))
}

/// Makes a worker known by its key. The one-time token in the body is the proof, and is spent.
#[utoipa::path(post, path = "/v1/workers/enrol", tag = "workers", security(()), request_body = Enrol, responses(
    (status = 201, body = Enrolled),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn enrol(
    State(parts): State<SharedParts>,
    extensions: Extensions,
    Body(enrol): Body<Enrol>,
) -> Result<(StatusCode, Json<Enrolled>), Rejection> {
    match parts.auth.enrol(&enrol).await {
        Ok(worker) => {
            tracing::info!(worker = %worker.id, queue = %worker.queue, name = worker.name, "a worker enrolled");
            Ok((StatusCode::CREATED, Json(Enrolled { worker: worker.id, queue: worker.queue.to_string() })))
        }
        Err(problem) => Err(parts.gate.count_failure(peer_of(&extensions), problem).into()),
    }
}
