//! Jobs that wait because nobody can read them.

use axum::Json;
use axum::extract::State;
use mutirao_core::job::JobView;
use mutirao_surface::{Rejection, only};

use crate::service::Jobs;

/// Unfinished jobs that no manager of this version can take up, themselves or for a row of one of their tasks, each with the
/// reason.
#[utoipa::path(get, path = "/v1/jobs/unreadable", tag = "jobs",
    responses((status = 200, description = "Of many jobs, among the oldest 10,000.", body = Vec<JobView>)))]
pub(super) async fn list(
    State(jobs): State<Jobs>,
    only::Operator(caller): only::Operator,
) -> Result<Json<Vec<JobView>>, Rejection> {
    Ok(Json(jobs.unreadable(&caller.namespace).await?))
}
