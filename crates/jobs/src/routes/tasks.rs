//! Tasks of a job: rows from the store, the rest from the desk, together the whole list.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use mutirao_core::Problem;
use mutirao_core::id::{JobKey, TaskKey};
use mutirao_core::job::{JobState, JobView, Page, TaskState, TaskView};
use mutirao_queues::Explanation;
use mutirao_store::refused;
use mutirao_surface::{Args, PageArgs, Part, Rejection, only, paging};
use serde::Deserialize;

use super::visible;
use crate::question::Stand;
use crate::service::Jobs;

/// Tasks looked through for one page; past it the page may be short and has a cursor.
const SCAN_TASKS_MAX: u64 = 50_000;
const CHUNK: u32 = 1_000;

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArgs {
    /// Only tasks in this state.
    state: Option<TaskState>,
    #[serde(flatten)]
    #[param(ignore)]
    page: PageArgs,
}

/// A job's tasks, by index.
#[utoipa::path(get, path = "/v1/jobs/{id}/tasks", tag = "tasks", params(("id" = String, Path), ListArgs, PageArgs),
    responses((status = 200, description = "A page; with a filter it may be short and still have a next.", body = Page<TaskView>),
              (status = 404, body = Problem, description = "No such job.")))]
pub(super) async fn list(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Part(id): Part<JobKey>,
    Args(args): Args<ListArgs>,
) -> Result<Json<Page<TaskView>>, Rejection> {
    let job = visible(&jobs, &caller, id).await?;
    let limit = args.page.rows()? as usize;
    let (first, total) = extent(&jobs, id).await?;
    let end = u64::from(first) + total;
    let mut from = args.page.after::<u64>()?.unwrap_or(u64::from(first));
    let stop = (from + SCAN_TASKS_MAX).min(end);
    let mut items: Vec<TaskView> = Vec::new();
    while from < stop && items.len() < limit {
        let size = u64::from(CHUNK).min(stop - from) as u32;
        let chunk = look_at(&jobs, &job, from as u32, size).await?;
        for task in chunk {
            from = u64::from(task.id.index) + 1;
            if args.state.is_none_or(|state| task.state == state) {
                items.push(task);
                if items.len() == limit {
                    break;
                }
            }
        }
    }
    let next = (from < end).then(|| paging::encode(&from));
    Ok(Json(Page { items, next }))
}

/// One task.
#[utoipa::path(get, path = "/v1/jobs/{id}/tasks/{index}", tag = "tasks",
    params(("id" = String, Path), ("index" = u32, Path)),
    responses((status = 200, description = "The task.", body = TaskView), (status = 404, body = Problem, description = "No such task.")))]
pub(super) async fn show(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Part((id, index)): Part<(JobKey, u32)>,
) -> Result<Json<TaskView>, Rejection> {
    let job = visible(&jobs, &caller, id).await?;
    Ok(Json(one(&jobs, &job, index).await?))
}

/// Cancel one task. A running one is stopped.
#[utoipa::path(post, path = "/v1/jobs/{id}/tasks/{index}/cancel", tag = "tasks",
    params(("id" = String, Path), ("index" = u32, Path)),
    responses((status = 200, description = "The task as it is now.", body = TaskView), (status = 404, body = Problem, description = "No such task.")))]
pub(super) async fn cancel(
    State(jobs): State<Jobs>,
    only::Operator(caller): only::Operator,
    Part((id, index)): Part<(JobKey, u32)>,
) -> Result<Json<TaskView>, Rejection> {
    let job = visible(&jobs, &caller, id).await?;
    let mut task = one(&jobs, &job, index).await?;
    if jobs.cancel_task(TaskKey { job: id, index }).await? {
        // Decided; the row follows within a commit.
        task.state = TaskState::Cancelled;
    } else {
        task = one(&jobs, &visible(&jobs, &caller, id).await?, index).await?;
    }
    Ok(Json(task))
}

/// Why a task does not run, and what would let it; or how it stands when it does.
#[utoipa::path(get, path = "/v1/jobs/{id}/tasks/{index}/explain", tag = "tasks",
    params(("id" = String, Path), ("index" = u32, Path)),
    responses((status = 200, description = "In words.", body = Explanation), (status = 404, body = Problem, description = "No such task.")))]
pub(super) async fn explain(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Part((id, index)): Part<(JobKey, u32)>,
) -> Result<Json<Explanation>, Rejection> {
    let job = visible(&jobs, &caller, id).await?;
    let task = one(&jobs, &job, index).await?;
    Ok(Json(jobs.explain_task(&job, &task).await?))
}

pub(super) async fn one(jobs: &Jobs, job: &JobView, index: u32) -> Result<TaskView, Problem> {
    let (first, total) = extent(jobs, job.id).await?;
    let inside = index >= first && u64::from(index - first) < total;
    let missing = || {
        let last = u64::from(first) + total - 1;
        Problem::not_found(format!("job {} has tasks {first} to {last}, not {index}", job.id))
    };
    if !inside {
        return Err(missing());
    }
    look_at(jobs, job, index, 1).await?.into_iter().next().ok_or_else(missing)
}

/// The first index and the number of tasks.
pub(super) async fn extent(jobs: &Jobs, id: JobKey) -> Result<(u32, u64), Problem> {
    jobs.0.store.extent(id).await.map_err(refused)?.ok_or_else(|| Problem::not_found(format!("there is no job {id}")))
}

/// Every task with an index in [`from`, `from + size`). The desk is asked first: a task that ends in between is then
/// found in the store, while the other way round it would be found nowhere.
pub(super) async fn look_at(jobs: &Jobs, job: &JobView, from: u32, size: u32) -> Result<Vec<TaskView>, Problem> {
    let key = job.id;
    let standing = jobs.standing(job, from, size).await;
    let standing: HashMap<u32, Stand> = standing.into_iter().map(|stand| (stand.index, stand)).collect();
    let rows = jobs.0.store.tasks(key, from, size).await.map_err(refused)?;
    let mut rows: HashMap<u32, TaskView> = rows.into_iter().map(|row| (row.id.index, row)).collect();
    let whole_job_cancelled = job.state == JobState::Cancelled;
    let view = |index: u32| {
        let id = TaskKey { job: key, index };
        let mut task = rows.remove(&index).unwrap_or_else(|| fresh(id));
        if task.ended_at.is_some() {
            return task;
        }
        match standing.get(&index) {
            Some(known) => stand(&mut task, known),
            None if whole_job_cancelled => {
                task.state = TaskState::Cancelled;
                task.ended_at = job.finished_at;
            }
            // Ended a moment ago; its row is being written.
            None => {}
        }
        task
    };
    Ok((from..from.saturating_add(size)).map(view).collect())
}

fn stand(task: &mut TaskView, stand: &Stand) {
    task.attempt = stand.attempt;
    task.failures = stand.failures;
    task.losses = stand.losses;
    task.worker = stand.worker.as_ref().map(|worker| worker.0.clone());
    task.started_at = stand.started_at;
    task.state = stand.state;
}

fn fresh(id: TaskKey) -> TaskView {
    TaskView {
        id,
        state: TaskState::Ready,
        attempt: None,
        failures: 0,
        losses: 0,
        exit: None,
        signal: None,
        reason: None,
        worker: None,
        not_before: None,
        started_at: None,
        ended_at: None,
        usage: None,
    }
}
