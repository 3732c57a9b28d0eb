//! A run's changes as they happen, by server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, stream};
use mutirao_core::Problem;
use mutirao_surface::{Part, Rejection, only};

use crate::service::Flows;
use crate::service::following::Follower;
use crate::view::{RunState, RunView};

/// Between two events: who reads them sees nothing move faster.
const PACE: Duration = Duration::from_millis(200);

/// Follow a run: an event `run` with the whole run whenever a step of it has ended, the last when it has itself.
#[utoipa::path(get, path = "/v1/runs/{run}/events", tag = "flows", params(("run" = u64, Path)),
    responses((status = 200, description = "Events named `run`, each with a run as data; ends with the run.", content_type = "text/event-stream", body = RunView),
              (status = 404, body = Problem, description = "No such run.")))]
pub(super) async fn follow(
    State(flows): State<Flows>,
    only::Viewer(caller): only::Viewer,
    Part(run): Part<u64>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
    let follower = flows.follow(&caller, run, PACE).await?;
    let events = stream::unfold(Some(follower), |follower: Option<Follower>| async move {
        let mut follower = follower?;
        let view = follower.next().await?;
        let event = Event::default().event("run").json_data(&view).ok()?;
        let rest = (view.state == RunState::Running).then_some(follower);
        Some((Ok(event), rest))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
