//! A post hands out what is due, and writes now and then how far it has come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mutirao_broker::BrokerError;
use mutirao_core::check::PLACES;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, seal};
use mutirao_shards::Asked;

use super::beat::{BREATH, to_the_beat};
use super::takers::Going;
use super::{Ending, IDLE, PAUSE, Post};
use crate::envelope::{Ask, Checks, Places};
use crate::meters;
use crate::store::Settlement;

/// How often it is written up to where instants were fired, if any were.
const MARK: Duration = Duration::from_secs(2);
/// For how long the outcomes of what a predecessor fired are waited for.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);
/// How often it is said where checks are wanted.
const SAY_PLACES: Duration = Duration::from_secs(5);
/// Places that are said at once.
const PLACES_MAX: usize = 200;

impl Post {
    /// Fires what is due for as long as the shard is ours and nobody else should have it.
    pub(super) async fn fire(&self) -> Ending {
        let clock = &self.bench.clock;
        // What was fired already by whoever died is not to be asked twice. A while is enough: outcomes may never cease.
        let _enough = clock.timeout(CATCH_UP_MAX, self.caught_up.cancelled()).await;
        loop {
            match self.bench.shards.tenure(self.fence.shard).filter(|tenure| tenure.generation == self.fence.generation)
            {
                Some(tenure) if tenure.asked == Asked::Stay => {}
                Some(_) => return self.last_mark().await,
                // The store does not answer; nobody else can be asked whose turn it is.
                None if self.lapsed.is_cancelled() => {}
                // Whether it is that, or the shard has another owner, is known in a moment.
                None => {
                    clock.sleep(PAUSE).await;
                    continue;
                }
            }
            let now = self.now();
            let due = self.owner.lock().due(now, clock.now());
            if let Err(error) = self.publish(due).await {
                tracing::warn!(shard = %self.fence.shard, %error, "checks cannot be handed out; trying again");
                clock.sleep(PAUSE).await;
                continue;
            }
            let next = {
                let mut owner = self.owner.lock();
                owner.fired(now);
                self.fired.note(self.fence.shard, now);
                owner.next()
            };
            let wait = next.map_or(IDLE, |next| next.since(self.now()).min(IDLE));
            to_the_beat(clock.as_ref(), wait, BREATH).await;
        }
    }

    async fn publish(&self, due: BTreeMap<Arc<str>, Vec<Vec<Ask>>>) -> Result<(), BrokerError> {
        for (queue, parcels) in due {
            let many = parcels.iter().map(Vec::len).sum::<usize>() as u64;
            match self.takers.lock().wanted(&queue, self.bench.clock.monotonic()) {
                Going::Out => {}
                Going::Nobody => {
                    meters::missed(meters::NOBODY, many);
                    continue;
                }
                Going::Full => {
                    meters::missed(meters::FULL, many);
                    continue;
                }
            }
            let shard = self.fence.shard.0;
            let seal = |checks| seal(&Checks { v: Version::default(), shard, checks });
            let bodies = parcels.into_iter().map(seal).collect();
            match self.bench.broker.publish(&queue, bodies).await {
                // Nobody makes them: those that wait are worth more than new ones that would wait behind them.
                Err(BrokerError::Full { .. }) => meters::missed(meters::FULL, many),
                other => other?,
            }
        }
        Ok(())
    }

    pub(super) async fn last_mark(&self) -> Ending {
        let until = self.owner.lock().fired_until();
        self.write(Settlement { fired_until: Some(until), ..Settlement::default() }).await
    }

    /// Writes now and then up to where instants were fired, unless nothing was or a settlement has said so. A successor
    /// begins there: what was not fired in between is not due then either.
    pub(super) async fn mark(self: Arc<Self>) -> Ending {
        loop {
            self.bench.clock.sleep(MARK).await;
            if self.lapsed.is_cancelled() {
                continue;
            }
            let fired = self.owner.lock().last_firing();
            if fired.is_some_and(|at| at.0 > self.marked.load(Ordering::Relaxed))
                && self.last_mark().await == Ending::Fenced
            {
                return Ending::Fenced;
            }
        }
    }

    /// Says now and then where checks are wanted, for checkers that stand there. Nothing where none are.
    pub(super) async fn say_places(self: Arc<Self>) -> Ending {
        loop {
            let places: Vec<_> = self.owner.lock().places().into_iter().take(PLACES_MAX).collect();
            if !places.is_empty() {
                let body = seal(&Places { v: Version::default(), places, rest: Vec::new() });
                if let Err(error) = self.bench.broker.announce(PLACES, body).await {
                    tracing::debug!(%error, "where checks are wanted could not be said; the next round will");
                }
            }
            self.bench.clock.sleep(SAY_PLACES).await;
        }
    }
}
