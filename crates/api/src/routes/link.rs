//! The broker, for enrolled workers: `/v1/link` becomes a WebSocket that carries the broker's trait, narrowed to what this
//! worker needs.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;
use mutirao_broker::link::{Permit, prepare, serve};
use mutirao_core::auth::{Duty, STREAMS};
use mutirao_core::check::{OUTCOMES, PLACES, checks_of};
use mutirao_core::envelope::{control_of, tasks_of};
use mutirao_core::sender::{speaks_for_its_queue, speaks_for_itself};
use mutirao_core::{Clock, Problem, WorkerId};
use mutirao_surface::{Rejection, only};

use super::SharedParts;
use crate::auth::Auth;
use crate::auth::registry::Worker;

/// How often an open link asks whether its worker may still be there.
const STILL_ENROLLED_EVERY: Duration = Duration::from_secs(5);

/// Opens a link: a WebSocket that carries the tasks of the worker's queue and its reports. Role: node, signed.
#[utoipa::path(get, path = "/v1/link", tag = "workers", responses((status = 101, description = "a WebSocket from here on")))]
pub async fn link(
    State(parts): State<SharedParts>,
    _: only::Node,
    worker: Option<Extension<Worker>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Rejection> {
    let Extension(worker) = worker.ok_or_else(|| Problem::forbidden("only an enrolled worker can open a link"))?;
    let upgrade = upgrade.map_err(|rejection| {
        Problem::new(426, "upgrade-required", "this is a WebSocket").detail(rejection.body_text())
    })?;
    let busy = || Problem::busy("too many links are open", 5);
    let place = parts.link_places.clone().try_acquire_owned().map_err(|_| busy())?;
    let permit = permit_of(&worker);
    Ok(prepare(upgrade).on_upgrade(move |socket| {
        let (links, clock, shutdown) = (parts.links.clone(), parts.clock.clone(), parts.shutdown.clone());
        // Tracked, so that a shutdown can wait for it.
        links.track_future(async move {
            let _place = place;
            tracing::debug!(worker = %worker.id, duty = %worker.duty, "a link opened");
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = revoked(&parts.auth, &worker.id, &*clock) => {
                    tracing::info!(worker = %worker.id, "a link is closed: the worker's key was revoked");
                }
                () = serve(socket, parts.broker.clone(), permit, clock.clone()) => {}
            }
            tracing::debug!(worker = %worker.id, "a link closed");
        })
    }))
}

/// Ends when the worker's key has been revoked. A store that does not answer revokes nobody.
async fn revoked(auth: &Auth, worker: &WorkerId, clock: &dyn Clock) {
    while !matches!(auth.enrolled(worker).await, Ok(None)) {
        clock.sleep(STILL_ENROLLED_EVERY).await;
    }
}

/// What a worker may do over its link: take the tasks of its queue, hear its control messages, and report, in its own name
/// and for that queue. A checker: take checks of its kinds, hear where some are wanted, and tell how they ended. A host of
/// streams: append to their logs and read them, and say and hear what is announced about them.
pub fn permit_of(worker: &Worker) -> Permit {
    let own = worker.id.clone();
    match &worker.duty {
        Duty::Tasks(queue) => {
            let permit =
                Permit::nothing().consume(&tasks_of(queue)).subscribe(&control_of(queue)).publish("results.jobs.");
            let queue = queue.clone();
            permit.vet(Arc::new(move |_, body| speaks_for_its_queue(&own, &queue, body)))
        }
        Duty::Checks(kinds) => {
            let permit = Permit::nothing().subscribe(PLACES).publish(OUTCOMES);
            let permit = kinds.iter().fold(permit, |permit, kind| {
                let anywhere = checks_of(kind);
                permit.consume(&anywhere).consume(&format!("{anywhere}."))
            });
            permit.vet(Arc::new(move |_, body| speaks_for_itself(&own, body)))
        }
        Duty::Streams => Permit::nothing().append(STREAMS).read(STREAMS).announce(STREAMS).subscribe(STREAMS),
    }
}
