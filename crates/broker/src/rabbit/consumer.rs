//! Taking from a work queue. Behind each consumer runs a task with a channel of its own: it receives, and after a loss
//! attaches again. What the user holds is a window on its inbox.
//!
//! A channel is the unit that RabbitMQ takes messages back from, so dropping the consumer closes its channel.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::message::Delivery as Delivered;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer as Deliveries};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::Inner;
use super::line::Up;
use super::names::Work;
use super::topology::ensure_work;
use super::trouble::{Trouble, about};
use crate::inbox::Inbox;
use crate::{BrokerError, Consumer, Delivery};

/// What is needed to settle a delivery: RabbitMQ's tag, and the body for the dead letters.
struct Theirs {
    tag: u64,
    body: Bytes,
}

enum Phase {
    Attaching,
    On(Channel),
    Ended(BrokerError),
}

struct Books {
    phase: Phase,
    inbox: Inbox<Theirs>,
}

pub(super) struct Desk {
    books: Mutex<Books>,
    /// Rung when the phase changed or something arrived.
    bell: Notify,
}

impl Desk {
    fn change(&self, phase: Phase) {
        let mut books = self.books.lock();
        if !matches!(phase, Phase::On(_)) {
            books.inbox.lost();
        }
        books.phase = phase;
        drop(books);
        self.bell.notify_one();
    }

    fn deliver(&self, delivered: Delivered) {
        let body = Bytes::from(delivered.data);
        let theirs = Theirs { tag: delivered.delivery_tag, body: body.clone() };
        self.books.lock().inbox.deliver(theirs, body, delivered.redelivered);
        self.bell.notify_one();
    }
}

/// Which consumers of this process hold what.
#[derive(Default)]
pub(super) struct Holders(Mutex<Vec<(String, Weak<Desk>)>>);

impl Holders {
    fn add(&self, queue: &str, desk: &Arc<Desk>) {
        let mut all = self.0.lock();
        all.retain(|(_, desk)| desk.strong_count() > 0);
        all.push((queue.into(), Arc::downgrade(desk)));
    }

    pub fn unsettled(&self, queue: &str) -> u64 {
        let all = self.0.lock();
        let desks = all.iter().filter(|(of, _)| of == queue).filter_map(|(_, desk)| desk.upgrade());
        desks.map(|desk| desk.books.lock().inbox.unsettled() as u64).sum()
    }
}

pub(super) struct RabbitConsumer {
    rabbit: Arc<Inner>,
    work: Work,
    desk: Arc<Desk>,
    task: AbortHandle,
}

impl Drop for RabbitConsumer {
    fn drop(&mut self) {
        self.task.abort();
        // The task may take a moment to go; what it held is nobody's from now on.
        self.desk.change(Phase::Ended(BrokerError::Closed));
    }
}

impl RabbitConsumer {
    /// Waits until the queue is attached, over reconnects if need be.
    pub async fn open(rabbit: Arc<Inner>, work: Work, credit: u16) -> Result<Self, BrokerError> {
        let books = Books { phase: Phase::Attaching, inbox: Inbox::default() };
        let desk = Arc::new(Desk { books: Mutex::new(books), bell: Notify::new() });
        rabbit.holders.add(&work.queue, &desk);
        let task = tokio::spawn(keep_on(rabbit.clone(), work.clone(), credit, desk.clone())).abort_handle();
        let consumer = Self { rabbit, work, desk, task };
        loop {
            match &consumer.desk.books.lock().phase {
                Phase::Attaching => {}
                Phase::On(_) => break,
                Phase::Ended(error) => return Err(error.clone()),
            }
            consumer.desk.bell.notified().await;
        }
        // Something may have rung for the first delivery as well.
        consumer.desk.bell.notify_one();
        Ok(consumer)
    }
}

/// Attaches, receives, and attaches again, until it is aborted or refused.
async fn keep_on(rabbit: Arc<Inner>, work: Work, credit: u16, desk: Arc<Desk>) {
    loop {
        let up = match rabbit.taking.up().await {
            Ok(up) => up,
            Err(closed) => return desk.change(Phase::Ended(closed)),
        };
        match rabbit.taking.answered(&up, attach(&rabbit, &up, &work, credit)).await {
            Ok((channel, deliveries)) => {
                desk.change(Phase::On(channel));
                tokio::select! {
                    () = receive(deliveries, &desk) => {}
                    () = rabbit.taking.until_shut() => return desk.change(Phase::Ended(BrokerError::Closed)),
                }
                // The queue itself may be gone; the next attempt looks.
                rabbit.taking.forget_declared(&work.queue);
                desk.change(Phase::Attaching);
            }
            Err(Trouble::Lost(why)) => tracing::debug!(queue = work.queue, why, "a consumer attaches again"),
            Err(Trouble::Said(error)) => return desk.change(Phase::Ended(error)),
        }
        rabbit.taking.after_loss(up.generation).await;
    }
}

async fn attach(rabbit: &Inner, up: &Up, work: &Work, credit: u16) -> Result<(Channel, Deliveries), Trouble> {
    ensure_work(&rabbit.taking, up, work, &rabbit.limits).await?;
    let channel = up.channel().await?;
    channel.basic_qos(credit, BasicQosOptions { global: false }).await.map_err(about(&work.queue))?;
    let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
    let deliveries = channel.basic_consume(work.queue.as_str().into(), "".into(), options, arguments).await;
    Ok((channel, deliveries.map_err(about(&work.queue))?))
}

/// Ends when the connection, the channel or the queue does.
async fn receive(mut deliveries: Deliveries, desk: &Desk) {
    while let Some(Ok(delivered)) = deliveries.next().await {
        desk.deliver(delivered);
    }
}

#[async_trait]
impl Consumer for RabbitConsumer {
    async fn next(&mut self) -> Result<Vec<Delivery>, BrokerError> {
        tokio::task::consume_budget().await;
        loop {
            {
                let mut books = self.desk.books.lock();
                if books.inbox.has_arrived() {
                    return Ok(books.inbox.take());
                }
                if let Phase::Ended(error) = &books.phase {
                    return Err(error.clone());
                }
            }
            self.desk.bell.notified().await;
        }
    }

    async fn ack_through(&mut self, tag: u64) -> Result<(), BrokerError> {
        let settle = {
            let mut books = self.desk.books.lock();
            let last = books.inbox.ack_through(tag);
            last.zip(books.channel())
        };
        if let Some((last, channel)) = settle {
            // On a channel that was lost meanwhile it settles nothing, and all of it comes again.
            let _ = channel.basic_ack(last.tag, BasicAckOptions { multiple: true }).await;
        }
        Ok(())
    }

    async fn reject(&mut self, tag: u64, reason: &str) -> Result<(), BrokerError> {
        let body = self.desk.books.lock().inbox.get(tag).map(|theirs| theirs.body.clone());
        let Some(body) = body else { return Ok(()) };
        self.rabbit.bury(&self.work, body, reason).await?;
        let settle = {
            let mut books = self.desk.books.lock();
            let rejected = books.inbox.remove(tag);
            rejected.zip(books.channel())
        };
        if let Some((rejected, channel)) = settle {
            let _ = channel.basic_ack(rejected.tag, BasicAckOptions { multiple: false }).await;
        }
        Ok(())
    }
}

impl Books {
    fn channel(&self) -> Option<Channel> {
        match &self.phase {
            Phase::On(channel) => Some(channel.clone()),
            Phase::Attaching | Phase::Ended(_) => None,
        }
    }
}
