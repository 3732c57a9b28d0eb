//! Dead letters: a queue of them beside each work queue, put there by a manager with the reason in a header, or by the server
//! itself.
//!
//! RabbitMQ has no way to look into a queue. So whoever looks takes all letters, acknowledges none, and closes the channel: the
//! queue then has them back in their order. Two who look at the same moment would each see a part, and might change the order:
//! within a process they take turns.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use lapin::Channel;
use lapin::message::Delivery as Delivered;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueuePurgeOptions};
use lapin::types::{AMQPValue, FieldTable};
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Parcel, open};

use super::line::Up;
use super::names::Work;
use super::post::{persistent, with_header};
use super::topology::look;
use super::trouble::{Trouble, reading};
use super::work::Since;
use super::{Inner, Part};
use crate::inbox::REASON_CHARS_MAX;
use crate::memory::refused;
use crate::{BrokerError, DeadLetter, Letters, Name};

/// Where a dead letter keeps its reason. What RabbitMQ puts there itself (too many deliveries) has its own header.
const REASON: &str = "x-mutirao-reason";
const REASON_OF_RABBITMQ: &str = "x-first-death-reason";
/// What RabbitMQ says when a worker rejects: workers have no way to the dead letters but this.
const REJECTED: &str = "rejected";
/// How long the next letter may take that should be there.
const SILENCE_MAX: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
enum Errand<'a> {
    Look(u32),
    Count,
    Remove(&'a Letters),
}

struct Found {
    letters: Vec<DeadLetter>,
    /// That are there, or that were removed.
    number: u64,
}

impl Inner {
    /// Puts a message with the dead letters.
    pub async fn bury(&self, work: &Work, body: Bytes, reason: &str) -> Result<(), BrokerError> {
        let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
        self.deliver(work, ("", &work.dead), &[body], &with_header(persistent(), REASON, &reason)).await
    }

