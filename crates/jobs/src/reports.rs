//! From the broker to the foreman: reads and decodes what workers report, off the foreman's thread, and acknowledges
//! once the foreman says that what came of it is written.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{Broker, BrokerError, Consumer};
use mutirao_core::Clock;
use mutirao_core::envelope::{Reports, open};
use tokio::sync::{mpsc, watch};

use crate::meters::{RUN, WAIT};
use crate::traces::Settling;
use crate::waits::Waits;

/// Messages in flight between broker and foreman.
pub const CREDIT: u32 = 64;
const PAUSE: Duration = Duration::from_millis(200);

/// Where a message stands among those received. A tag means something only within one consumer, and there is a new one
/// after every failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    consumer: u64,
    tag: u64,
}

/// A message's content, and the mark by which it is acknowledged.
pub struct Incoming {
    pub reports: Reports,
    pub mark: Mark,
}

/// Until the foreman hangs up. `settled` marks the last that may be acknowledged.
pub async fn run(
    broker: Arc<dyn Broker>,
    queue: String,
    clock: Arc<dyn Clock>,
    waits: Arc<Waits>,
    to: mpsc::Sender<Incoming>,
    mut settled: watch::Receiver<Mark>,
) {
    let mut consumers = 0;
    while !to.is_closed() {
        consumers += 1;
        let failure = match broker.consume(&queue, CREDIT).await {
            Ok(consumer) => pump(consumer, consumers, &*clock, &waits, &to, &mut settled).await,
            Err(error) => Err(error),
        };
        match failure {
            Ok(()) => return,
            Err(BrokerError::Closed) => return,
            Err(error) => tracing::warn!(%queue, %error, "reports cannot be consumed; trying again"),
        }
        clock.sleep(PAUSE).await;
    }
}

async fn pump(
    mut consumer: Box<dyn Consumer>,
    number: u64,
    clock: &dyn Clock,
    waits: &Waits,
    to: &mpsc::Sender<Incoming>,
    settled: &mut watch::Receiver<Mark>,
) -> Result<(), BrokerError> {
    let mut settling = Settling::default();
    loop {
        tokio::select! {
            changed = settled.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let through = *settled.borrow_and_update();
                if through.consumer == number {
                    settling.written(through.tag, clock);
                    consumer.ack_through(through.tag).await?;
                }
            }
            deliveries = consumer.next() => {
                for delivery in deliveries? {
                    match open::<Reports>(&delivery.body) {
                        Ok(reports) => {
                            for done in &reports.done {
                                tracing::debug!(trace = done.trace, task = %done.task, verdict = done.outcome.verdict.as_str(), "reported");
                            }
                            measure(&reports, waits);
                            settling.heard(delivery.tag, &reports, clock);
                            if to.send(Incoming { reports, mark: Mark { consumer: number, tag: delivery.tag } }).await.is_err() {
                                return Ok(());
                            }
                        }
                        Err(unreadable) => {
                            tracing::warn!(%unreadable, "report put with the dead letters");
                            consumer.reject(delivery.tag, &unreadable.to_string()).await?;
                        }
                    }
                }
            }
        }
    }
}

/// The meters are looked up once for a message, not for each task in it.
fn measure(reports: &Reports, waits: &Waits) {
    if reports.done.is_empty() {
        return;
    }
    let (run, wait) = (metrics::histogram!(RUN), metrics::histogram!(WAIT));
    for done in &reports.done {
        run.record(done.outcome.usage.wall_us as f64 / 1e6);
    }
    let started = reports.done.iter().map(|done| (done.task, done.attempt, done.outcome.started_at));
    for waited in waits.of(started) {
        wait.record(waited.as_secs_f64());
    }
}
