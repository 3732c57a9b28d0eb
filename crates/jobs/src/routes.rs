//! Jobs over HTTP.

mod dead;
mod events;
mod everything;
mod letters;
mod lines;
mod logs;
mod tasks;
mod unreadable;
mod whole;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use mutirao_core::auth::Principal;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::job::{JobSpec, JobState, JobView, Page};
use mutirao_core::{Problem, ShardId};
use mutirao_store::refused;
use mutirao_surface::{
    Args, Body, IdempotencyKey, OpenApiRouter, PageArgs, Part, Rejection, TraceId, Wish, only, paging,
};
use serde::Deserialize;

use crate::queues;
use crate::service::{Jobs, Submitted};
use crate::store::JobFilter;
use crate::traces::Submitting;

/// In answers that lack something, because the owner of a shard did not speak.
const UNHEARD: HeaderName = HeaderName::from_static("mutirao-unheard");

pub fn routes(jobs: Jobs) -> OpenApiRouter {
    queues::routes::routes(OpenApiRouter::new())
        .routes(mutirao_surface::routes!(submit, list))
        .routes(mutirao_surface::routes!(unreadable::list))
        .routes(mutirao_surface::routes!(show))
        .routes(mutirao_surface::routes!(cancel))
        .routes(mutirao_surface::routes!(events::follow))
        .routes(mutirao_surface::routes!(everything::follow))
        .routes(mutirao_surface::routes!(tasks::list))
        .routes(mutirao_surface::routes!(tasks::show))
        .routes(mutirao_surface::routes!(tasks::cancel))
        .routes(mutirao_surface::routes!(tasks::explain))
        .routes(mutirao_surface::routes!(logs::read))
        .routes(mutirao_surface::routes!(whole::read))
        .routes(mutirao_surface::routes!(dead::list))
        .routes(mutirao_surface::routes!(dead::retry_job))
        .routes(mutirao_surface::routes!(dead::retry_task))
        .routes(mutirao_surface::routes!(dead::retry_queue))
        .routes(mutirao_surface::routes!(letters::count))
        .routes(mutirao_surface::routes!(letters::list_by, letters::remove_all_by))
        .routes(mutirao_surface::routes!(letters::remove_one_by))
        .routes(mutirao_surface::routes!(letters::list, letters::remove_all))
        .routes(mutirao_surface::routes!(letters::remove_one))
        .with_state(jobs)
}

/// The job, if it is there and in the caller's namespace: another's jobs do not exist for it.
pub(crate) async fn visible(jobs: &Jobs, caller: &Principal, key: JobKey) -> Result<JobView, Rejection> {
    let (view, namespace) = jobs.job(key).await?;
    if namespace != caller.namespace {
        return Err(Problem::not_found(format!("there is no job {key}")).into());
    }
    Ok(view)
}

/// The event that a client heard last, when it comes back.
fn last_event_id(headers: &HeaderMap) -> Option<String> {
    headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty()).map(str::to_owned)
}

/// Submit a job: one task or many, accepted whole or not at all.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", request_body = JobSpec,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key and body give the same job, once.")),
    responses((status = 201, description = "Accepted and durable.", body = JobView),
              (status = 200, description = "The same request came before, or (`joined`) an open job has its unique key.", body = JobView),
              (status = 409, description = "The key was used for another request.", body = Problem),
              (status = 422, description = "Not valid; the field is named.", body = Problem),
              (status = 429, description = "Too much waits already.", body = Problem)))]
async fn submit(
    State(jobs): State<Jobs>,
    only::Operator(caller): only::Operator,
    IdempotencyKey(key): IdempotencyKey,
    TraceId(trace): TraceId,
    Wish(followed): Wish,
    Body(spec): Body<JobSpec>,
) -> Result<(StatusCode, Json<JobView>), Rejection> {
    let submitting = followed.map(|followed| Submitting::begin(followed, &*jobs.0.clock));
    let trace = submitting.as_ref().map_or(trace, Submitting::trace);
    let submitted = jobs.submit(&caller, spec, key, trace).await;
    if let Some(submitting) = submitting {
        submitting.end(submitted.as_ref().map(Submitted::view), &*jobs.0.clock);
    }
    match submitted? {
        Submitted::New(view) => Ok((StatusCode::CREATED, Json(view))),
        Submitted::Before(view) | Submitted::Joined(view) => Ok((StatusCode::OK, Json(view))),
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    /// Only jobs in this state.
    state: Option<JobState>,
    /// Only jobs of this queue.
    #[param(value_type = Option<String>)]
    queue: Option<QueueName>,
    /// Only jobs of this name.
    name: Option<String>,
    /// Only jobs with this label, as `team=physics`.
    label: Option<String>,
    #[serde(flatten)]
    #[param(ignore)]
    page: PageArgs,
}

/// Jobs, newest first.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(ListArgs, PageArgs),
    responses((status = 200, description = "A page.", body = Page<JobView>,
        headers(("mutirao-unheard" = String, description = "Shards whose owner did not answer: what runs there is counted as ready.")))))]
async fn list(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Args(args): Args<ListArgs>,
) -> Result<(HeaderMap, Json<Page<JobView>>), Rejection> {
    let limit = args.page.rows()?;
    let pair = |text: String| match text.split_once('=') {
        Some((label, value)) => Ok((label.to_owned(), value.to_owned())),
        None => Err(Problem::invalid("label", format!("\"{text}\" has no value")).remedy("write it like team=physics")),
    };
    let label = args.label.map(pair).transpose()?;
    let filter = JobFilter {
        namespace: caller.namespace.clone(),
        state: args.state,
        queue: args.queue,
        name: args.name,
        label,
        before: args.page.after()?,
        limit: limit + 1,
    };
    let mut items = jobs.0.store.jobs(filter).await.map_err(refused)?;
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = more.then(|| items.last().map(|job| paging::encode(&job.id))).flatten();
    let silent = jobs.stand_all(&mut items).await;
    if let Some(state) = args.state {
        // Waiting and running are told apart by what the desk knows.
        items.retain(|view| view.state == state);
    }
    Ok((unheard(&silent), Json(Page { items, next })))
}

/// Says which shards' owners did not answer, so that what they know is missing from a list.
pub(crate) fn unheard(silent: &[ShardId]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !silent.is_empty() {
        let shards = silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        headers.extend(HeaderValue::from_str(&shards).ok().map(|shards| (UNHEARD, shards)));
    }
    headers
}

/// One job, with its tasks counted by state.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The job.", body = JobView), (status = 404, body = Problem, description = "No such job.")))]
async fn show(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Part(id): Part<JobKey>,
) -> Result<Json<JobView>, Rejection> {
    let mut view = visible(&jobs, &caller, id).await?;
    view.task = match jobs.0.store.card(id).await {
        Ok(card) => card.map(|card| (*card.spec).clone()),
        // The view says why.
        Err(_) if jobs.0.store.unreadable(id).await.map_err(refused)?.is_some() => None,
        Err(error) => return Err(refused(error).into()),
    };
    Ok(Json(view))
}

/// Cancel every task of a job that has not ended. Running ones are stopped.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The job as it is now.", body = JobView), (status = 404, body = Problem, description = "No such job.")))]
async fn cancel(
    State(jobs): State<Jobs>,
    only::Operator(caller): only::Operator,
    Part(id): Part<JobKey>,
) -> Result<Json<JobView>, Rejection> {
    visible(&jobs, &caller, id).await?;
    Ok(Json(jobs.cancel_job(id).await?))
}
