//! Saying that a run has something new in the store, for an owner that is another process.

use std::time::Duration;

use mutirao_broker::{BrokerError, Heard};
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, open, seal};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::foreman::words::RunKey;
use crate::post::{Bench, Word};
use crate::shard_of;

const TOPIC: &str = "news.flows";
const PAUSE: Duration = Duration::from_millis(500);
const SAY_WITHIN: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
struct Changed {
    v: Version,
    run: RunKey,
}

/// Whoever does not hear it finds out by itself, so nobody waits for long.
pub async fn say(bench: &Bench, run: RunKey) {
    let body = seal(&Changed { v: Version::default(), run });
    let said = bench.clock.timeout(SAY_WITHIN, bench.broker.announce(TOPIC, body)).await;
    if !matches!(said, Ok(Ok(()))) {
        tracing::debug!(run = run.0, "a run could not be told of; its owner finds it");
    }
}

/// For as long as it is not dropped.
pub async fn listen(bench: Bench) {
    loop {
        match hear(&bench).await {
            Err(BrokerError::Closed) => return,
            Err(error) => tracing::debug!(%error, "news of flows are not heard; trying again"),
            Ok(()) => {}
        }
        bench.clock.sleep(PAUSE).await;
    }
}

async fn hear(bench: &Bench) -> Result<(), BrokerError> {
    let mut ear = bench.broker.subscribe(TOPIC).await?;
    let ring_all = || bench.bells.iter().for_each(Notify::notify_one);
    // What was said before anybody listened.
    ring_all();
    loop {
        match ear.next().await? {
            Heard::Message(body) => match open::<Changed>(&body) {
                Ok(Changed { run, .. }) => {
                    let shard = shard_of(run);
                    let heard = bench.doors.of(shard).is_none_or(|door| door.try_send(Word::Look(run)).is_ok());
                    if !heard {
                        bench.bells[shard.0 as usize].notify_one();
                    }
                }
                Err(_) => ring_all(),
            },
            Heard::Gap => ring_all(),
        }
    }
}
