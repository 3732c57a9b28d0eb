//! Taking parcels of checks, and answering for them. A parcel is acknowledged once owners have heard of each of its checks:
//! should this process die before, the broker gives it to another checker, which makes what has time left. What was made of
//! it already counts once.
//!
//! - A check that comes again while it is in hand is not made twice: the line to the broker was cut, and nothing else.
//! - Whoever is told to stop answers for what it has, and leaves the rest to others at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use mutirao_broker::{BrokerError, Consumer};
use mutirao_core::envelope::open;
use mutirao_core::{ShardId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{PAUSE, Shop, Waiting};
use crate::envelope::{Ask, Checks};
use crate::grid::MonitorKey;

/// Parcels in hand, of each queue, are at most as many as checks may be under way, within these: each holds one at least.
/// Enough that services which hang keep no other parcel away; no more, because what is in hand here is made by nobody else.
const CREDIT: std::ops::RangeInclusive<usize> = 16..=2_000;
/// Checks lined up and not yet begun, for each that may be under way. Past it no more are lined up; the credit bounds what
/// the broker sends on meanwhile.
const WAITING_EACH: usize = 2;

/// Tags of parcels of one consumer that nobody has anything more to say of. No more than there are in hand.
#[derive(Debug, Default)]
struct Settled {
    tags: Mutex<Vec<u64>>,
    bell: Notify,
}

impl Settled {
    /// Cancel-safe.
    async fn some(&self) -> Vec<u64> {
        loop {
            let tags = std::mem::take(&mut *self.tags.lock());
            if !tags.is_empty() {
                return tags;
            }
            self.bell.notified().await;
        }
    }
}

/// Settled when the last of its checks is.
#[derive(Debug)]
struct Parcel {
    tag: u64,
    settled: Arc<Settled>,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.settled.tags.lock().push(self.tag);
        self.settled.bell.notify_one();
    }
}

type Firing = (MonitorKey, Timestamp);

/// The checks in hand, and the parcels that they came in.
#[derive(Clone, Debug, Default)]
pub struct Hands(Arc<Mutex<HashMap<Firing, Vec<Arc<Parcel>>>>>);

/// A check in hand. Dropped once its owner knows how it ended.
#[derive(Debug)]
pub struct Hold {
    hands: Hands,
    firing: Firing,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // The parcels are let go of outside the lock.
        let _parcels = self.hands.0.lock().remove(&self.firing);
    }
}

impl Hands {
    /// None when it is in hand already; whoever has it answers for this parcel as well.
    fn take(&self, ask: &Ask, parcel: &Arc<Parcel>) -> Option<Hold> {
        let firing = (ask.monitor, ask.at);
        match self.0.lock().entry(firing) {
            Entry::Occupied(mut same) => {
                same.get_mut().push(parcel.clone());
                None
            }
            Entry::Vacant(new) => {
                new.insert(vec![parcel.clone()]);
                Some(Hold { hands: self.clone(), firing })
            }
        }
    }
}

impl Shop {
    /// Until told to stop.
    pub(super) async fn take(self: Arc<Self>, queue: String, stop: CancellationToken) {
        let credit = self.parts.bounds.under_way_max.clamp(*CREDIT.start(), *CREDIT.end()) as u32;
        loop {
            let consumer = tokio::select! {
                consumer = self.parts.broker.consume(&queue, credit) => consumer,
                () = stop.cancelled() => return,
            };
            let ended = match consumer {
                Ok(consumer) => self.take_from(consumer, &stop).await,
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) | Err(BrokerError::Closed) => return,
                Err(error) => tracing::debug!(queue, %error, "no checks can be taken; trying again"),
            }
            tokio::select! {
                () = self.parts.clock.sleep(PAUSE) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn take_from(
        self: &Arc<Self>,
        mut consumer: Box<dyn Consumer>,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let (settled, mut last) = (Arc::new(Settled::default()), None);
        loop {
            let deliveries = tokio::select! {
                biased;
                () = stop.cancelled() => {
                    // Given back they would be made twice: here, and by whoever is next.
                    if let Some(last) = last {
                        consumer.ack_through(last).await?;
                    }
                    return Ok(());
                }
                tags = settled.some() => {
                    consumer.ack_each(&tags).await?;
                    continue;
                }
                deliveries = async {
                    self.room_to_wait().await;
                    consumer.next().await
                } => deliveries?,
            };
            for delivery in deliveries {
                match open::<Checks>(&delivery.body) {
                    Ok(parcel) => {
                        self.line_up(parcel, Arc::new(Parcel { tag: delivery.tag, settled: settled.clone() }))
                    }
                    Err(unreadable) => consumer.reject(delivery.tag, &unreadable.to_string()).await?,
                }
                last = Some(delivery.tag);
            }
            self.pump();
        }
    }

    fn line_up(&self, Checks { shard, checks, .. }: Checks, parcel: Arc<Parcel>) {
        self.tally.taken(checks.len());
        for ask in checks {
            let Some(hold) = self.hands.take(&ask, &parcel) else { continue };
            let host = ask.check.host();
            let beyond = self.queue.lock().0.push(&host, Waiting { shard: ShardId(shard), ask, hold });
            if let Err(one) = beyond {
                self.miss(one.shard, one.hold);
            }
        }
    }

    async fn room_to_wait(&self) {
        loop {
            let rung = self.bell.notified();
            if self.queue.lock().0.waiting() < self.parts.bounds.under_way_max.saturating_mul(WAITING_EACH) {
                return;
            }
            rung.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(monitor: u64) -> Ask {
        Ask {
            monitor: MonitorKey(monitor),
            at: Timestamp(1_000),
            until: Timestamp(2_000),
            timeout_ms: 500,
            retries: 0,
            check: Arc::new(serde_json::from_str(r#"{"tcp": {"address": "127.0.0.1:1"}}"#).unwrap()),
            when: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_parcel_is_settled_with_the_last_of_its_checks() {
        let (hands, settled) = (Hands::default(), Arc::new(Settled::default()));
        let parcel = |tag| Arc::new(Parcel { tag, settled: settled.clone() });
        let (first, second) = (parcel(1), parcel(2));
        let [a, b, c] =
            [(1, &first), (2, &first), (3, &second)].map(|(n, parcel)| hands.take(&ask(n), parcel).unwrap());
        drop((first, second));
        drop(b);
        assert!(settled.tags.lock().is_empty());
        drop(c);
        assert_eq!(settled.some().await, [2], "what was taken before it takes longer");
        drop(a);
        assert_eq!(settled.some().await, [1]);
        assert!(hands.0.lock().is_empty());
    }

    #[tokio::test]
    async fn what_comes_again_while_it_is_in_hand_is_made_once_and_settles_both_parcels() {
        let (hands, settled) = (Hands::default(), Arc::new(Settled::default()));
        let hold = hands.take(&ask(1), &Arc::new(Parcel { tag: 1, settled: settled.clone() })).unwrap();
        assert!(hands.take(&ask(1), &Arc::new(Parcel { tag: 2, settled: settled.clone() })).is_none());
        assert!(settled.tags.lock().is_empty());
        drop(hold);
        assert_eq!(settled.some().await, [1, 2]);
    }
}
