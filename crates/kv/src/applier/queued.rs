//! Writes from a queue: parcels in their order, as many as there are at once, each acknowledged when what came of it is
//! committed. A parcel that comes again, because its acknowledgement got lost or the shard changed hands, is passed over by
//! the store.
//!
//! Nobody waits here, so a store that is away is tried for ever: what was confirmed to somebody stays in the queue until it is
//! written.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::{BrokerError, Consumer, Delivery, Shared as Broker};
use mutirao_core::meters::DEAD_LETTERS_MADE;
use mutirao_store::StoreError;

use super::{Applied, Applier, BATCH_BYTES_MAX, BATCH_WRITES_MAX, Go, LOOK, PAUSE};
use crate::intake::Until;
use crate::outbox::{Outbox, queue_of};
use crate::pace::{InHand, Pace};
use crate::wire;
use crate::write::{Parcel, Producer, Write};

/// Parcels that may be here and not acknowledged.
const CREDIT: u32 = 64;
/// A commit costs as much as several hundred writes in it do. What nobody waits for may be durable and not applied for so long.
const COMMITS: Pace = Pace::new(Duration::from_millis(3), Duration::from_millis(250), BATCH_WRITES_MAX);
/// Between two tries to take from a queue that refuses.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// How often a parcel is tried that the store refuses for itself, before it goes to the dead letters.
const TRIES_MAX: u32 = 20;
/// How often it is tried to write down that it was.
const SET_ASIDE_TRIES_MAX: u32 = 10;

pub(super) struct Queued {
    applier: Applier,
    broker: Broker,
    outbox: Arc<Outbox>,
    pace: Pace,
    /// The last trouble with the broker, which is told once.
    trouble: Option<String>,
}

/// A parcel and the delivery that brought it.
struct Brought {
    tag: u64,
    parcel: Parcel,
    until: Until,
}

impl Queued {
    pub fn new(applier: Applier, broker: Broker, outbox: Arc<Outbox>) -> Self {
        Self { applier, broker, outbox, pace: COMMITS, trouble: None }
    }

    /// Until the shard is another's. What is not acknowledged by then goes back to the queue, in its place.
    pub async fn run(mut self) {
        while let Some(mut consumer) = self.attach().await {
            match self.take_from(consumer.as_mut()).await {
                Ok(Go::Away) => return,
                // Whoever owns the shard by now gets nothing from the queue while this one takes from it.
                Ok(Go::On) => drop(consumer),
                Err(error) => self.tell(&error),
            }
            self.applier.bench.clock.sleep(REFUSED_PAUSE).await;
        }
    }

    /// None when the shard went first.
    async fn attach(&mut self) -> Option<Box<dyn Consumer>> {
        let queue = queue_of(self.applier.fence.shard);
        let clock = self.applier.bench.clock.clone();
        while self.applier.stays() {
            if !self.applier.holds() {
                clock.sleep(LOOK).await;
                continue;
            }
            let refused = {
                let mut attaching = std::pin::pin!(self.broker.consume(&queue, CREDIT));
                loop {
                    tokio::select! {
                        attached = &mut attaching => match attached {
                            Ok(consumer) => {
                                self.trouble = None;
                                return Some(consumer);
                            }
                            Err(error) => break error,
                        },
                        // A broker that is away is waited for, but not longer than the shard is ours.
                        () = clock.sleep(LOOK) => if !self.applier.stays() { return None },
                    }
                }
            };
            self.tell(&refused);
            clock.sleep(REFUSED_PAUSE).await;
        }
        None
    }

    fn tell(&mut self, error: &BrokerError) {
        let shard = self.applier.fence.shard.0;
        let line = error.to_string();
        // Every shard meets a refusal, and the broker says it for all of them.
        if matches!(error, BrokerError::Refused { .. }) || self.trouble.as_ref() == Some(&line) {
            tracing::debug!(%error, shard, "writes cannot be taken from their queue");
        } else {
            tracing::warn!(%error, shard, "writes cannot be taken from their queue; it is tried again");
        }
        self.trouble = Some(line);
    }

    /// Until the shard is another's, or may be: then it goes on once that is known.
    async fn take_from(&mut self, consumer: &mut dyn Consumer) -> Result<Go, BrokerError> {
        let clock = self.applier.bench.clock.clone();
        while self.applier.holds() {
            self.applier.vouch().await;
            let brought = tokio::select! {
                biased;
                brought = consumer.next() => brought?,
                () = clock.sleep(self.applier.nap(clock.now())) => Vec::new(),
            };
            let mut parcels = self.read(brought, consumer).await?;
            self.gather(&mut parcels, consumer).await?;
            for batch in batches(parcels) {
                self.pace.begin(writes_of(&batch), clock.monotonic());
                match self.settle(batch, consumer).await? {
                    Settled::Done => {}
                    Settled::Aside => return Ok(Go::On),
                    Settled::Away => return Ok(Go::Away),
                }
            }
            if let Go::Away = self.applier.tidy().await {
                return Ok(Go::Away);
            }
        }
        Ok(if self.applier.stays() { Go::On } else { Go::Away })
    }

