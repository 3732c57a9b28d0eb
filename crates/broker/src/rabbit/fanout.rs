//! Announcements: one topic exchange, and for each subscriber a queue of its own that goes with it.
//!
//! A subscriber is told of what it missed when its connection was lost and when it falls behind in this process. What
//! cannot be known: that RabbitMQ dropped the oldest for a subscriber whose *connection* stood still for a while, and did
//! not break.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::options::{BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Consumer as Deliveries, ExchangeKind};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::denied::Asked;
use super::line::Up;
use super::post::{Address, MustArrive, Undelivered};
use super::topology::{ear_arguments, ensure_exchange, ensure_fanout};
use super::trouble::{Trouble, about, configuring, reading};
use super::{Inner, short_of_room};
use crate::memory::fanout::Backlog;
use crate::memory::{check_name, check_size};
use crate::{BrokerError, Heard, Name, Subscription};

impl Inner {
    /// What others find and do not make.
    pub async fn make_exchanges(&self) -> Result<(), BrokerError> {
        let (fanout, streams) = (self.names.exchange(), self.names.entrance_of_streams());
        loop {
            let up = self.giving.up().await?;
            let make = async {
                ensure_fanout(&self.giving, &up, &fanout, self.part).await?;
                ensure_exchange(&self.giving, &up, &streams, ExchangeKind::Direct, self.part).await
            };
            match self.giving.answered(&up, make).await {
                Ok(()) => return Ok(()),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.giving.after_loss(up.generation).await,
            }
        }
    }

    /// Not kept for later: who is there later looks things up.
    pub async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError> {
        check_size(&body)?;
        check_name(topic)?;
        let up = self.giving.now()?;
        if up.is_blocked() {
            // Whoever announces may be the one whose next step frees the broker.
            return Err(short_of_room());
        }
        match self.try_announce(&up, topic, body).await {
            Ok(()) => Ok(()),
            Err(Undelivered::Trouble(trouble)) => Err(trouble.give_up()),
            // Nobody is subscribed, or a subscriber's queue went just now: it is gone, as announcements are.
            Err(Undelivered::Nacked | Undelivered::Unroutable) => Ok(()),
        }
    }

    async fn try_announce(&self, up: &Up, topic: &Name, body: Bytes) -> Result<(), Undelivered> {
        let exchange = self.names.exchange();
        self.giving.answered(up, ensure_fanout(&self.giving, up, &exchange, self.part)).await?;
        let seat = self.post.seat(&self.giving, up).await?;
        let to = Address { exchange: &exchange, key: topic, must_arrive: MustArrive::No };
        seat.send(&to, &[body], &BasicProperties::default(), &mut BTreeSet::from([0])).await?;
        seat.leave();
        Ok(())
    }
}

enum Phase {
    Attaching,
    On,
    Ended(BrokerError),
}

struct Books {
    phase: Phase,
    backlog: Backlog,
}

struct Ear {
    books: Mutex<Books>,
    bell: Notify,
}

impl Ear {
    fn change(&self, phase: Phase) {
        let mut books = self.books.lock();
        if matches!((&books.phase, &phase), (Phase::On, Phase::Attaching)) {
            books.backlog.miss();
        }
        books.phase = phase;
        drop(books);
        self.bell.notify_one();
    }
}

pub(super) struct RabbitSubscription {
    ear: Arc<Ear>,
    task: AbortHandle,
    /// The connection lives as long as somebody listens.
    _rabbit: Arc<Inner>,
}

impl Drop for RabbitSubscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RabbitSubscription {
    pub async fn open(rabbit: Arc<Inner>, topic: &Name) -> Result<Self, BrokerError> {
        check_name(topic)?;
        let books = Books { phase: Phase::Attaching, backlog: Backlog::default() };
        let ear = Arc::new(Ear { books: Mutex::new(books), bell: Notify::new() });
        let task = tokio::spawn(keep_on(rabbit.clone(), topic.into(), ear.clone())).abort_handle();
        let subscription = Self { ear, task, _rabbit: rabbit };
        loop {
            match &subscription.ear.books.lock().phase {
                Phase::Attaching => {}
                Phase::On => break,
                Phase::Ended(error) => return Err(error.clone()),
            }
            subscription.ear.bell.notified().await;
        }
        Ok(subscription)
    }
}

