//! How a checker is doing, for those who decide how many there should be: said every other second to the owner of the first
//! shard, in the checker's own name. A word that gets lost is followed by the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mutirao_core::ShardId;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::seal;

use super::Shop;
use crate::envelope::{Outcomes, Pulse, outcomes_of};

pub const EVERY: Duration = Duration::from_secs(2);
/// Whoever owns this passes it on.
pub const TO: ShardId = ShardId(0);

/// What is counted between two of them.
#[derive(Debug, Default)]
pub struct Tally {
    parcels: AtomicU64,
    checks: AtomicU64,
    begun: AtomicU64,
    /// The latest of those that began since the last pulse.
    late_ms: AtomicU64,
}

impl Tally {
    pub fn taken(&self, checks: usize) {
        self.parcels.fetch_add(1, Ordering::Relaxed);
        self.checks.fetch_add(checks as u64, Ordering::Relaxed);
    }

    pub fn begun(&self, late: Duration) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.late_ms.fetch_max(u64::try_from(late.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// `before`: the last one. What waits while nothing begins grows later.
    fn pulse(&self, before: &Pulse, under_way: usize, waiting: usize) -> Pulse {
        let (begun, late) = (self.begun.swap(0, Ordering::Relaxed), self.late_ms.swap(0, Ordering::Relaxed));
        let late_ms = match (begun, waiting) {
            (0, 0) => 0,
            (0, _) => before.late_ms.saturating_add(EVERY.as_millis() as u64),
            _ => late,
        };
        let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
        Pulse {
            under_way: count(under_way),
            waiting: count(waiting),
            late_ms,
            parcels: self.parcels.load(Ordering::Relaxed),
            checks: self.checks.load(Ordering::Relaxed),
            ..*before
        }
    }
}

/// For as long as it is not dropped. A checker inside a manager has no name, and is no worker that comes and goes.
pub(super) async fn beat(shop: Arc<Shop>) {
    let (parts, mut pulse) = (&shop.parts, Pulse::default());
    if parts.worker.is_none() {
        return std::future::pending().await;
    }
    loop {
        pulse.footprint = parts.gauge.as_ref().map(|look| look(parts.clock.monotonic())).unwrap_or_default();
        let (under_way, waiting) = {
            let queue = shop.queue.lock();
            (queue.0.under_way(), queue.0.waiting())
        };
        pulse = Pulse { at: parts.clock.now(), ..shop.tally.pulse(&pulse, under_way, waiting) };
        let body = seal(&Outcomes { pulse: Some(pulse), ..Outcomes::of(parts.worker.clone()) });
        let said = parts.clock.timeout(EVERY, parts.broker.publish(&outcomes_of(TO), vec![body])).await;
        if !matches!(said, Ok(Ok(()))) {
            tracing::debug!("how this checker is doing could not be said; the next round will");
        }
        parts.clock.sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_while_nothing_begins_grows_later_and_an_idle_one_is_not_late() {
        let tally = Tally::default();
        tally.taken(200);
        tally.begun(Duration::from_millis(300));
        tally.begun(Duration::from_millis(100));
        let first = tally.pulse(&Pulse::default(), 2, 198);
        assert_eq!((first.late_ms, first.parcels, first.checks, first.waiting), (300, 1, 200, 198));
        let stuck = tally.pulse(&first, 2, 198);
        assert_eq!(stuck.late_ms, 2_300);
        assert_eq!(tally.pulse(&stuck, 0, 0).late_ms, 0);
    }
}
