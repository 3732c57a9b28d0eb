//! Tasks that ended badly, over all jobs: listed, and tried anew.

use axum::Json;
use axum::extract::State;
use mutirao_core::Problem;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::job::{DeadTask, Page, Retried};
use mutirao_surface::{Args, PageArgs, Part, Rejection, only, paging};
use serde::Deserialize;

use super::{tasks, visible};
use crate::service::Jobs;
use crate::store::dead::{DeadFilter, Which};

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadArgs {
    /// Only tasks of this queue.
    #[param(value_type = Option<String>)]
    queue: Option<QueueName>,
    /// Only tasks of this job.
    #[param(value_type = Option<String>)]
    job: Option<JobKey>,
    #[serde(flatten)]
    #[param(ignore)]
    page: PageArgs,
}

/// Tasks that failed, timed out, were lost or given up, of all jobs: the newest job's first.
#[utoipa::path(get, path = "/v1/tasks/dead", tag = "tasks", params(DeadArgs, PageArgs),
    responses((status = 200, description = "A page.", body = Page<DeadTask>)))]
pub(super) async fn list(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Args(args): Args<DeadArgs>,
) -> Result<Json<Page<DeadTask>>, Rejection> {
    let limit = args.page.rows()?;
    let filter = DeadFilter {
        namespace: caller.namespace.clone(),
        queue: args.queue,
        job: args.job,
        after: args.page.after()?,
        limit: limit + 1,
    };
    let mut items = jobs.dead(filter).await?;
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = more.then(|| items.last().map(|dead| paging::encode(&dead.task.id))).flatten();
    Ok(Json(Page { items, next }))
}

/// Try those tasks of a job anew that failed, timed out, were lost or given up.
#[utoipa::path(post, path = "/v1/jobs/{id}/retry", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "How many.", body = Retried),
              (status = 404, body = Problem, description = "No such job."),
              (status = 409, body = Problem, description = "The job was cancelled, or another has its unique key.")))]
pub(super) async fn retry_job(
    State(jobs): State<Jobs>,
    only::Operator(caller): only::Operator,
    Part(id): Part<JobKey>,
) -> Result<Json<Retried>, Rejection> {
    let job = visible(&jobs, &caller, id).await?;
    let tasks = jobs.retry_job(&job, Which::All).await?;
    Ok(Json(Retried { tasks, jobs: tasks.min(1) }))
}

/// Try one task anew that failed, timed out, was lost or given up.
#[utoipa::path(post, path = "/v1/jobs/{id}/tasks/{index}/retry", tag = "tasks",
    params(("id" = String, Path), ("index" = u32, Path)),
    responses((status = 200, description = "One, or none when it had not ended like that.", body = Retried),
              (status = 404, body = Problem, description = "No such task."),
              (status = 409, body = Problem, description = "The job was cancelled, or another has its unique key.")))]
pub(super) async fn retry_task(
    State(jobs): State<Jobs>,
    only::Operator(caller): only::Operator,
    Part((id, index)): Part<(JobKey, u32)>,
) -> Result<Json<Retried>, Rejection> {
    let job = visible(&jobs, &caller, id).await?;
    tasks::one(&jobs, &job, index).await?;
    let tasks = jobs.retry_job(&job, Which::One(index)).await?;
    Ok(Json(Retried { tasks, jobs: tasks.min(1) }))
}

/// Try those tasks of all jobs of a queue anew that failed, timed out, were lost or given up.
#[utoipa::path(post, path = "/v1/queues/{name}/retry", tag = "queues", params(("name" = String, Path)),
    responses((status = 200, description = "How many, of how many jobs.", body = Retried),
              (status = 422, body = Problem, description = "No such queue.")))]
pub(super) async fn retry_queue(
    State(jobs): State<Jobs>,
    only::Operator(caller): only::Operator,
    Part(name): Part<QueueName>,
) -> Result<Json<Retried>, Rejection> {
    Ok(Json(jobs.retry_queue(&caller.namespace, &name).await?))
}