async fn keep_on(rabbit: Arc<Inner>, topic: String, ear: Arc<Ear>) {
    loop {
        let up = match rabbit.taking.up().await {
            Ok(up) => up,
            Err(closed) => return ear.change(Phase::Ended(closed)),
        };
        match rabbit.taking.answered(&up, attach(&rabbit, &up, &topic)).await {
            // The channel is kept for as long as it is listened to: dropping it would close it.
            Ok((_channel, deliveries)) => {
                ear.change(Phase::On);
                tokio::select! {
                    () = listen(&rabbit, deliveries, &ear) => ear.change(Phase::Attaching),
                    () = rabbit.taking.until_shut() => return ear.change(Phase::Ended(BrokerError::Closed)),
                }
                rabbit.taking.forget_declared(&rabbit.names.exchange());
            }
            Err(Trouble::Lost(why)) => tracing::debug!(topic, why, "a subscription attaches again"),
            Err(Trouble::Said(error)) => return ear.change(Phase::Ended(error)),
        }
        rabbit.taking.after_loss(up.generation).await;
    }
}

async fn attach(rabbit: &Inner, up: &Up, topic: &Name) -> Result<(Channel, Deliveries), Trouble> {
    let exchange = rabbit.names.exchange();
    ensure_fanout(&rabbit.taking, up, &exchange, rabbit.part).await?;
    let queue = rabbit.names.ear(&rabbit.dice);
    let channel = up.channel().await?;
    let options = QueueDeclareOptions::exclusive().auto_delete();
    let name = || queue.as_str().into();
    channel.queue_declare(name(), options, ear_arguments(&rabbit.limits)).await.map_err(configuring(&queue))?;
    match hear_from(&channel, &queue, &exchange, topic).await {
        Ok(deliveries) => Ok((channel, deliveries)),
        Err(trouble) => {
            // It goes by itself only after it was listened to, or with the connection, which may last for days.
            if let Ok(other) = up.channel().await {
                let _ = other.queue_delete(name(), QueueDeleteOptions::default()).await;
            }
            Err(trouble)
        }
    }
}

async fn hear_from(channel: &Channel, queue: &str, exchange: &str, topic: &Name) -> Result<Deliveries, Trouble> {
    let (options, arguments) = (QueueBindOptions::default(), FieldTable::default());
    let bind = channel.queue_bind(queue.into(), exchange.into(), topic.into(), options, arguments);
    bind.await.map_err(about(Asked::Bind, exchange))?;
    // Not acknowledged: the backlog on this side is what bounds it, and it never makes the connection wait.
    let options = BasicConsumeOptions { no_ack: true, exclusive: true, ..Default::default() };
    channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await.map_err(reading(queue))
}

async fn listen(rabbit: &Inner, mut deliveries: Deliveries, ear: &Ear) {
    let limits = &rabbit.limits;
    while let Some(Ok(delivered)) = deliveries.next().await {
        let body = Bytes::from(delivered.data);
        ear.books.lock().backlog.push(body, limits.backlog_messages_max, limits.backlog_bytes_max);
        ear.bell.notify_one();
    }
}

#[async_trait]
impl Subscription for RabbitSubscription {
    async fn next(&mut self) -> Result<Heard, BrokerError> {
        tokio::task::consume_budget().await;
        loop {
            {
                let mut books = self.ear.books.lock();
                match (books.backlog.pop(), &books.phase) {
                    (Some(heard), _) => return Ok(heard),
                    (None, Phase::Ended(error)) => return Err(error.clone()),
                    (None, _) => {}
                }
            }
            self.ear.bell.notified().await;
        }
    }
}
