//! Parcels on their way to the broker, a lane for each queue: within a queue they leave in order and one batch at a time;
//! a queue that takes nothing keeps no other waiting. What a queue did not take comes back, and the lane rests a little
//! longer each time.
//!
//! Not here: what is in a parcel ([`super::packing`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use mutirao_broker::{BrokerError, Deletion, Shared as Broker};
use mutirao_core::Clock;
use mutirao_core::envelope::{ParcelId, tasks_of};
use mutirao_core::id::QueueName;

use super::Back;
use super::fence::{Ours, while_ours};
use crate::meters::PARCELS;
use crate::traces::HandedOut;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Batches and looks that the broker may be busy with for one shard. Past it nothing more is taken from the foreman.
const UNDER_WAY_MAX: usize = 64;
/// Removals among them: a broker that cannot remove queues must leave room for parcels.
const REMOVING_MAX: usize = 32;

/// A parcel, ready to be sent.
pub(super) struct Packed {
    pub id: ParcelId,
    pub body: Bytes,
    pub handed_out: HandedOut,
}

enum Trip {
    Published { queue: QueueName, parcels: Vec<(ParcelId, HandedOut)>, result: Result<(), Unsent> },
    Looked { queue: QueueName, is_empty: bool },
    Removed { queue: QueueName, deletion: Result<Deletion, Unsent> },
}

/// Why something did not leave, or did not arrive.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error("the shard has another owner by now, or may have")]
    Fenced,
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

#[derive(Default)]
struct Lane {
    waiting: Vec<Packed>,
    publishing: bool,
    looking: Option<Look>,
    /// Before the next batch. Grows while nothing can be sent, so that an outage is not answered with a storm.
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Nothing was sent since it began.
    Clear,
    /// Something was, so what it finds says nothing about that.
    Overtaken,
}

impl Lane {
    fn is_busy(&self) -> bool {
        self.publishing || !self.waiting.is_empty()
    }
}

pub(super) struct Lanes {
    broker: Broker,
    clock: Arc<dyn Clock>,
    ours: Ours,
    lanes: HashMap<QueueName, Lane>,
    under_way: FuturesUnordered<BoxFuture<'static, Trip>>,
    /// How many of them are removals.
    removing: usize,
}

impl Lanes {
    pub fn new(broker: Broker, clock: Arc<dyn Clock>, ours: Ours) -> Self {
        Self { broker, clock, ours, lanes: HashMap::new(), under_way: FuturesUnordered::new(), removing: 0 }
    }

    pub fn have_room(&self) -> bool {
        self.under_way.len() < UNDER_WAY_MAX
    }

    pub fn send(&mut self, queue: QueueName, parcels: Vec<Packed>) {
        let lane = self.lanes.entry(queue.clone()).or_default();
        lane.waiting.extend(parcels);
        lane.looking = lane.looking.map(|_| Look::Overtaken);
        self.go_on(queue);
    }

    fn go_on(&mut self, queue: QueueName) {
        let Some(lane) = self.lanes.get_mut(&queue).filter(|lane| !lane.publishing) else { return };
        if lane.waiting.is_empty() {
            if lane.pause.is_zero() && lane.looking.is_none() {
                self.lanes.remove(&queue);
            }
            return;
        }
        lane.publishing = true;
        let (pause, waiting) = (lane.pause, std::mem::take(&mut lane.waiting));
        let (broker, clock, ours) = (self.broker.clone(), self.clock.clone(), self.ours.clone());
        self.under_way.push(Box::pin(async move {
            if !pause.is_zero() {
                clock.sleep(pause).await;
            }
            let mut parcels = Vec::with_capacity(waiting.len());
            let mut bodies = Vec::with_capacity(waiting.len());
            for Packed { id, body, handed_out } in waiting {
                parcels.push((id, handed_out));
                bodies.push(body);
            }
            let result = match while_ours(&ours, broker.publish(&tasks_of(&queue), bodies)).await {
                Some(sent) => sent.map_err(Unsent::from),
                None => Err(Unsent::Fenced),
            };
            Trip::Published { queue, parcels, result }
        }));
    }

    /// Finds out whether anything lies in a queue. Not while something is on its way there: what is not there yet is not lost.
    pub fn look(&mut self, queue: QueueName) {
        let lane = self.lanes.entry(queue.clone()).or_default();
        if lane.is_busy() || lane.looking.is_some() {
            return;
        }
        lane.looking = Some(Look::Clear);
        let broker = self.broker.clone();
        self.under_way.push(Box::pin(async move {
            let counts = broker.counts(&tasks_of(&queue)).await;
            Trip::Looked { is_empty: counts.is_ok_and(|counts| counts.ready + counts.unacked == 0), queue }
        }));
    }

    /// Removes a queue from the broker, or leaves it for another time. What is sent there meanwhile leaves afterwards, to
    /// one that is made anew.
    pub fn remove(&mut self, queue: QueueName) {
        if self.removing >= REMOVING_MAX {
            return;
        }
        let lane = self.lanes.entry(queue.clone()).or_default();
        if lane.is_busy() || lane.looking.is_some() {
            return;
        }
        lane.publishing = true;
        self.removing += 1;
        let (broker, ours) = (self.broker.clone(), self.ours.clone());
        self.under_way.push(Box::pin(async move {
            let deletion = match while_ours(&ours, broker.delete(&tasks_of(&queue))).await {
                Some(deleted) => deleted.map_err(Unsent::from),
                None => Err(Unsent::Fenced),
            };
            Trip::Removed { queue, deletion }
        }));
    }

