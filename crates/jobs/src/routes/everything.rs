//! Everything that changes, as one stream of events: jobs with the counts of their tasks, queues, workers.
//!
//! A stream says how things are now, not each step on the way: what changes twice in a moment is told once. It can be taken
//! up again with the id of its last event, for as long as the same manager remembers; else an event `gap` says that something
//! may have been missed, and that lists must be looked at again.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, StreamExt, stream};
use mutirao_core::Mono;
use mutirao_core::id::SessionId;
use mutirao_core::job::{JobView, WorkerView};
use mutirao_surface::{Rejection, only};
use serde::Serialize;
use tokio::sync::watch;

use super::last_event_id;
use crate::hub::Since;
use crate::service::Jobs;

/// How long changes gather before they are told.
const PACE: Duration = Duration::from_millis(200);
/// Jobs told at once; the rest follows.
const JOBS_AT_ONCE: usize = 256;
/// Between two looks at queues and workers, of which nobody tells.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Follow everything that changes: events `job`, `queue`, `worker`, `worker_gone` and `gap`.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(("Last-Event-ID" = Option<String>, Header, description = "Go on after this event.")),
    responses((status = 200, content_type = "text/event-stream", body = JobView,
        description = "`job` has a job as data, `queue` a queue's definition, `worker` and `worker_gone` a worker. `gap`: something may have been missed.")))]
pub(super) async fn follow(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
    let changes = jobs.0.hub.follow();
    let now = *changes.borrow();
    let came_back = last_event_id(&headers);
    let known = came_back.as_deref().and_then(|id| jobs.0.hub.number_in(id));
    let missed = came_back.is_some() && known.is_none();
    let mut follower = Follower {
        ending: jobs.0.ending.subscribe(),
        namespace: caller.namespace.clone(),
        heard: known.unwrap_or(now),
        changes,
        revision: 0,
        workers: HashMap::new(),
        looked: None,
        jobs,
    };
    // What is there is no news.
    follower.look().await;
    let first = follower.event("gap", &serde_json::json!({})).filter(|_| missed);
    let rounds = stream::unfold(follower, |mut follower| async move {
        let events = follower.round().await?;
        Some((stream::iter(events.into_iter().map(Ok)), follower))
    });
    Ok(Sse::new(stream::iter(first.map(Ok)).chain(rounds.flatten())).keep_alive(KeepAlive::default()))
}

struct Follower {
    jobs: Jobs,
    namespace: String,
    changes: watch::Receiver<u64>,
    ending: watch::Receiver<bool>,
    /// The number of the last change that was told.
    heard: u64,
    /// Of queues.
    revision: u64,
    workers: HashMap<SessionId, WorkerView>,
    looked: Option<Mono>,
}

impl Follower {
    /// The next events; none when there will be no more.
    async fn round(&mut self) -> Option<Vec<Event>> {
        loop {
            self.something().await?;
            let mut events = self.job_news().await;
            let due = self.looked.is_none_or(|at| self.jobs.0.clock.monotonic().since(at) >= LOOK_EVERY);
            if due {
                events.extend(self.look().await);
            }
            if !events.is_empty() {
                return Some(events);
            }
        }
    }

    /// Waits until a job changed or it is time to look.
    async fn something(&mut self) -> Option<()> {
        let clock = self.jobs.0.clock.clone();
        clock.sleep(PACE).await;
        if *self.changes.borrow() != self.heard {
            return Some(());
        }
        tokio::select! {
            () = clock.sleep(LOOK_EVERY) => Some(()),
            _ = self.ending.wait_for(|ending| *ending) => None,
            changed = self.changes.changed() => changed.ok(),
        }
    }

    async fn job_news(&mut self) -> Vec<Event> {
        match self.jobs.0.hub.since(self.heard, JOBS_AT_ONCE) {
            Since::Gap(now) => {
                self.heard = now;
                self.event("gap", &serde_json::json!({})).into_iter().collect()
            }
            Since::Jobs(keys, _) if keys.is_empty() => Vec::new(),
            Since::Jobs(keys, through) => {
                let found = self.jobs.0.store.jobs_of(self.namespace.clone(), keys).await;
                // A store that cannot be read now is asked for the same again.
                let Ok(mut views) = found else { return Vec::new() };
                self.jobs.stand_all(&mut views).await;
                self.heard = through;
                views.iter().filter_map(|view| self.event("job", view)).collect()
            }
        }
    }

    /// What changed about queues and workers since the last look.
    async fn look(&mut self) -> Vec<Event> {
        self.looked = Some(self.jobs.0.clock.monotonic());
        let mut events = Vec::new();
        if let Ok(rows) = self.jobs.0.store.queues(self.revision).await {
            for row in rows {
                self.revision = self.revision.max(row.revision);
                events.extend(self.event("queue", &row.spec));
            }
        }
        let (there, silent) = self.jobs.workers().await;
        let there: HashMap<SessionId, WorkerView> =
            there.into_iter().map(|worker| (worker.session.clone(), worker)).collect();
        for worker in there.values() {
            let before = self.workers.get(&worker.session);
            if before.is_none_or(|before| before.draining != worker.draining) {
                events.extend(self.event("worker", worker));
            }
        }
        // Whoever cannot be asked has not taken its workers away.
        if silent.is_empty() {
            let gone = self.workers.values().filter(|worker| !there.contains_key(&worker.session));
            events.extend(gone.filter_map(|worker| self.event("worker_gone", worker)));
            self.workers = there;
        } else {
            self.workers.extend(there);
        }
        events
    }

    fn event(&self, name: &str, data: &impl Serialize) -> Option<Event> {
        Event::default().event(name).id(self.jobs.0.hub.id_of(self.heard)).json_data(data).ok()
    }
}
