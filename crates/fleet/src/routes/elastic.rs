//! How elasticity stands, and what was decided.

use axum::Json;
use axum::extract::State;
use mutirao_core::QueueName;
use mutirao_core::job::Page;
use mutirao_elastic::view::{ElasticStatus, HistoryLine, Plan};
use mutirao_surface::{Args, PageArgs, Rejection, only, paging};
use serde::Deserialize;

use crate::service::Fleets;

/// Of each elastic queue: how many are wanted, there and on their way, the last decision and why. Role: viewer.
#[utoipa::path(get, path = "/v1/elastic/status", tag = "elastic", responses((status = 200, body = ElasticStatus)))]
pub async fn status(State(fleets): State<Fleets>, _: only::Viewer) -> Result<Json<ElasticStatus>, Rejection> {
    Ok(Json(fleets.status().await?))
}

/// What the resource manager would do now, and why: of each queue how many are wanted, where they would go, which nodes would
/// be made, emptied and given back, who would go, and what is held back. Nothing is changed. Role: viewer.
#[utoipa::path(get, path = "/v1/elastic/plan", tag = "elastic", responses((status = 200, body = Plan)))]
pub async fn plan(State(fleets): State<Fleets>, _: only::Viewer) -> Result<Json<Plan>, Rejection> {
    Ok(Json(fleets.plan().await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HistoryArgs {
    /// Only of this queue.
    #[param(value_type = Option<String>)]
    queue: Option<QueueName>,
    #[serde(flatten)]
    #[param(ignore)]
    page: PageArgs,
}

/// The changes of how many were wanted, the latest first, with their reasons. Role: viewer.
#[utoipa::path(get, path = "/v1/elastic/history", tag = "elastic", params(HistoryArgs, PageArgs),
    responses((status = 200, body = Page<HistoryLine>), (status = 404, description = "No such queue.", body = mutirao_core::Problem)))]
pub async fn history(
    State(fleets): State<Fleets>,
    _: only::Viewer,
    Args(args): Args<HistoryArgs>,
) -> Result<Json<Page<HistoryLine>>, Rejection> {
    let (rows, before) = (args.page.rows()?, args.page.after()?.unwrap_or(i64::MAX));
    let mut found = fleets.history(args.queue, before, rows + 1).await?;
    let more = found.len() > rows as usize;
    found.truncate(rows as usize);
    let next = found.last().filter(|_| more).map(|(number, _)| paging::encode(number));
    Ok(Json(Page { items: found.into_iter().map(|(_, line)| line).collect(), next }))
}
