//! The broker, for enrolled workers: `/v1/link` becomes a WebSocket that carries the broker's trait, narrowed to what this
//! worker needs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;
use bytes::Bytes;
use mutirao_broker::link::{Permit, prepare, serve};
use mutirao_core::envelope::{control_of, tasks_of};
use mutirao_core::{Clock, Problem, WorkerId};
use mutirao_surface::{Rejection, only};
use serde::Deserialize;

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
            tracing::debug!(worker = %worker.id, queue = %worker.queue, "a link opened");
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

/// What a worker may do over its link: take the tasks of its queue, hear its control messages, and report, in its own name.
pub fn permit_of(worker: &Worker) -> Permit {
    let own = worker.id.clone();
    Permit::nothing()
        .consume(&tasks_of(&worker.queue))
        .subscribe(&control_of(&worker.queue))
        .publish("results.")
        .vet(Arc::new(move |_, body| speaks_for_itself(&own, body)))
}

/// The one field of a report that says who speaks; the rest is skipped, since every report passes here. A second
/// `worker` field is an error here as it is for the reader of the report, so the two cannot disagree.
#[derive(Deserialize)]
struct Sender<'a> {
    #[serde(borrow)]
    worker: Cow<'a, str>,
}

fn speaks_for_itself(own: &WorkerId, body: &Bytes) -> Result<(), String> {
    match serde_json::from_slice::<Sender<'_>>(body) {
        Ok(sender) if sender.worker == own.0 => Ok(()),
        Ok(_) => Err("a worker reports only in its own name".into()),
        Err(error) => Err(format!("not a report: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutirao_core::SessionId;
    use mutirao_core::envelope::{Reports, open, seal};

    #[test]
    fn a_worker_speaks_for_itself_only() {
        let own = WorkerId("w1".into());
        let of = |worker: &str| seal(&Reports::new(SessionId("s".into()), WorkerId(worker.into())));
        assert_eq!(speaks_for_itself(&own, &of("w1")), Ok(()));
        assert!(speaks_for_itself(&own, &of("w2")).is_err());
        assert!(speaks_for_itself(&own, &Bytes::from_static(b"rubbish")).is_err());
    }

    #[test]
    fn a_report_with_two_senders_is_refused_by_both_readers() {
        let twice = br#"{"v":1,"session":"s","worker":"w1","worker":"w2"}"#;
        assert!(speaks_for_itself(&WorkerId("w1".into()), &Bytes::from_static(twice)).is_err());
        assert!(open::<Reports>(twice).is_err());
    }

    #[test]
    fn an_escaped_name_is_still_the_name() {
        let escaped = Bytes::from_static(br#"{"worker":"\u0077\u0031"}"#);
        assert_eq!(speaks_for_itself(&WorkerId("w1".into()), &escaped), Ok(()));
    }
}
