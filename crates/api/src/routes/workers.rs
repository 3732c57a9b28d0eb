//! How workers get in, reach the broker, and are kept out.

use axum::extract::State;
use axum::http::{Extensions, StatusCode};
use axum::{Extension, Json};
use mutirao_core::auth::{Enrol, Enrolled, Enrolment, EnrolmentSpec, KeyView, Way};
use mutirao_core::job::Page;
use mutirao_core::{Problem, QueueName, WorkerId};
use mutirao_surface::{Args, Body, PageArgs, Part, Rejection, only};
use serde::Deserialize;

use super::{SharedParts, page_of};
use crate::auth::registry::Worker;
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
    let both = || Problem::invalid("streams", "whoever hosts streams makes no checks; make an enrolment for each");
    let duty = spec.duty().ok_or_else(both)?;
    let enrolment = parts.auth.invite(duty, &caller.id).await?;
    let enrolment = Enrolment { url: parts.url.clone(), ..enrolment };
    Ok((StatusCode::CREATED, Json(enrolment)))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EnrolArgs {
    /// The queue that the worker means to work for: a token for another is not spent.
    #[param(value_type = Option<String>)]
    queue: Option<QueueName>,
}

/// Makes a worker known by its key. The one-time token in the body is the proof, and is spent.
#[utoipa::path(post, path = "/v1/workers/enrol", tag = "workers", security(()), params(EnrolArgs), request_body = Enrol,
    responses(
        (status = 201, body = Enrolled),
        (status = 401, body = Problem, content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json", description = "Not valid, or the token is for another queue."),
))]
pub async fn enrol(
    State(parts): State<SharedParts>,
    extensions: Extensions,
    Args(args): Args<EnrolArgs>,
    Body(enrol): Body<Enrol>,
) -> Result<(StatusCode, Json<Enrolled>), Rejection> {
    match parts.auth.enrol(&enrol, args.queue).await {
        Ok(worker) => {
            tracing::info!(worker = %worker.id, duty = %worker.duty, name = worker.name, "a worker enrolled");
            let (queue, checks) = (worker.duty.queue().to_owned(), worker.duty.checks().cloned());
            let streams = worker.duty.is_streams();
            Ok((StatusCode::CREATED, Json(Enrolled { worker: worker.id, queue, checks, streams })))
        }
        Err(problem) => Err(parts.gate.count_failure(peer_of(&extensions), problem).into()),
    }
}

/// Says how this worker reaches the broker, with credentials made for it; those of a former answer are worthless from then
/// on. Role: node, signed.
#[utoipa::path(post, path = "/v1/workers/broker", tag = "workers", responses((status = 200, body = Way)))]
pub async fn broker(
    State(parts): State<SharedParts>,
    _: only::Node,
    worker: Option<Extension<Worker>>,
) -> Result<Json<Way>, Rejection> {
    let Extension(worker) = worker.ok_or_else(|| Problem::forbidden("only an enrolled worker can ask this"))?;
    let way = parts.ways.open(&worker).await;
    // Somebody may have revoked it meanwhile, or in another process, where it is believed for a moment longer.
    if !parts.auth.is_enrolled_now(&worker.id).await? {
        close_way(&parts, &worker.id).await?;
        return Err(Problem::unauthenticated("this worker is not let in any more").into());
    }
    Ok(Json(way))
}

/// Lists the enrolled keys of workers, the oldest first, revoked ones among them. Role: admin.
#[utoipa::path(get, path = "/v1/workers/keys", tag = "workers", params(PageArgs), responses((status = 200, body = Page<KeyView>)))]
pub async fn keys(
    State(parts): State<SharedParts>,
    _: only::Admin,
    Args(page): Args<PageArgs>,
) -> Result<Json<Page<KeyView>>, Rejection> {
    let (rows, after) = (page.rows()?, page.after()?.unwrap_or(0));
    let found = parts.auth.workers(after, rows + 1).await?;
    Ok(Json(page_of(found, rows, Worker::view)))
}

/// Ends a worker's key. Its open link is closed within seconds, its user at RabbitMQ is gone, and what it held goes to
/// others. Role: admin.
#[utoipa::path(delete, path = "/v1/workers/keys/{worker}", tag = "workers", params(("worker" = String, Path)), responses(
    (status = 204),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn revoke_key(
    State(parts): State<SharedParts>,
    only::Admin(caller): only::Admin,
    Part(worker): Part<String>,
) -> Result<StatusCode, Rejection> {
    let worker = WorkerId(worker);
    parts.auth.revoke_worker(&worker, &caller.id).await?;
    close_way(&parts, &worker).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn close_way(parts: &SharedParts, worker: &WorkerId) -> Result<(), Problem> {
    let left = |why| {
        Problem::unavailable(format!(
            "the key is revoked, but the worker's way to the broker is open until its management answers: {why}"
        ))
        .remedy("nothing needs to be repeated: managers close it as soon as they can")
    };
    parts.ways.close(worker).await.map_err(left)
}
