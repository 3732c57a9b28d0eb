//! Keeping one connection up: dialling again with growing pauses, and looking after the one that is there.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::{Connection, Event};
use mutirao_core::{Clock, Mono};

use super::super::dial::Dial;
use super::{Core, State, Up};
use crate::BrokerError;
use crate::backoff::{WAIT_LONGEST, backoff};

/// How often a connection's state is looked at, should the news of its end have been missed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked at whose the vhost is: somebody may have deleted our mark, by mistake or believing us dead.
const MARK_EVERY: Duration = Duration::from_secs(10);
/// By then whoever runs has marked its vhost again, unless it just has to connect.
pub(crate) const MARKED_WITHIN: Duration = MARK_EVERY.saturating_add(Duration::from_secs(5));

/// Connects, and connects again, until it is aborted.
pub(super) async fn keep_up(core: Arc<Core>, mut first: Option<Connection>) {
    let Dial { clock, dice, .. } = &*core.dial;
    let purpose = core.purpose;
    let mut failures = 0;
    loop {
        let dialled = match first.take() {
            Some(connection) => Ok(connection),
            None => core.dial.dial(purpose).await,
        };
        let wait = match dialled {
            Ok(connection) => {
                let since = clock.monotonic();
                let away = hold(&core, Arc::new(connection)).await;
                tracing::warn!(purpose, "{away}");
                core.become_(State::Down(away));
                // A server that accepts only to hang up is not to be asked ten times a second.
                failures = if lasted(&**clock, since) > WAIT_LONGEST { 0 } else { failures };
                backoff(failures)
            }
            Err(away @ BrokerError::Unreachable(_)) => {
                tracing::debug!(purpose, failures, "{away}");
                core.become_(State::Down(away));
                backoff(failures)
            }
            Err(refused) => {
                if core.told(&refused) {
                    tracing::warn!(purpose, "{refused}");
                }
                core.become_(State::Down(refused));
                WAIT_LONGEST
            }
        };
        failures += 1;
        clock.sleep(dice.jitter(wait)).await;
    }
}

fn lasted(clock: &dyn Clock, since: Mono) -> Duration {
    clock.monotonic().since(since)
}

/// Offers a connection for as long as it lives; says why it ended.
async fn hold(core: &Core, connection: Arc<Connection>) -> BrokerError {
    let mut events = std::pin::pin!(connection.events_listener());
    let generation = {
        let mut declared = core.declared.lock();
        *declared = (declared.0 + 1, HashSet::new());
        declared.0
    };
    core.become_(State::Up(Up { connection: connection.clone(), generation, spoilt: Arc::default() }));
    let again = generation > 1;
    if again {
        tracing::info!(purpose = core.purpose, "the broker is reached again");
    }
    let mut why = "the connection ended".to_string();
    let mut looked = core.dial.clock.monotonic();
    while connection.status().connected() {
        if lasted(&*core.dial.clock, looked) > MARK_EVERY {
            if let Err(refused) = core.dial.still_ours(&connection).await {
                // The next connection is refused with the same words.
                let _ = connection.close(200, "goodbye".into()).await;
                return refused;
            }
            looked = core.dial.clock.monotonic();
        }
        tokio::select! {
            event = events.next() => match event {
                Some(Event::Error(error)) => why = error.to_string(),
                Some(Event::ConnectionBlocked(reason)) => {
                    tracing::warn!(purpose = core.purpose, reason, "the broker takes nothing until it has room again");
                }
                Some(Event::ConnectionUnblocked) => {
                    tracing::info!(purpose = core.purpose, "the broker has room again");
                }
                Some(_) => {}
                None => break,
            },
            () = core.dial.clock.sleep(LOOK_EVERY) => {}
        }
    }
    core.dial.target().place.unreachable(why)
}
