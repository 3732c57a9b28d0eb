//! Writes on their way to whoever applies them, through a queue of each shard at RabbitMQ. Those that arrive while a parcel is
//! being confirmed wait and share the next: one message, one confirm.
//!
//! Of one outbox one parcel is on its way to a queue at a time. So their numbers grow in the queue, whatever is sent again, and
//! the last number that was applied says which have been.
//!
//! What was not confirmed in time is given up, and never sent again: a write that comes hours late, when its giver has long
//! made another, would bring an old value back.

pub(crate) mod book;
mod following;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::{BrokerError, Shared as Broker};
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Mono, ShardId, Timestamp};
use mutirao_shards::Shards;
use mutirao_store::StoreError;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::fold::Taken;
use crate::intake::{Answer, Held, Intake, NotTaken, Receipt, Until, Weight};
use crate::pace::{InHand, Pace};
use crate::store::Shared as Store;
use crate::write::{Parcel, Producer, Write, WriteId};
use crate::{SHARDS, meters, wire};
use book::{Book, Bound, Waiter};

/// Writes that wait to be sent to one shard; whoever comes then is asked to come again.
const WAITING_MAX: usize = 4_096;
/// Bytes after which a parcel takes no more.
const PARCEL_BYTES: usize = 256 << 10;
/// Bytes that may be under way to one shard.
const BACKLOG_BYTES_MAX: usize = 64 << 20;
/// A message costs RabbitMQ as much as a hundred writes in it do, so where many come at once they wait a moment for each other;
/// and less when it comes with those of other shards, which then share its trips and its fsync, so all leave on one beat.
const PARCELS: Pace = Pace::new(Duration::from_millis(2), Duration::from_millis(16), wire::PARCEL_WRITES_MAX)
    .on_the_beat(Duration::from_millis(4));
/// How long a write may wait to be sent. With what its confirm may take, less than its giver waits: what was told to be
/// unknown is made by then, or never.
const SENT_WITHIN: Duration = Duration::from_secs(4);
/// How long a queue may take to confirm.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);
/// After this long without anything being applied, a full backlog lets one parcel through.
const STUCK: Duration = Duration::from_secs(15);

/// How often it says that it lives, and how soon again when that could not be written.
const SAY_AGAIN: Duration = Duration::from_secs(1_200);
const SAY_SOON: Duration = Duration::from_secs(10);

/// The queue of a shard's writes.
pub fn queue_of(shard: ShardId) -> String {
    format!("kv.{}", shard.0)
}

pub struct OutboxParts {
    pub broker: Broker,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    /// Of this life of this process.
    pub producer: Producer,
    /// Writes that may be under way to one shard.
    pub backlog_max: usize,
    pub shards: Shards,
}

struct Given {
    write: Write,
    at: Mono,
    durable: oneshot::Sender<Answer>,
    applied: Option<oneshot::Sender<Answer>>,
    _held: Held,
}

impl Given {
    /// What its giver waits for.
    fn until(&self) -> Until {
        if self.applied.is_some() { Until::Applied } else { Until::Durable }
    }
}

/// One shard's.
struct Lane {
    inbox: mpsc::Sender<Given>,
    weight: Weight,
    book: Mutex<Book>,
}

pub struct Outbox {
    lanes: Vec<Lane>,
    broker: Broker,
    store: Store,
    clock: Arc<dyn Clock>,
    producer: Producer,
    bound: Bound,
    shards: Shards,
    /// Rung when there is something to follow.
    bell: Notify,
}

impl Outbox {
    /// Introduces itself; sends and follows for as long as the tasks live.
    pub async fn start(parts: OutboxParts, tasks: &mut JoinSet<()>) -> Result<Arc<Self>, StoreError> {
        let OutboxParts { broker, store, clock, producer, backlog_max, shards } = parts;
        let begun = clock.now();
        store.introduce(producer, begun, begun).await?;
        let (lanes, inboxes): (Vec<Lane>, Vec<_>) = (0..SHARDS)
            .map(|_| {
                let (inbox, given) = mpsc::channel(WAITING_MAX);
                (Lane { inbox, weight: Weight::default(), book: Mutex::default() }, given)
            })
            .unzip();
        let bound = Bound { writes: backlog_max, bytes: BACKLOG_BYTES_MAX };
        let outbox = Arc::new(Self { lanes, broker, store, clock, producer, bound, shards, bell: Notify::new() });
        for (shard, given) in (0..SHARDS).map(ShardId).zip(inboxes) {
            tasks.spawn(send(outbox.clone(), shard, given));
        }
        tasks.spawn(following::follow(outbox.clone()));
        tasks.spawn(live(outbox.clone(), begun));
        Ok(outbox)
    }

    fn lane(&self, shard: ShardId) -> &Lane {
        &self.lanes[shard.0 as usize]
    }

    /// These were applied by this very process.
    pub fn heard(&self, shard: ShardId, taken: &[Taken]) {
        for taken in taken.iter().filter(|taken| taken.producer == self.producer) {
            let waiters = self.lane(shard).book.lock().waiters_of(taken.number);
            for (index, waiter) in waiters {
                let id = self.id(shard, taken.number, index);
                let fate = taken.fates.get(index as usize).copied();
                // Whoever asked may have gone.
                let _ = waiter.send(fate.map_or(Answer::SetAside { id }, |fate| Answer::Settled { id, fate }));
            }
            self.reach(shard, taken.number);
        }
    }

    fn reach(&self, shard: ShardId, number: u64) {
        let gone = self.lane(shard).book.lock().reach(number, self.clock.monotonic());
        meters::backlog(-(gone as f64));
    }