    /// What came of the next trip that ends; none when nothing is under way. Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<Back>> {
        Some(match self.under_way.next().await? {
            Trip::Looked { queue, is_empty } => {
                let look = self.lanes.get_mut(&queue).and_then(|lane| lane.looking.take());
                self.go_on(queue.clone());
                if is_empty && look == Some(Look::Clear) { vec![Back::Empty(queue)] } else { Vec::new() }
            }
            Trip::Removed { queue, deletion } => {
                self.removing -= 1;
                if let Some(lane) = self.lanes.get_mut(&queue) {
                    lane.publishing = false;
                }
                self.go_on(queue.clone());
                match deletion {
                    Ok(Deletion::Gone) => vec![Back::Gone(queue)],
                    Ok(Deletion::InUse) => Vec::new(),
                    Err(error) => {
                        tracing::debug!(%queue, %error, "a deleted queue is still with the broker; trying again later");
                        Vec::new()
                    }
                }
            }
            Trip::Published { queue, parcels, result } => {
                self.rest(&queue, result.as_ref().err());
                let trouble = result.err().map(|error| error.to_string());
                self.go_on(queue);
                if trouble.is_none() {
                    metrics::counter!(PARCELS).increment(parcels.len() as u64);
                }
                let mut back = Vec::new();
                for (id, handed_out) in parcels {
                    handed_out.sent(trouble.as_deref(), &*self.clock);
                    back.extend(trouble.as_ref().map(|_| Back::Unsent(id)));
                }
                back
            }
        })
    }

    fn rest(&mut self, queue: &QueueName, trouble: Option<&Unsent>) {
        let Some(lane) = self.lanes.get_mut(queue) else { return };
        lane.publishing = false;
        let Some(error) = trouble else {
            lane.pause = Duration::ZERO;
            return;
        };
        // What it refuses, perhaps for every queue, the broker says itself; and who has lost a shard is told elsewhere.
        if lane.pause.is_zero() && !matches!(error, Unsent::Fenced | Unsent::Broker(BrokerError::Refused { .. })) {
            tracing::warn!(%queue, %error, "parcels cannot be sent; trying again until they can");
        }
        lane.pause = (lane.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use mutirao_broker::{Limits, Memory};
    use mutirao_core::SystemClock;

    use crate::traces::{Began, HandingOut};

    use super::*;

    fn lanes() -> Lanes {
        Lanes::new(Memory::new(None, Limits::default()), SystemClock::shared(), Arc::new(|| true))
    }

    fn parcel() -> Vec<Packed> {
        let id = ParcelId { generation: 1, n: 1 };
        let handed_out = HandingOut::default().take(Began::now(&SystemClock));
        vec![Packed { id, body: Bytes::from_static(b"a parcel"), handed_out }]
    }

    async fn found_empty(lanes: &mut Lanes) -> usize {
        let mut empty = 0;
        while let Some(back) = lanes.next().await {
            empty += back.iter().filter(|back| matches!(back, Back::Empty(_))).count();
        }
        empty
    }

    #[tokio::test]
    async fn a_queue_is_not_looked_at_while_something_is_on_its_way_there() {
        let (mut lanes, queue) = (lanes(), QueueName::default());
        lanes.send(queue.clone(), parcel());
        lanes.look(queue.clone());
        assert_eq!(lanes.under_way.len(), 1, "what is being published is not lost");
        assert_eq!(found_empty(&mut lanes).await, 0);
        assert!(lanes.lanes.is_empty());
    }

    #[tokio::test]
    async fn removals_leave_room_for_parcels_however_many_are_wanted() {
        let mut lanes = lanes();
        let queue = |n: usize| format!("q{n}").parse::<QueueName>().unwrap();
        (0..2 * UNDER_WAY_MAX).for_each(|n| lanes.remove(queue(n)));
        assert!(lanes.have_room());
        while lanes.next().await.is_some() {}
        lanes.remove(queue(UNDER_WAY_MAX));
        assert_eq!((lanes.under_way.len(), lanes.removing), (1, 1), "there is room again");
    }

    #[tokio::test]
    async fn what_has_not_left_when_the_shard_is_lost_does_not_leave() {
        let (mut lanes, queue) = (lanes(), QueueName::default());
        let holds = Arc::new(AtomicBool::new(true));
        lanes.ours = Arc::new({
            let holds = holds.clone();
            move || holds.load(Ordering::Relaxed)
        });
        let successors = vec![Bytes::from_static(b"its successor's parcel")];
        lanes.broker.publish(&tasks_of(&queue), successors).await.unwrap();
        let lying = async |lanes: &Lanes| lanes.broker.counts(&tasks_of(&queue)).await.unwrap().ready;

        lanes.remove(queue.clone());
        holds.store(false, Ordering::Relaxed);
        assert!(lanes.next().await.unwrap().is_empty(), "nobody is told that it is gone");
        assert_eq!(lying(&lanes).await, 1, "a removal that was wanted before");

        lanes.send(queue.clone(), parcel());
        let back = lanes.next().await.unwrap();
        assert!(matches!(back[..], [Back::Unsent(_)]));
        assert_eq!(lying(&lanes).await, 1, "a parcel too");

        holds.store(true, Ordering::Relaxed);
        lanes.remove(queue.clone());
        while lanes.next().await.is_some() {}
        assert_eq!(lying(&lanes).await, 0, "its owner removes it");
    }

    #[tokio::test]
    async fn a_look_that_was_overtaken_by_a_parcel_says_nothing() {
        let (mut lanes, queue) = (lanes(), QueueName::default());
        lanes.look(queue.clone());
        assert_eq!(found_empty(&mut lanes).await, 1);
        lanes.look(queue.clone());
        lanes.send(queue, parcel());
        assert_eq!(found_empty(&mut lanes).await, 0);
    }
}
