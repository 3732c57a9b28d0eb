//! Jobs over HTTP.

mod events;
mod logs;
mod tasks;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::job::{JobSpec, JobState, JobView, Page, WorkerView};
use mutirao_surface::{
    Args, Body, IdempotencyKey, OpenApiRouter, PageArgs, Part, Rejection, TraceId, Wish, only, paging,
};
use serde::Deserialize;

use crate::desk::Desk;
use crate::service::{Jobs, Submitted, refused, stand};
use crate::store::JobFilter;
use crate::traces::Submitting;

pub fn routes(jobs: Jobs) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(mutirao_surface::routes!(submit, list))
        .routes(mutirao_surface::routes!(show))
        .routes(mutirao_surface::routes!(cancel))
        .routes(mutirao_surface::routes!(events::follow))
        .routes(mutirao_surface::routes!(tasks::list))
        .routes(mutirao_surface::routes!(tasks::show))
        .routes(mutirao_surface::routes!(tasks::cancel))
        .routes(mutirao_surface::routes!(logs::read))
        .routes(mutirao_surface::routes!(workers))
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

/// Submit a job: one task or many, accepted whole or not at all.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", request_body = JobSpec,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key and body give the same job, once.")),
    responses((status = 201, description = "Accepted and durable.", body = JobView),
              (status = 200, description = "The same request came before.", body = JobView),
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
        Submitted::Before(view) => Ok((StatusCode::OK, Json(view))),
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
    responses((status = 200, description = "A page.", body = Page<JobView>)))]
async fn list(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Args(args): Args<ListArgs>,
) -> Result<Json<Page<JobView>>, Rejection> {
    let limit = args.page.rows()?;
    let pair = |text: String| match text.split_once('=') {
        Some((label, value)) => Ok((label.to_owned(), value.to_owned())),
        None => Err(Problem::invalid("label", format!("\"{text}\" has no value")).remedy("write it like team=physics")),
    };
    let label = args.label.map(pair).transpose()?;
    let filter = JobFilter {
        namespace: caller.namespace,
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
    let open: Vec<JobKey> = items.iter().filter(|job| job.finished_at.is_none()).map(|job| job.id).collect();
    let look = move |desk: &Desk, _| open.into_iter().map(|key| (key, desk.under_way(key))).collect::<Vec<_>>();
    for (key, under_way) in jobs.look(look).await? {
        if let Some(view) = items.iter_mut().find(|view| view.id == key) {
            stand(view, under_way);
        }
    }
    if let Some(state) = args.state {
        // Waiting and running are told apart by what the desk knows.
        items.retain(|view| view.state == state);
    }
    Ok(Json(Page { items, next }))
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
    let card = jobs.0.store.card(id).await.map_err(refused)?;
    view.task = card.map(|card| (*card.spec).clone());
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

/// Worker processes that are alive.
#[utoipa::path(get, path = "/v1/workers", tag = "workers",
    responses((status = 200, description = "All of them.", body = Vec<WorkerView>)))]
async fn workers(State(jobs): State<Jobs>, _: only::Viewer) -> Result<Json<Vec<WorkerView>>, Rejection> {
    Ok(Json(jobs.workers().await?))
}
