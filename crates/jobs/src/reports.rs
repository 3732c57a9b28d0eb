//! From the broker to the foreman: reads and decodes what workers report, off the foreman's thread, and acknowledges
//! once the foreman says that what came of it is written.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{Broker, BrokerError, Consumer};
use mutirao_core::Clock;
use mutirao_core::envelope::{Reports, open};
use tokio::sync::{mpsc, watch};

/// Messages in flight between broker and foreman.
pub const CREDIT: u32 = 64;
const PAUSE: Duration = Duration::from_millis(200);

/// A message's content, and the tag by which it is acknowledged.
pub struct Incoming {
    pub reports: Reports,
    pub tag: u64,
}

/// Until the foreman hangs up. `settled` is the highest tag that may be acknowledged.
pub async fn run(
    broker: Arc<dyn Broker>,
    queue: String,
    clock: Arc<dyn Clock>,
    to: mpsc::Sender<Incoming>,
    mut settled: watch::Receiver<u64>,
) {
    while !to.is_closed() {
        let failure = match broker.consume(&queue, CREDIT).await {
            Ok(consumer) => pump(consumer, &to, &mut settled).await,
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
    to: &mpsc::Sender<Incoming>,
    settled: &mut watch::Receiver<u64>,
) -> Result<(), BrokerError> {
    loop {
        tokio::select! {
            changed = settled.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let through = *settled.borrow_and_update();
                consumer.ack_through(through).await?;
            }
            deliveries = consumer.next() => {
                for delivery in deliveries? {
                    match open::<Reports>(&delivery.body) {
                        Ok(reports) => {
                            for done in &reports.done {
                                tracing::debug!(trace = done.trace, task = %done.task, verdict = done.outcome.verdict.as_str(), "reported");
                            }
                            if to.send(Incoming { reports, tag: delivery.tag }).await.is_err() {
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
