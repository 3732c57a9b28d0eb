//! Where messages leave for RabbitMQ, and how long each lasts there.
//!
//! Queues that nodes and clients declare have no arguments, so RabbitMQ bounds nothing in them by itself. What is put there
//! therefore expires: a task when nobody waits for its result any more, a beat or an acknowledgement when the next has long
//! come, an answer after [`Bounds::answers_age`]. A node is never given more tasks than it has slots until some have ended,
//! at their timeout at the latest; so no more than its slots, of each manager, wait for one that is away.
//!
//! Answers may be read by nobody at all. So whoever puts them there looks now and then how many lie in the queue, and takes
//! out the oldest past [`Bounds::answers_max`]: the store has them still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lapin::options::{BasicGetOptions, BasicPublishOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation};
use mutirao_core::clock::{Clock, ClockExt};
use parking_lot::Mutex;

use super::channels::{Channels, Purpose};
use super::{explain, topology};
use crate::names::NodeId;
use crate::wire::places::{NODE_HEADER, Places};

/// RabbitMQ confirms within this, or it is taken for away.
pub const CONFIRM_MAX: Duration = Duration::from_secs(5);
/// Three beats.
pub const BEAT_LASTS: Duration = Duration::from_secs(15);
/// Whoever has not heard its acknowledgement by then has registered again.
pub const ACK_LASTS: Duration = Duration::from_secs(60);
/// Messages in a durable queue outlive the server.
const PERSISTENT: u8 = 2;
/// The queue of answers is looked at once for so many of them.
const LOOK_EVERY: u32 = 64;
/// Taken out at one look, at most.
const TAKEN_OUT_MAX: u32 = 1_000;

/// How much may wait at RabbitMQ, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// A message for a node that is away, however long its task may take.
    pub age: Duration,
    /// Answers that nobody has read.
    pub answers_max: u32,
    pub answers_age: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let day = Duration::from_secs(86_400);
        Self { age: day, answers_max: 100_000, answers_age: 7 * day }
    }
}

pub struct Post {
    channels: Mutex<Option<Arc<Channels>>>,
    pub clock: Arc<dyn Clock>,
    pub places: Places,
    pub bounds: Bounds,
    answered: AtomicU32,
    tidying: AtomicBool,
}

pub enum MustArrive {
    Yes,
    No,
}

/// A message and where it goes.
pub struct Letter<'a> {
    pub exchange: &'a str,
    pub key: &'a str,
    pub headers: Option<FieldTable>,
    pub text: &'a str,
    pub must: MustArrive,
    pub lasts: Duration,
    /// Over which channel.
    pub on: Purpose,
}

/// Why it did not leave.
enum Stayed {
    /// The channel was ended under it: it may leave by the next.
    Ended(String),
    For(String),
}

impl Post {
    pub fn new(clock: Arc<dyn Clock>, places: Places, bounds: Bounds) -> Self {
        let (answered, tidying) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { channels: Mutex::default(), clock, places, bounds, answered, tidying }
    }

    pub fn attach(&self, channels: Option<Arc<Channels>>) {
        *self.channels.lock() = channels;
    }

    pub async fn channel(&self, purpose: Purpose) -> Result<Channel, String> {
        let channels = self.channels.lock().clone();
        channels.ok_or("RabbitMQ is away")?.get(purpose).await
    }

    /// Confirmed, and where it must arrive, in some queue.
    pub async fn send(&self, letter: Letter<'_>) -> Result<(), String> {
        match self.send_once(&letter).await {
            Err(Stayed::Ended(_)) => {}
            sent => return sent.map_err(Stayed::why),
        }
        // Whatever ended it, this one may have had no part in that.
        self.send_once(&letter).await.map_err(Stayed::why)
    }

    async fn send_once(&self, letter: &Letter<'_>) -> Result<(), Stayed> {
        let Letter { exchange, key, headers, text, must, lasts, on } = letter;
        let channel = self.channel(*on).await.map_err(Stayed::For)?;
        let mandatory = matches!(must, MustArrive::Yes);
        let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into())
            .with_expiration(expiration(*lasts).into());
        if let Some(headers) = headers {
            properties = properties.with_headers(headers.clone());
        }
        let sending = async {
            let sent = channel.basic_publish((*exchange).into(), (*key).into(), options, text.as_bytes(), properties);
            sent.await?.await
        };
        match self.clock.timeout(CONFIRM_MAX, sending).await {
            Ok(Ok(Confirmation::Ack(None) | Confirmation::NotRequested)) => Ok(()),
            Ok(Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)))) => {
                Err(Stayed::For("no queue there is its own".into()))
            }
            Ok(Ok(Confirmation::Nack(None))) => Err(Stayed::For("RabbitMQ did not take it".into())),
            Ok(Err(error)) if !channel.status().connected() => Err(Stayed::Ended(explain(&error, &self.places))),
            Ok(Err(error)) => Err(Stayed::For(explain(&error, &self.places))),
            Err(_) => Err(Stayed::For("RabbitMQ does not confirm".into())),
        }
    }

    /// Whatever somebody deleted is there again, as far as it is ours to declare.
    pub async fn declare(&self) {
        let declaring = async {
            let channel = self.channel(Purpose::Making).await?;
            topology::declare(&channel, &self.places).await.map_err(|error| explain(&error, &self.places))
        };
        if let Ok(Err(why)) = self.clock.timeout(CONFIRM_MAX, declaring).await {
            tracing::debug!(why, "what nodes and clients expect at RabbitMQ could not be declared again");
        }
    }

    /// One more answer lies there. Now and then it is looked how many there are.
    pub fn answered(self: &Arc<Self>) {
        if !self.answered.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY)
            || self.tidying.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let post = self.clone();
        tokio::spawn(async move {
            match post.tidy().await {
                Ok(0) => {}
                Ok(many) => tracing::debug!(many, "answers that nobody read were taken out"),
                Err(error) => tracing::debug!(%error, "how many answers lie there could not be looked at"),
            }
            post.tidying.store(false, Ordering::Relaxed);
        });
    }

    async fn tidy(&self) -> lapin::Result<u32> {
        let Ok(channel) = self.channel(Purpose::Tidying).await else { return Ok(0) };
        let finals = self.places.finals();
        let looking = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = channel.queue_declare(finals.as_str().into(), looking, FieldTable::default()).await?;
        let many = queue.message_count().saturating_sub(self.bounds.answers_max).min(TAKEN_OUT_MAX);
        for taken in 0..many {
            if channel.basic_get(finals.as_str().into(), BasicGetOptions { no_ack: true }).await?.is_none() {
                return Ok(taken);
            }
        }
        Ok(many)
    }

    pub fn unicast(node: &NodeId) -> FieldTable {
        let mut headers = FieldTable::default();
        headers.insert(NODE_HEADER.into(), AMQPValue::LongString(node.as_str().into()));
        headers
    }
}

impl Stayed {
    fn why(self) -> String {
        match self {
            Self::Ended(why) | Self::For(why) => why,
        }
    }
}

/// As RabbitMQ reads it: milliseconds as a text, within what it can count.
pub fn expiration(lasts: Duration) -> String {
    lasts.as_millis().clamp(1, u128::from(u32::MAX)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_written_in_milliseconds_and_nothing_lasts_for_ever() {
        let ms = |ms: u64| expiration(Duration::from_millis(ms));
        assert_eq!((ms(0), ms(30_000)), ("1".into(), "30000".into()));
        assert_eq!(expiration(Duration::MAX), u32::MAX.to_string());
    }
}
