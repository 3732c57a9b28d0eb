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
use mutirao_broker::{BrokerError, Shared as Broker};
use mutirao_core::Clock;
use mutirao_core::envelope::{ParcelId, tasks_of};
use mutirao_core::id::QueueName;

use super::Back;
use crate::meters::PARCELS;
use crate::traces::HandedOut;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Batches and looks that the broker may be busy with for one shard. Past it nothing more is taken from the foreman.
const UNDER_WAY_MAX: usize = 64;

/// A parcel, ready to be sent.
pub(super) struct Packed {
    pub id: ParcelId,
    pub body: Bytes,
    pub handed_out: HandedOut,
}

enum Trip {
    Published { queue: QueueName, parcels: Vec<(ParcelId, HandedOut)>, result: Result<(), BrokerError> },
    Looked { queue: QueueName, is_empty: bool },
}

#[derive(Default)]
struct Lane {
    waiting: Vec<Packed>,
    publishing: bool,
    looking: bool,
    /// Before the next batch. Grows while nothing can be sent, so that an outage is not answered with a storm.
    pause: Duration,
}

pub(super) struct Lanes {
    broker: Broker,
    clock: Arc<dyn Clock>,
    lanes: HashMap<QueueName, Lane>,
    under_way: FuturesUnordered<BoxFuture<'static, Trip>>,
}

impl Lanes {
    pub fn new(broker: Broker, clock: Arc<dyn Clock>) -> Self {
        Self { broker, clock, lanes: HashMap::new(), under_way: FuturesUnordered::new() }
    }

    pub fn have_room(&self) -> bool {
        self.under_way.len() < UNDER_WAY_MAX
    }

    pub fn send(&mut self, queue: QueueName, parcels: Vec<Packed>) {
        self.lanes.entry(queue.clone()).or_default().waiting.extend(parcels);
        self.go_on(queue);
    }

    fn go_on(&mut self, queue: QueueName) {
        let Some(lane) = self.lanes.get_mut(&queue).filter(|lane| !lane.publishing) else { return };
        if lane.waiting.is_empty() {
            if lane.pause.is_zero() && !lane.looking {
                self.lanes.remove(&queue);
            }
            return;
        }
        lane.publishing = true;
        let (pause, waiting) = (lane.pause, std::mem::take(&mut lane.waiting));
        let (broker, clock) = (self.broker.clone(), self.clock.clone());
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
            let result = broker.publish(&tasks_of(&queue), bodies).await;
            Trip::Published { queue, parcels, result }
        }));
    }

    /// Finds out whether anything lies in a queue.
    pub fn look(&mut self, queue: QueueName) {
        let lane = self.lanes.entry(queue.clone()).or_default();
        if std::mem::replace(&mut lane.looking, true) {
            return;
        }
        let broker = self.broker.clone();
        self.under_way.push(Box::pin(async move {
            let counts = broker.counts(&tasks_of(&queue)).await;
            Trip::Looked { is_empty: counts.is_ok_and(|counts| counts.ready + counts.unacked == 0), queue }
        }));
    }

    /// What came of the next trip that ends; none when nothing is under way. Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<Back>> {
        Some(match self.under_way.next().await? {
            Trip::Looked { queue, is_empty } => {
                if let Some(lane) = self.lanes.get_mut(&queue) {
                    lane.looking = false;
                }
                self.go_on(queue.clone());
                if is_empty { vec![Back::Empty(queue)] } else { Vec::new() }
            }
            Trip::Published { queue, parcels, result } => {
                let trouble = result.err().map(|error| error.to_string());
                self.rest(&queue, trouble.as_deref());
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

    fn rest(&mut self, queue: &QueueName, trouble: Option<&str>) {
        let Some(lane) = self.lanes.get_mut(queue) else { return };
        lane.publishing = false;
        let Some(error) = trouble else {
            lane.pause = Duration::ZERO;
            return;
        };
        if lane.pause.is_zero() {
            tracing::warn!(%queue, error, "parcels cannot be sent; trying again until they can");
        }
        lane.pause = (lane.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
}