    pub async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        let _turn = self.looking.acquire().await.map_err(|_| BrokerError::Closed)?;
        self.run(queue, Errand::Look(limit)).await.map(|found| found.letters)
    }

    pub async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError> {
        self.run(queue, Errand::Count).await.map(|found| found.number)
    }

    pub async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError> {
        if self.part == Part::Worker {
            return Err(refused(queue, "a worker deletes nothing"));
        }
        let _turn = self.looking.acquire().await.map_err(|_| BrokerError::Closed)?;
        self.run(queue, Errand::Remove(which)).await.map(|found| found.number)
    }

    /// Asks until there is an answer, over reconnects if need be.
    async fn run(&self, queue: &Name, errand: Errand<'_>) -> Result<Found, BrokerError> {
        let work = self.names.work(queue)?;
        let mut since = Since::default();
        loop {
            let up = self.giving.up().await?;
            since.begin(up.generation, self.clock.monotonic());
            match self.giving.answered(&up, self.try_run(&up, &work, errand)).await {
                Ok(found) => return Ok(found),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(why)) => self.still_worth_it(&up, &since, &work.dead, &why).await?,
            }
            self.giving.after_loss(up.generation).await;
        }
    }

    async fn try_run(&self, up: &Up, work: &Work, errand: Errand<'_>) -> Result<Found, Trouble> {
        let Some(dead) = look(up, &work.dead).await? else { return Ok(Found { letters: Vec::new(), number: 0 }) };
        let there = dead.message_count();
        let (mut letters, mut number) = (Vec::new(), there.into());
        match errand {
            Errand::Count => {}
            Errand::Look(limit) => letters = self.peek(up, work, there, limit).await?,
            Errand::Remove(which) => number = self.remove(up, work, there, which).await?,
        }
        Ok(Found { letters, number })
    }

    async fn peek(&self, up: &Up, work: &Work, there: u32, limit: u32) -> Result<Vec<DeadLetter>, Trouble> {
        let (channel, deliveries) = self.take_all(up, work, there).await?;
        self.give_back(up, work, channel, deliveries.len()).await?;
        Ok(deliveries.into_iter().take(limit as usize).map(letter).collect())
    }

    async fn remove(&self, up: &Up, work: &Work, there: u32, which: &Letters) -> Result<u64, Trouble> {
        if *which == Letters::All {
            let purged = up.channel().await?.queue_purge(work.dead.as_str().into(), QueuePurgeOptions::default()).await;
            return Ok(purged.map_err(reading(&work.dead))?.into());
        }
        let (channel, deliveries) = self.take_all(up, work, there).await?;
        let (there, mut removed) = (deliveries.len(), 0);
        for delivery in deliveries {
            let tag = delivery.delivery_tag;
            if which.has(&letter(delivery)) {
                channel.basic_ack(tag, BasicAckOptions::default()).await.map_err(reading(&work.dead))?;
                removed += 1;
            }
        }
        self.give_back(up, work, channel, there - removed).await?;
        Ok(removed as u64)
    }

    /// All of them, also when a few are wanted: those that a queue gets back stand before the others, behind those that came
    /// back before, so a part would change places with the rest. And by one consumer: only of what one consumer held is the
    /// order kept.
    async fn take_all(&self, up: &Up, work: &Work, there: u32) -> Result<(Channel, Vec<Delivered>), Trouble> {
        let channel = up.channel().await?;
        let most = self.limits.dead_letters_max.try_into().unwrap_or(u16::MAX);
        channel.basic_qos(most, BasicQosOptions { global: false }).await.map_err(reading(&work.dead))?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let consumed = channel.basic_consume(work.dead.as_str().into(), "".into(), options, arguments).await;
        let mut deliveries = consumed.map_err(reading(&work.dead))?;
        let mut taken = Vec::new();
        while taken.len() < there as usize {
            // Somebody else may have taken some meanwhile, or new ones may have pushed them out.
            match self.clock.timeout(SILENCE_MAX, deliveries.next()).await {
                Ok(Some(delivery)) => taken.push(delivery.map_err(reading(&work.dead))?),
                Ok(None) => return Err(Trouble::Lost("the connection ended".into())),
                Err(_) => break,
            }
        }
        Ok((channel, taken))
    }

    /// By closing the channel: what a consumer held when it went is put back in order, what is rejected one by one or in one
    /// go is not. Waited for, so that whoever looks next finds them: RabbitMQ answers before it has done it.
    async fn give_back(&self, up: &Up, work: &Work, channel: Channel, letters: usize) -> Result<(), Trouble> {
        channel.close(200, "seen".into()).await.map_err(reading(&work.dead))?;
        let since = self.clock.monotonic();
        while look(up, &work.dead).await?.is_some_and(|dead| (dead.message_count() as usize) < letters) {
            // New ones may have pushed some out meanwhile.
            if self.clock.monotonic().since(since) >= SILENCE_MAX {
                break;
            }
            self.clock.sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

fn letter(delivery: Delivered) -> DeadLetter {
    let reason = reason(delivery.properties.headers().as_ref(), &delivery.data);
    DeadLetter { body: delivery.data.into(), reason }
}

fn reason(headers: Option<&FieldTable>, body: &[u8]) -> String {
    let word = |key: &str| match headers?.inner().get(key) {
        Some(AMQPValue::LongString(text)) => Some(text.to_string()),
        _ => None,
    };
    match (word(REASON), word(REASON_OF_RABBITMQ)) {
        (Some(ours), _) => ours,
        (None, Some(theirs)) if theirs == "delivery_limit" => "it came back unacknowledged too often".into(),
        (None, Some(theirs)) if theirs == REJECTED => rejected_because(body),
        (None, Some(theirs)) => theirs,
        (None, None) => String::new(),
    }
}

/// Why a worker rejected it. It has no way to write that down beside the letter, and no other reason than that it could
/// not read it: so whoever looks tries the same.
fn rejected_because(body: &[u8]) -> String {
    match open::<Parcel>(body) {
        Err(unreadable) => format!("a worker could not read it: {unreadable}"),
        Ok(_) => {
            "a worker could not read it; this program can, so it may be of an older version: its log says why".into()
        }
    }
}