    /// Takes more, for as long as that is better than to write what is there.
    async fn gather(&self, parcels: &mut Vec<Brought>, consumer: &mut dyn Consumer) -> Result<(), BrokerError> {
        let clock = &self.applier.bench.clock;
        loop {
            let awaited = parcels.iter().any(|brought| brought.until == Until::Applied);
            let hand = InHand {
                writes: writes_of(parcels),
                is_all: parcels.is_empty() || parcels.len() >= CREDIT as usize,
                until: if awaited { Until::Applied } else { Until::Durable },
            };
            let Some(left) = self.pace.gather(hand, clock.monotonic()) else { return Ok(()) };
            let brought = tokio::select! {
                biased;
                brought = consumer.next() => brought?,
                () = clock.sleep(left) => return Ok(()),
            };
            parcels.extend(self.read(brought, consumer).await?);
        }
    }

    /// What cannot be read goes to the dead letters, with the reason, and holds up nobody.
    async fn read(&self, brought: Vec<Delivery>, consumer: &mut dyn Consumer) -> Result<Vec<Brought>, BrokerError> {
        let mut parcels = Vec::new();
        for Delivery { tag, body, .. } in brought {
            match self.decode(&body) {
                Ok((parcel, until)) => parcels.push(Brought { tag, parcel, until }),
                Err(unreadable) => bury(consumer, tag, "unreadable", &unreadable.to_string()).await?,
            }
        }
        Ok(parcels)
    }

    fn decode(&self, body: &Bytes) -> Result<(Parcel, Until), wire::Unreadable> {
        wire::decode(body, self.applier.fence.shard)
    }

    async fn settle(&mut self, batch: Vec<Brought>, consumer: &mut dyn Consumer) -> Result<Settled, BrokerError> {
        let Some(last) = batch.last().map(|brought| brought.tag) else { return Ok(Settled::Done) };
        match self.try_on(&batch).await {
            Tried::Done => consumer.ack_through(last).await?,
            Tried::Aside => return Ok(Settled::Aside),
            Tried::Away => return Ok(Settled::Away),
            Tried::Refused(error) if batch.len() == 1 => {
                tracing::error!(%error, "the store refuses a parcel of writes; it goes to the dead letters");
                bury(consumer, last, "rejected", &format!("the store refuses it: {error}")).await?;
                for Brought { parcel, .. } in batch {
                    self.set_aside(parcel.producer, parcel.number).await;
                }
            }
            // One of them spoils it for the others.
            Tried::Refused(_) => {
                for alone in batch {
                    match Box::pin(self.settle(vec![alone], consumer)).await? {
                        Settled::Done => {}
                        other => return Ok(other),
                    }
                }
            }
        }
        Ok(Settled::Done)
    }

    /// Tells whoever waits for it. Where that cannot be written, it is known once something that was sent later is applied.
    async fn set_aside(&self, producer: Producer, number: u64) {
        for _ in 0..SET_ASIDE_TRIES_MAX {
            match self.applier.set_aside(producer, number).await {
                Ok(Applied::Done(taken)) => return self.outbox.heard(self.applier.fence.shard, &taken),
                Ok(Applied::Fenced) => return,
                Err(error) => tracing::debug!(%error, "that a parcel was set aside cannot be written for now"),
            }
            self.applier.bench.clock.sleep(PAUSE).await;
        }
    }

    /// Applies it, however long the store is away.
    async fn try_on(&mut self, batch: &[Brought]) -> Tried {
        let mut refusals = 0;
        loop {
            let parcels: Vec<Parcel> = batch.iter().map(|brought| brought.parcel.clone()).collect();
            let error = match self.applier.apply(parcels).await {
                Ok(Applied::Done(taken)) => {
                    self.outbox.heard(self.applier.fence.shard, &taken);
                    return Tried::Done;
                }
                Ok(Applied::Fenced) | Err(StoreError::Closed) => return Tried::Away,
                Err(error) => error,
            };
            tracing::debug!(%error, "a batch of writes is tried again");
            // Whatever else is wrong with the store says nothing about what it was given.
            if error.is_about_the_data() {
                refusals += 1;
            }
            if refusals >= if batch.len() == 1 { TRIES_MAX } else { 1 } {
                return Tried::Refused(error);
            }
            self.applier.bench.clock.sleep(PAUSE).await;
            if !self.applier.stays() {
                return Tried::Away;
            }
            if !self.applier.holds() {
                return Tried::Aside;
            }
        }
    }
}

/// What became of a batch.
enum Settled {
    Done,
    /// Nothing yet: whose the shard is is not known.
    Aside,
    Away,
}

enum Tried {
    Done,
    Aside,
    Away,
    Refused(StoreError),
}

async fn bury(consumer: &mut dyn Consumer, tag: u64, what: &'static str, reason: &str) -> Result<(), BrokerError> {
    metrics::counter!(DEAD_LETTERS_MADE, "reason" => what).increment(1);
    consumer.reject(tag, reason).await
}

fn writes_of(parcels: &[Brought]) -> usize {
    parcels.iter().map(|brought| brought.parcel.writes.len()).sum()
}

/// In order, each as large as one transaction may be.
fn batches(parcels: Vec<Brought>) -> Vec<Vec<Brought>> {
    let mut batches: Vec<Vec<Brought>> = Vec::new();
    let (mut writes, mut bytes) = (0, 0);
    for brought in parcels {
        let more = brought.parcel.writes.len();
        let heavier: usize = brought.parcel.writes.iter().map(Write::bytes).sum();
        let fits = writes + more <= BATCH_WRITES_MAX && bytes + heavier <= BATCH_BYTES_MAX;
        match batches.last_mut().filter(|_| fits) {
            Some(batch) => {
                batch.push(brought);
                (writes, bytes) = (writes + more, bytes + heavier);
            }
            None => {
                batches.push(vec![brought]);
                (writes, bytes) = (more, heavier);
            }
        }
    }
    batches
}