    fn id(&self, shard: ShardId, number: u64, index: u32) -> WriteId {
        WriteId { shard, producer: self.producer, number, index }
    }
}

impl Intake for Outbox {
    fn give(&self, shard: ShardId, write: Write, until: Until) -> Result<Receipt, NotTaken> {
        let lane = self.lane(shard);
        let now = self.clock.monotonic();
        if lane.book.lock().is_full(self.bound, now, STUCK) {
            return Err(NotTaken::Full);
        }
        let _held = lane.weight.hold(write.bytes()).ok_or(NotTaken::Full)?;
        let (durable, durably) = oneshot::channel();
        let (applied, applying) = match until {
            Until::Durable => (None, None),
            Until::Applied => {
                let (tell, told) = oneshot::channel();
                (Some(tell), Some(told))
            }
        };
        lane.inbox.try_send(Given { write, at: now, durable, applied, _held }).map_err(|_| NotTaken::Full)?;
        Ok(Receipt { durable: durably, applied: applying })
    }
}

/// Says now and then that it lives, so that it stays known also while it sends nothing.
async fn live(outbox: Arc<Outbox>, begun: Timestamp) {
    let mut pause = SAY_AGAIN;
    loop {
        outbox.clock.sleep(pause).await;
        let said = outbox.store.introduce(outbox.producer, begun, outbox.clock.now()).await;
        pause = if said.is_ok() { SAY_AGAIN } else { SAY_SOON };
    }
}

async fn send(outbox: Arc<Outbox>, shard: ShardId, mut given: mpsc::Receiver<Given>) {
    let (mut number, mut pace) = (0, PARCELS);
    while let Some(first) = given.recv().await {
        let hand = InHand { writes: 1, is_all: false, until: first.until() };
        if let Some(wait) = pace.gather(hand, outbox.clock.monotonic()) {
            outbox.clock.sleep(wait).await;
        }
        let mut batch = vec![first];
        fill(&mut batch, &mut given);
        pace.begin(batch.len(), outbox.clock.monotonic());
        // Who has given up waiting was told that it is not known; better that it is not made.
        let now = outbox.clock.monotonic();
        for late in batch.extract_if(.., |given| now.since(given.at) > SENT_WITHIN || given.durable.is_closed()) {
            let _ = late.durable.send(Answer::Unsent);
        }
        if batch.is_empty() {
            continue;
        }
        number += 1;
        outbox.send_one(shard, number, batch).await;
    }
}

/// Takes what waits already, as much as goes into one parcel.
fn fill(batch: &mut Vec<Given>, given: &mut mpsc::Receiver<Given>) {
    let mut bytes: usize = batch.iter().map(|given| given.write.bytes()).sum();
    while batch.len() < wire::PARCEL_WRITES_MAX && bytes < PARCEL_BYTES {
        let Ok(next) = given.try_recv() else { return };
        bytes += next.write.bytes();
        batch.push(next);
    }
}

impl Outbox {
    async fn send_one(&self, shard: ShardId, number: u64, batch: Vec<Given>) {
        let lane = self.lane(shard);
        let (mut writes, mut durable, mut waiters): (Vec<Write>, Vec<_>, Vec<Waiter>) = Default::default();
        for (index, given) in batch.into_iter().enumerate() {
            writes.push(given.write);
            durable.push(given.durable);
            waiters.extend(given.applied.map(|applied| (index as u32, applied)));
        }
        let many = writes.len();
        let until = if waiters.is_empty() { Until::Durable } else { Until::Applied };
        let body = wire::encode(&Parcel { producer: self.producer, number, writes }, until);
        let is_news = {
            let (mut book, now) = (lane.book.lock(), self.clock.monotonic());
            let is_news = !waiters.is_empty() || book.is_empty();
            book.note_probe_if_full(self.bound, now);
            book.begin(number, many, body.len(), waiters, now);
            is_news
        };
        meters::backlog(many as f64);
        if is_news {
            self.bell.notify_one();
        }
        let answer = self.publish(shard, number, body).await;
        if let Answer::Queued { .. } = answer {
            meters::accepted(many);
            meters::confirmed_parcel();
        } else {
            let gone = lane.book.lock().abandon(number);
            meters::backlog(-(gone as f64));
        }
        for (index, durable) in durable.into_iter().enumerate() {
            let _ = durable.send(of_write(answer.clone(), index as u32));
        }
    }

    async fn publish(&self, shard: ShardId, number: u64, body: Bytes) -> Answer {
        let (id, queue) = (self.id(shard, number, 0), queue_of(shard));
        match self.clock.timeout(CONFIRM_WITHIN, self.broker.publish(&queue, vec![body])).await {
            Ok(Ok(())) => Answer::Queued { id },
            Ok(Err(BrokerError::Full { .. })) => Answer::Full,
            Ok(Err(error @ (BrokerError::Refused { .. } | BrokerError::TooLarge { .. }))) => {
                Answer::RefusedByBroker(error.to_string())
            }
            Ok(Err(error)) => Answer::Unconfirmed { id, why: error.to_string() },
            Err(_) => Answer::Unconfirmed { id, why: "it has not confirmed in time".into() },
        }
    }
}

/// Each write has a name of its own.
fn of_write(answer: Answer, index: u32) -> Answer {
    match answer {
        Answer::Queued { id } => Answer::Queued { id: WriteId { index, ..id } },
        Answer::Unconfirmed { id, why } => Answer::Unconfirmed { id: WriteId { index, ..id }, why },
        same => same,
    }
}
