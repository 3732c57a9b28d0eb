//! A place in a stream from which records are read on.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer};

use crate::Record;
use crate::rabbit::line::Up;
use crate::rabbit::trouble::{NOT_FOUND, Trouble, code, reading};

/// Records that RabbitMQ sends ahead.
pub(super) const PREFETCH: u16 = 128;
const OFFSET: &str = "x-stream-offset";

#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    First,
    At(u64),
    /// The last few that there are.
    Last,
    /// What is appended from now on.
    Next,
}

pub(super) struct Cursor {
    pub queue: String,
    pub generation: u64,
    /// Of the next record to be taken.
    pub next: u64,
    channel: Channel,
    deliveries: Consumer,
    inbox: VecDeque<Seen>,
}

/// A record and the mark its writer may have put on it.
pub(super) struct Seen {
    pub record: Record,
    pub id: Option<String>,
}

impl Cursor {
    pub async fn open(up: &Up, queue: &str, start: Start, prefetch: u16) -> Result<Self, Trouble> {
        let channel = up.channel().await?;
        channel.basic_qos(prefetch, BasicQosOptions { global: false }).await.map_err(lost(queue))?;
        let mut arguments = FieldTable::default();
        let (from, next) = match start {
            Start::First => (AMQPValue::LongString("first".into()), 0),
            Start::At(offset) => (AMQPValue::LongLongInt(offset.try_into().unwrap_or(i64::MAX)), offset),
            Start::Last => (AMQPValue::LongString("last".into()), 0),
            Start::Next => (AMQPValue::LongString("next".into()), 0),
        };
        arguments.insert(OFFSET.into(), from);
        let options = BasicConsumeOptions::default();
        let deliveries =
            channel.basic_consume(queue.into(), "".into(), options, arguments).await.map_err(lost(queue))?;
        let inbox = VecDeque::new();
        Ok(Self { queue: queue.into(), generation: up.generation, next, channel, deliveries, inbox })
    }

    /// Waits until there is a record; tells its offset. Cancel-safe.
    pub async fn first(&mut self) -> Result<u64, Trouble> {
        loop {
            if let Some(seen) = self.inbox.front() {
                return Ok(seen.record.offset);
            }
            self.fill().await?;
        }
    }

    /// Up to `limit` of the records that are there.
    pub fn take(&mut self, limit: usize) -> Vec<Record> {
        let count = limit.min(self.inbox.len());
        let taken: Vec<Record> = self.inbox.drain(..count).map(|seen| seen.record).collect();
        if let Some(last) = taken.last() {
            self.next = last.offset + 1;
        }
        taken
    }

    /// Everything that is there, with its marks; waits for the first.
    pub async fn take_seen(&mut self) -> Result<Vec<Seen>, Trouble> {
        self.first().await?;
        Ok(self.inbox.drain(..).collect())
    }

    /// Reads to the end; tells the last offset. RabbitMQ does not say where the end is, but one of its channels does one
    /// thing at a time: it sends all it has, as far as it was asked for, before it answers the next question. So an
    /// answer with nothing before it is the end.
    pub async fn run_out(mut self) -> Result<u64, Trouble> {
        let mut last = self.first().await?;
        loop {
            while let Some(seen) = self.inbox.pop_back() {
                last = last.max(seen.record.offset);
            }
            self.inbox.clear();
            let options = QueueDeclareOptions::durable().passive();
            let answer = self.channel.queue_declare(self.queue.as_str().into(), options, FieldTable::default()).await;
            answer.map_err(lost(&self.queue))?;
            match self.fill().now_or_never() {
                Some(filled) => filled?,
                None if self.inbox.is_empty() => return Ok(last),
                None => {}
            }
        }
    }

    async fn fill(&mut self) -> Result<(), Trouble> {
        let mut arrived = self.deliveries.next().await;
        loop {
            let tag = match arrived {
                Some(Ok(delivery)) => {
                    let tag = delivery.delivery_tag;
                    self.inbox.extend(seen(delivery));
                    tag
                }
                Some(Err(error)) => return Err(lost(&self.queue)(error)),
                None => return Err(Trouble::Lost("the stream's reader was cancelled".into())),
            };
            let more = if self.inbox.len() < PREFETCH.into() { self.deliveries.next().now_or_never() } else { None };
            let Some(more) = more else {
                // Asks for as many more. Should it be lost, so is the channel, and the next look says so.
                let _ = self.channel.basic_ack(tag, BasicAckOptions { multiple: true }).await;
                return Ok(());
            };
            arrived = more;
        }
    }
}

/// What was deleted is made anew by whoever names it.
fn lost(queue: &str) -> impl Fn(lapin::Error) -> Trouble {
    move |error| match code(&error) {
        Some(NOT_FOUND) => Trouble::Lost("the stream was deleted".into()),
        _ => reading(queue)(error),
    }
}

fn seen(delivery: Delivery) -> Option<Seen> {
    let headers = delivery.properties.headers().as_ref()?;
    let offset = match headers.inner().get(OFFSET) {
        Some(AMQPValue::LongLongInt(offset)) => u64::try_from(*offset).ok()?,
        _ => return None,
    };
    let id = delivery.properties.message_id().as_ref().map(|id| id.to_string());
    Some(Seen { record: Record { offset, body: Bytes::from(delivery.data) }, id })
}
