//! Moving messages between processes. One trait, several implementations, one behaviour suite (`suite`, behind the
//! feature of that name).
//!
//! - [`memory`]: inside one process, for `mutirao up`; its logs are segment files.
//! - [`link`]: the same broker reached over one authenticated WebSocket, for worker processes and far nodes.
//! - [`rabbit`]: RabbitMQ, for many processes on many machines.
//!
//! The broker is transport, never the truth: the store is. A broker that loses every message costs time, not work, so
//! nothing here is asked to survive the death of its process except a [`log`](Broker::append).

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

mod backoff;
mod inbox;
mod letters;
pub mod link;
pub mod memory;
pub mod rabbit;
mod segments;
#[cfg(feature = "suite")]
pub mod suite;
mod takers;

pub use letters::{DeadLetter, LetterId, Letters};
pub use memory::{Limits, Memory};
pub use rabbit::Rabbit;

pub type Shared = Arc<dyn Broker>;

/// What a queue or topic is called. Dotted lower-case parts: `tasks.default`, `results.jobs.0`.
pub type Name = str;

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum BrokerError {
    /// The other side is away; the broker keeps trying to reach it. Unconfirmed publishes may or may not have arrived.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// Not allowed for this connection.
    #[error("the broker refuses {what}: {why}")]
    Refused { what: String, why: String },
    /// A bound was reached and nothing of the batch was taken (on RabbitMQ: maybe its first messages); try again when
    /// consumers have caught up. `bound` counts messages: the most a queue may hold, or those it holds when it is their
    /// bytes that fill it.
    #[error("{name} is full ({bound} messages)")]
    Full { name: String, bound: usize },
    /// One message, or one batch of log records, is past what may travel together. Nothing of it was taken.
    #[error("a message of {bytes} bytes is too large, the most is {bound}")]
    TooLarge { bytes: usize, bound: usize },
    /// The offset was removed by retention, or does not exist yet.
    #[error("log {name} has no offset {offset}: it holds {first} to {next}")]
    NoSuchOffset { name: String, offset: u64, first: u64, next: u64 },
    #[error("the log {name} cannot be used: {why}")]
    Log { name: String, why: String },
    /// This handle was closed by its owner.
    #[error("the broker connection is closed")]
    Closed,
}

/// How much waits in a work queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Waiting for a consumer.
    pub ready: u64,
    /// With a consumer, not yet acknowledged. On RabbitMQ: with a consumer of this process.
    pub unacked: u64,
    /// Rejected, kept for a person to look at.
    pub dead: u64,
    /// Connected consumers.
    pub consumers: u64,
}

/// What became of a queue that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Deletion {
    Gone,
    /// Somebody consumes from it; it is as it was.
    InUse,
}

/// A message handed to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Grows within one consumer.
    pub tag: u64,
    pub body: Bytes,
    /// Somebody may have seen it before: it was delivered and not acknowledged.
    pub redelivered: bool,
}

/// One record of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub offset: u64,
    pub body: Bytes,
}

/// Work queues, fanout and logs.
///
/// Work queues come into being when first named. Delivery is at least once: what a consumer has not acknowledged when
/// it is dropped, or cut off, goes back to the head of its queue, in order, marked redelivered. From queues `kv.…` one
/// consumer takes at a time, so that the order stays also while one follows another.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Whether the other side can be reached at this moment; if not, why not. For people: a call just waits.
    fn reachable(&self) -> Result<(), BrokerError> {
        Ok(())
    }

    /// What is known to be wrong with a work queue, or with the way to it: the other side may be there and yet refuse it.
    /// For people, as [`reachable`](Self::reachable) is.
    fn trouble(&self, _queue: &Name) -> Option<BrokerError> {
        self.reachable().err()
    }

    /// Puts messages at the tail of a work queue, in order, and returns once the broker has them all. After an error
    /// any prefix of them may have arrived.
    async fn publish(&self, queue: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError>;

    /// Takes messages from a work queue. At most `credit` are unacknowledged at a time. Survives reconnects by itself.
    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError>;

    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError>;

    /// Removes a work queue, what lies in it and its dead letters, unless somebody consumes from it. One that is not there
    /// is gone; one that is named again comes into being again.
    async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError>;

    /// The oldest dead letters of a queue, at most `limit`; they stay, and stay in their order.
    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError>;

    /// How many dead letters a queue has. A queue that is not there has none, and does not come into being by this.
    async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError>;

    /// Removes dead letters for good, and says how many. The others stay in their order.
    async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError>;

    /// Sends to whoever is subscribed now. Nobody waits for it and it is not kept.
    async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError>;

    /// Hears what is announced from now on. A subscriber that falls behind by more than a bound misses the oldest, and
    /// is told so. Survives reconnects by itself; what was announced meanwhile is missed, and told as well.
    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError>;

    /// Appends records to a log, durably and in order, and returns the offset of the first. The others follow it at
    /// once, except on RabbitMQ, where records of other writers may come between.
    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError>;

    /// As [`append`](Self::append), for whoever need not know where they are: on RabbitMQ that costs a reader.
    async fn add(&self, log: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        self.append(log, batch).await.map(drop)
    }

    /// Reads up to `limit` records from `offset` on; waits for the first when `offset` is the log's end. Cancel-safe.
    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError>;

    /// The first offset held and the next to be written.
    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError>;

    /// Records before an offset are needed no more. They go in pieces, so that some of them may stay for a while. RabbitMQ
    /// has no such thing: there they stay until their bytes are too many, and this does nothing.
    async fn trim(&self, log: &Name, before: u64) -> Result<(), BrokerError>;

    /// Removes a log with all its records; one that is not there is gone. One that is named again, also by somebody who still
    /// reads from it, begins anew at 0.
    async fn forget(&self, log: &Name) -> Result<(), BrokerError>;
}

/// The receiving end of a work queue.
#[async_trait]
pub trait Consumer: Send {
    /// The next messages, at least one and as many as are there (bounded by credit). Cancel-safe.
    async fn next(&mut self) -> Result<Vec<Delivery>, BrokerError>;

    /// Acknowledges everything up to and including `tag`.
    async fn ack_through(&mut self, tag: u64) -> Result<(), BrokerError>;

    /// Acknowledges these and no others: what was taken before them may take longer. Those already settled change nothing.
    async fn ack_each(&mut self, tags: &[u64]) -> Result<(), BrokerError>;

    /// Takes nothing more: what came after `seen` (0 for all of it) goes back at once, for whoever takes next. What came until
    /// then is settled as before, and goes back with the consumer. Not for queues that are taken from in order.
    async fn retire(&mut self, seen: u64) -> Result<(), BrokerError>;

    /// Puts one message with the dead letters, with a reason. Its neighbours are untouched.
    async fn reject(&mut self, tag: u64, reason: &str) -> Result<(), BrokerError>;
}

/// What a subscriber hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Message(Bytes),
    /// Some messages were missed: whatever they announced must be looked up.
    Gap,
}

#[async_trait]
pub trait Subscription: Send {
    /// Cancel-safe.
    async fn next(&mut self) -> Result<Heard, BrokerError>;
}
