//! A job's changes as they happen, by server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, stream};
use mutirao_core::Problem;
use mutirao_core::id::JobKey;
use mutirao_core::job::JobView;
use mutirao_surface::{Part, Rejection, only};
use tokio::sync::broadcast::error::RecvError;

use super::visible;
use crate::service::Jobs;

/// Between two events: a bar that moves five times a second looks alive.
const PACE: Duration = Duration::from_millis(200);
/// A job may change without a word from the store (a task began): look again now and then.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Follow a job: an event `job` with the whole job whenever it changes, the last when it has finished.
#[utoipa::path(get, path = "/v1/jobs/{id}/events", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "Events named `job`, each with a job as data; ends with the job.", content_type = "text/event-stream", body = JobView),
              (status = 404, body = Problem, description = "No such job.")))]
pub(super) async fn follow(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Part(id): Part<JobKey>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
    visible(&jobs, &caller, id).await?;
    let changes = jobs.0.news.follow();
    let ending = jobs.0.ending.subscribe();
    let follower = Follower { jobs, id, changes, ending, last: None };
    let events = stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        let view = follower.next().await?;
        let event = Event::default().event("job").json_data(&view).ok()?;
        let rest = view.finished_at.is_none().then_some(follower);
        Some((Ok(event), rest))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

struct Follower {
    jobs: Jobs,
    id: JobKey,
    changes: tokio::sync::broadcast::Receiver<JobKey>,
    ending: tokio::sync::watch::Receiver<bool>,
    last: Option<JobView>,
}

impl Follower {
    /// The next state that differs from the last; none when there will be no more.
    async fn next(&mut self) -> Option<JobView> {
        loop {
            if self.last.is_some() {
                self.jobs.0.clock.sleep(PACE).await;
                self.changed().await?;
            }
            let (view, _) = self.jobs.job(self.id).await.ok()?;
            if self.last.as_ref() != Some(&view) {
                self.last = Some(view.clone());
                return Some(view);
            }
        }
    }

    async fn changed(&mut self) -> Option<()> {
        let clock = self.jobs.0.clock.clone();
        let look_again = clock.sleep(LOOK_AGAIN);
        tokio::pin!(look_again);
        loop {
            tokio::select! {
                () = &mut look_again => return Some(()),
                _ = self.ending.wait_for(|ending| *ending) => return None,
                change = self.changes.recv() => match change {
                    Ok(job) if job != self.id => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return Some(()),
                    Err(RecvError::Closed) => return None,
                }
            }
        }
    }
}
