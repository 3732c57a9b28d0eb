//! A post judges those that call, at each of their instants, by what the store has of their calls. Whichever manager was
//! called has written it there.

use std::sync::Arc;

use mutirao_core::Mono;

use super::beat::{BREATH, to_the_beat};
use super::{Ending, IDLE, PAUSE, Post};
use crate::agenda::LATE_MAX;

impl Post {
    /// Judges what is due for as long as it is ours to write. While the store does not answer nobody can call either.
    pub(super) async fn hear_calls(self: Arc<Self>) -> Ending {
        let clock = &self.bench.clock;
        let mut heard = clock.monotonic();
        loop {
            let now = self.now();
            let due = self.owner.lock().calls_due(now);
            if !due.is_empty() {
                let keys = due.iter().map(|firing| firing.monitor).collect();
                let last = match self.bench.pushes.calls(keys).await {
                    Ok(last) => last,
                    Err(error) => {
                        tracing::debug!(shard = %self.fence.shard, %error, "calls cannot be read; trying again");
                        clock.sleep(PAUSE).await;
                        continue;
                    }
                };
                self.was_heard(&mut heard);
                let settlement = {
                    let mut owner = self.owner.lock();
                    // Calls are dated by the wall, which may have been set since this owner began.
                    let told = owner.judge(&due, &last, clock.now());
                    owner.take(told)
                };
                self.bench.series.settled(&settlement, &[]);
                let alerts = !settlement.alerts.is_empty();
                if !settlement.outcomes.is_empty() && self.write(settlement).await == Ending::Fenced {
                    return Ending::Fenced;
                }
                if alerts {
                    self.raised.notify_one();
                }
            }
            if self.bench.shards.trouble().is_none() {
                self.was_heard(&mut heard);
            }
            let next = {
                let mut owner = self.owner.lock();
                owner.judged(now);
                owner.next_call()
            };
            let wait = next.map_or(IDLE, |next| next.since(self.now()).min(IDLE));
            to_the_beat(clock.as_ref(), wait, BREATH).await;
        }
    }

    /// The store answers. If it is long since it did, or since this process ran at all, who has not called may have tried.
    fn was_heard(&self, before: &mut Mono) {
        let now = self.bench.clock.monotonic();
        if now.since(*before) > LATE_MAX + IDLE {
            self.owner.lock().unheard(self.now());
        }
        *before = now;
    }
}
