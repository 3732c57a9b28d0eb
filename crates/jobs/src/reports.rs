//! From the broker to the foreman: reads and decodes what workers report, off the foreman's thread, and acknowledges
//! once the foreman says that what came of it is written.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Consumer, Delivery, Shared as Broker};
use mutirao_core::envelope::{Reports, open, results_at};
use mutirao_core::meters::DEAD_LETTERS_MADE;
use mutirao_core::{Clock, ShardId};
use tokio::sync::{mpsc, watch};

use crate::meters::{RUN, WAIT};
use crate::roll::RollCall;
use crate::settler::Vitals;
use crate::store::Shared as Store;
use crate::strays::Strays;
use crate::traces::Settling;
use crate::waits::Waits;

/// Messages in flight between broker and foreman.
pub const CREDIT: u32 = 64;
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_LONGEST: Duration = Duration::from_secs(10);

/// Where a message stands among those received. A tag means something only within one consumer, and there is a new one
/// after every failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub consumer: u64,
    pub tag: u64,
}

/// A message's content, and the mark by which it is acknowledged.
pub struct Incoming {
    pub reports: Reports,
    pub mark: Mark,
}

/// What reports of one shard are read with.
pub(crate) struct Intake {
    pub store: Store,
    pub broker: Broker,
    pub shard: ShardId,
    pub clock: Arc<dyn Clock>,
    pub waits: Arc<Waits>,
    pub roll_call: RollCall,
    pub vitals: Arc<Vitals>,
}

/// Until the foreman hangs up. `settled` marks the last that may be acknowledged.
pub(crate) async fn run(intake: Intake, to: mpsc::Sender<Incoming>, mut settled: watch::Receiver<Mark>) {
    let Intake { store, broker, shard, clock, waits, roll_call, vitals } = intake;
    let queue = results_at(shard);
    let strays = Strays::at(shard, store, broker.clone());
    let settling = Settling::default();
    let mut pump = Pump { strays, waits, roll_call, clock: clock.clone(), settling, number: 0, to };
    let mut pause = PAUSE_FIRST;
    while !pump.to.is_closed() {
        pump.number += 1;
        pump.settling = Settling::default();
        let failure = match broker.consume(&queue, CREDIT).await {
            Ok(consumer) => {
                pause = PAUSE_FIRST;
                *vitals.deaf.lock() = None;
                pump.run(consumer, &mut settled).await
            }
            Err(error) => Err(error),
        };
        // Nobody is given up for not having been heard meanwhile.
        *vitals.deaf.lock() =
            failure.as_ref().err().map(|error| format!("reports of workers cannot be heard: {error}"));
        match failure {
            Ok(()) => return,
            Err(BrokerError::Closed) => return,
            // Every shard meets it, and the broker says it for all of them.
            Err(error @ BrokerError::Refused { .. }) => tracing::debug!(%queue, %error, "reports cannot be consumed"),
            Err(error) => tracing::warn!(%queue, %error, "reports cannot be consumed; trying again"),
        }
        clock.sleep(pause).await;
        pause = (pause * 2).min(PAUSE_LONGEST);
    }
}

struct Pump {
    strays: Strays,
    waits: Arc<Waits>,
    roll_call: RollCall,
    clock: Arc<dyn Clock>,
    settling: Settling,
    /// Of the consumer.
    number: u64,
    to: mpsc::Sender<Incoming>,
}

impl Pump {
    async fn run(
        &mut self,
        mut consumer: Box<dyn Consumer>,
        settled: &mut watch::Receiver<Mark>,
    ) -> Result<(), BrokerError> {
        loop {
            tokio::select! {
                changed = settled.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let through = *settled.borrow_and_update();
                    if through.consumer == self.number {
                        self.settling.written(through.tag, &*self.clock);
                        consumer.ack_through(through.tag).await?;
                    }
                }
                deliveries = consumer.next() => {
                    for delivery in deliveries? {
                        if self.take(&mut *consumer, delivery).await?.is_none() {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// None when the foreman has hung up.
    async fn take(&mut self, consumer: &mut dyn Consumer, delivery: Delivery) -> Result<Option<()>, BrokerError> {
        let held = match open::<Reports>(&delivery.body) {
            Ok(reports) => self.roll_call.hold(&reports).await.map(|()| reports).map_err(|why| ("unvouched", why)),
            Err(unreadable) => Err(("unreadable", unreadable.to_string())),
        };
        let reports = match held {
            Ok(reports) => reports,
            Err((reason, why)) => {
                tracing::warn!(why, "report put with the dead letters");
                consumer.reject(delivery.tag, &why).await?;
                metrics::counter!(DEAD_LETTERS_MADE, "reason" => reason).increment(1);
                return Ok(Some(()));
            }
        };
        for done in &reports.done {
            tracing::debug!(trace = done.trace, task = %done.task, verdict = done.outcome.verdict.as_str(), "reported");
        }
        let reports = self.strays.pass_on(reports).await?;
        measure(&reports, &self.waits);
        self.settling.heard(delivery.tag, &reports, &*self.clock);
        let mark = Mark { consumer: self.number, tag: delivery.tag };
        Ok(self.to.send(Incoming { reports, mark }).await.ok())
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
