//! What managers use, said by each to all of them, so that any can say how many there should be
//! ([`mutirao_elastic::managers`]). Where there can be several: with PostgreSQL and RabbitMQ.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard, Shared as Broker};
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::{Clock, Mono};
use mutirao_elastic::managers::{Managers, SAID_EVERY};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

const TOPIC: &str = "crew.managers";
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Serialize, Deserialize)]
struct Said {
    #[serde(default)]
    v: Version,
    member: String,
    /// Of the process alone, without the workers that it may have started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_milli: Option<u32>,
}

pub type Crew = Arc<Mutex<Managers>>;

/// Says and hears until the manager stops.
pub fn start(member: String, broker: Broker, clock: Arc<dyn Clock>, stop: CancellationToken) -> Crew {
    let crew = Crew::default();
    let (heard, speaks) = (crew.clone(), (broker.clone(), clock.clone()));
    tokio::spawn(async move {
        tokio::select! {
            () = say(member, &speaks.0, &speaks.1, &heard) => {}
            () = listen(&broker, &clock, &heard) => {}
            () = stop.cancelled() => {}
        }
    });
    crew
}

async fn say(member: String, broker: &Broker, clock: &Arc<dyn Clock>, crew: &Crew) {
    let mut before: Option<(Mono, Duration)> = None;
    loop {
        let (now, spent) = (clock.monotonic(), spent());
        let cpu_milli = before.and_then(|(at, until_then)| {
            let milli = spent.saturating_sub(until_then).as_millis() * 1_000 / now.since(at).as_millis().max(1);
            u32::try_from(milli).ok()
        });
        before = Some((now, spent));
        let body = seal(&Said { v: Version::default(), member: member.clone(), cpu_milli });
        let said = clock.timeout(SAID_EVERY, broker.announce(TOPIC, body)).await;
        if !matches!(said, Ok(Ok(()))) {
            tracing::debug!("what this manager uses could not be said; the next round will");
        }
        clock.sleep(SAID_EVERY).await;
        crew.lock().decide(clock.monotonic());
    }
}

/// Cpu time of this process.
fn spent() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.try_into().unwrap_or(0), spent.tv_nsec.try_into().unwrap_or(0))
}

async fn listen(broker: &Broker, clock: &Arc<dyn Clock>, crew: &Crew) {
    loop {
        match hear(broker, clock, crew).await {
            Err(BrokerError::Closed) => return std::future::pending().await,
            Err(error) => tracing::debug!(%error, "managers are not heard; trying again"),
            Ok(()) => {}
        }
        clock.sleep(PAUSE).await;
    }
}

async fn hear(broker: &Broker, clock: &Arc<dyn Clock>, crew: &Crew) -> Result<(), BrokerError> {
    let mut ear = broker.subscribe(TOPIC).await?;
    loop {
        if let Heard::Message(body) = ear.next().await?
            && let Ok(Said { member, cpu_milli, .. }) = open(&body)
        {
            crew.lock().hear(member, cpu_milli, clock.monotonic());
        }
    }
}
