//! A post makes beliefs of what it is told, writes them, and has people told.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::BrokerError;
use mutirao_core::WorkerId;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, open, seal};

use super::beat::{SETTLE, to_the_beat};
use super::{Ending, PAUSE, Post};
use crate::alerts::courier::Round;
use crate::checker::pulse;
use crate::envelope::{CREW, Crewed, Outcomes, Pulse, Told, outcomes_of};
use crate::meters;

/// How often silent monitors are looked for.
const LOOK: Duration = Duration::from_secs(5);
/// When nothing comes for so long, nothing lay in the broker that was told to a predecessor.
const FIRST_LOOK: Duration = Duration::from_millis(200);
/// How often alerts are looked for that are to be tried again.
const TELL: Duration = Duration::from_secs(2);
/// Parcels of outcomes taken and not yet settled.
const CREDIT: u32 = 32;
/// Many times the pace of checkers, and some seconds between two clocks.
const PULSE_FRESH: Duration = Duration::from_secs(30);

impl Post {
    /// Makes beliefs of what is told, and writes them.
    pub(super) async fn settle(self: Arc<Self>) -> Ending {
        loop {
            let settled = tokio::select! {
                settled = self.settle_while_it_lasts() => settled,
                // What was not written goes back into the broker, for whoever is next.
                () = self.lapsed.cancelled() => std::future::pending().await,
            };
            match settled {
                Ok(ending) => return ending,
                Err(BrokerError::Closed) => return Ending::Settled,
                Err(error) => {
                    tracing::debug!(shard = %self.fence.shard, %error, "outcomes are not heard; trying again")
                }
            }
            self.bench.clock.sleep(PAUSE).await;
        }
    }

    async fn settle_while_it_lasts(&self) -> Result<Ending, BrokerError> {
        let mut consumer = self.bench.broker.consume(&outcomes_of(self.fence.shard), CREDIT).await?;
        loop {
            let patience = if self.caught_up.is_cancelled() { LOOK } else { FIRST_LOOK };
            let heard = self.bench.clock.timeout(patience, consumer.next()).await;
            let (mut told, mut last, mut missed): (Vec<Told>, _, u64) = (Vec::new(), None, 0);
            let mut pulses = Vec::new();
            let deliveries = heard.unwrap_or_else(|_nothing| Ok(Vec::new()))?;
            let parcels = deliveries.len();
            if parcels == 0 {
                self.caught_up.cancel();
            }
            for delivery in deliveries {
                match open::<Outcomes>(&delivery.body) {
                    Ok(parcel) => {
                        pulses.extend(parcel.worker.zip(parcel.pulse).filter(|(_, pulse)| self.is_fresh(pulse)));
                        told.extend(parcel.outcomes);
                        missed += u64::from(parcel.missed);
                        last = Some(delivery.tag);
                    }
                    Err(unreadable) => consumer.reject(delivery.tag, &unreadable.to_string()).await?,
                }
            }
            meters::missed(meters::LATE, missed);
            if self.fence.shard == pulse::TO {
                self.pass_on(pulses).await;
            }
            let now = self.now();
            let certificates: Vec<_> =
                told.iter().filter_map(|told| Some((told.monitor, told.certificate_days?))).collect();
            let settlement = {
                let mut owner = self.owner.lock();
                let mut settlement = owner.settle(told, now);
                settlement.fired_until = Some(owner.fired_until());
                settlement
            };
            self.bench.series.settled(&settlement, &certificates);
            let alerts = !settlement.alerts.is_empty();
            let nothing = settlement.outcomes.is_empty() && settlement.health.is_empty() && !alerts;
            if !nothing && self.write(settlement).await == Ending::Fenced {
                return Ok(Ending::Fenced);
            }
            if alerts {
                self.raised.notify_one();
            }
            if let Some(tag) = last {
                consumer.ack_through(tag).await?;
            }
            // Whoever has taken as much as it may is behind, and does not wait for more.
            if parcels < CREDIT as usize {
                to_the_beat(self.bench.clock.as_ref(), Duration::ZERO, SETTLE).await;
            }
        }
    }

    /// What lay in the broker while nobody listened says nothing about who is there now.
    fn is_fresh(&self, pulse: &Pulse) -> bool {
        self.bench.clock.now().since(pulse.at) < PULSE_FRESH
    }

    /// Whoever is asked how many checkers there should be has to know how they are doing, and whether it would hear of them:
    /// now and then nothing is passed on as well.
    async fn pass_on(&self, pulses: Vec<(WorkerId, Pulse)>) {
        let now = self.bench.clock.monotonic();
        if pulses.is_empty() && self.passed_on.lock().is_some_and(|last| now.since(last) < LOOK / 2) {
            return;
        }
        *self.passed_on.lock() = Some(now);
        let body = seal(&Crewed { v: Version::default(), pulses });
        if let Err(error) = self.bench.broker.announce(CREW, body).await {
            tracing::debug!(%error, "how checkers are doing could not be passed on; the next round will");
        }
    }

    /// Tells channels what was raised, and tries again those that could not be told.
    pub(super) async fn tell(self: Arc<Self>) -> Ending {
        let mut round = Round::More;
        loop {
            if round != Round::More {
                let _nothing_was_raised = self.bench.clock.timeout(TELL, self.raised.notified()).await;
            }
            let (shards, fence) = (self.bench.shards.clone(), self.fence.clone());
            let owned = move || shards.tenure(fence.shard).is_some_and(|tenure| tenure.generation == fence.generation);
            if !owned() {
                round = Round::Done;
                continue;
            }
            round = match self.bench.courier.round(&self.fence, self.now(), owned).await {
                Ok(Round::Fenced) => return Ending::Fenced,
                Ok(round) => round,
                Err(error) => {
                    tracing::debug!(shard = %self.fence.shard, %error, "alerts cannot be read or written; trying again");
                    Round::Done
                }
            };
        }
    }
}
