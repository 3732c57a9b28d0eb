//! Taking from a work queue. Behind each consumer runs a task with a channel of its own: it receives, and after a loss
//! attaches again. What the user holds is a window on its inbox.
//!
//! A channel is the unit that RabbitMQ takes messages back from, so dropping the consumer closes its channel. It is not cancelled
//! first, as the client library would: RabbitMQ would then let the next consumer take what comes after, before it has back
//! what this one held.
//!
//! From a queue of reports a manager hears only what somebody [vouches](super::vouch) for; the rest goes to the dead
//! letters before anybody sees it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::message::Delivery as Delivered;
use lapin::options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer as Deliveries};
use mutirao_core::meters::DEAD_LETTERS_MADE;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::line::Up;
use super::names::Work;
use super::refusals::Deed;
use super::topology::ensure_work;
use super::trouble::{NOT_FOUND, Trouble, code, reading};
use super::vouch::vouched;
use super::{Inner, Part};
use crate::inbox::Inbox;
use crate::{BrokerError, Consumer, Delivery};

/// AMQP's code for a channel that is closed because it has served.
const CLOSED_BY_US: u16 = 200;

/// What is needed to settle a delivery: RabbitMQ's tag, and the body for the dead letters.
struct Theirs {
    tag: u64,
    body: Bytes,
}

enum Phase {
    Attaching,
    /// With the name of the consumer on this channel.
    On(Channel, ShortString),
    Ended(BrokerError),
}

struct Books {
    phase: Phase,
    inbox: Inbox<Theirs>,
    /// Arrived, not for the user to see, and to be put with the dead letters: tag and reason. Bounded by credit.
    unvouched: VecDeque<(u64, String)>,
}

pub(super) struct Desk {
    books: Mutex<Books>,
    /// Rung when the phase changed or something arrived.
    bell: Notify,
    /// Nobody listens any more.
    over: CancellationToken,
    /// Nothing more is wanted; what has arrived is still to be settled.
    retired: CancellationToken,
    /// Nothing more will arrive.
    emptied: CancellationToken,
}

impl Desk {
    fn change(&self, phase: Phase) {
        let mut books = self.books.lock();
        if matches!(books.phase, Phase::Ended(_)) {
            return;
        }
        if !matches!(phase, Phase::On(..)) {
            books.inbox.lost();
            books.unvouched.clear();
        }
        books.phase = phase;
        drop(books);
        self.bell.notify_one();
    }

    /// Retired, and attached no more.
    fn leave(&self) {
        self.emptied.cancel();
        self.change(Phase::Ended(BrokerError::Closed));
    }

    fn deliver(&self, delivered: Delivered, verdict: Result<(), String>) {
        let body = Bytes::from(delivered.data);
        let theirs = Theirs { tag: delivered.delivery_tag, body: body.clone() };
        let mut books = self.books.lock();
        match verdict {
            Ok(()) => books.inbox.deliver(theirs, body, delivered.redelivered),
            Err(reason) => {
                let tag = books.inbox.hold(theirs);
                books.unvouched.push_back((tag, reason));
            }
        }
        drop(books);
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
    /// How many messages nobody vouched for.
    buried: u64,
}

impl Drop for RabbitConsumer {
    fn drop(&mut self) {
        // The task takes a moment to go; what it held is nobody's from now on.
        self.desk.change(Phase::Ended(BrokerError::Closed));
        self.desk.over.cancel();
    }
}

impl RabbitConsumer {
    /// Waits until the queue is attached, over reconnects if need be.
    pub async fn open(rabbit: Arc<Inner>, work: Work, credit: u16) -> Result<Self, BrokerError> {
        let books = Books { phase: Phase::Attaching, inbox: Inbox::default(), unvouched: VecDeque::new() };
        let [over, retired, emptied] = std::array::from_fn(|_| CancellationToken::new());
        let desk = Arc::new(Desk { books: Mutex::new(books), bell: Notify::new(), over, retired, emptied });
        rabbit.holders.add(&work.queue, &desk);
        tokio::spawn(keep_on(rabbit.clone(), work.clone(), credit, desk.clone()));
        let consumer = Self { rabbit, work, desk, buried: 0 };
        loop {
            match &consumer.desk.books.lock().phase {
                Phase::Attaching => {}
                Phase::On(..) => break,
                Phase::Ended(error) => return Err(error.clone()),
            }
            consumer.desk.bell.notified().await;
        }
        // Something may have rung for the first delivery as well.
        consumer.desk.bell.notify_one();
        Ok(consumer)
    }
}

/// Attaches, receives, and attaches again, until it is over or refused.
async fn keep_on(rabbit: Arc<Inner>, work: Work, credit: u16, desk: Arc<Desk>) {
    while !desk.over.is_cancelled() {
        if desk.retired.is_cancelled() {
            return desk.leave();
        }
        let up = tokio::select! {
            up = rabbit.taking.up() => match up {
                Ok(up) => up,
                Err(closed) => return desk.change(Phase::Ended(closed)),
            },
            () = desk.over.cancelled() => return,
            () = desk.retired.cancelled() => return desk.leave(),
        };
        match rabbit.taking.answered(&up, attach(&rabbit, &up, &work, credit)).await {
            Ok((channel, _deliveries)) if desk.retired.is_cancelled() => {
                // It was told so while it attached: what has arrived meanwhile is for others.
                let _ = channel.close(CLOSED_BY_US, "".into()).await;
                return desk.leave();
            }
            Ok((channel, deliveries)) => {
                rabbit.refusals.done(Deed::Take, &work.queue);
                desk.change(Phase::On(channel.clone(), deliveries.tag()));
                let leaving = async {
                    tokio::select! {
                        () = desk.over.cancelled() => {}
                        () = rabbit.taking.until_shut() => {}
                    }
                    // While the deliveries are still held: letting go of them would cancel first.
                    let _ = channel.close(CLOSED_BY_US, "".into()).await;
                };
                tokio::select! {
                    // Leaving goes first, also when the connection goes at the same moment.
                    biased;
                    () = leaving => return desk.change(Phase::Ended(BrokerError::Closed)),
                    () = async {
                        receive(&rabbit, &work, deliveries, &desk).await;
                        if desk.retired.is_cancelled() {
                            desk.emptied.cancel();
                            // What it holds is settled over this channel, if it lasts, and never over another.
                            std::future::pending::<()>().await;
                        }
                    } => {}
                }
                desk.change(Phase::Attaching);
            }
            Err(Trouble::Lost(why)) => tracing::debug!(queue = work.queue, why, "a consumer attaches again"),
            Err(Trouble::Said(error)) => {
                rabbit.refusals.note(Deed::Take, &work.queue, &error);
                return desk.change(Phase::Ended(error));
            }
        }
        // The queue itself may be gone; the next attempt looks.
        rabbit.taking.forget_declared(&work.queue);
        tokio::select! {
            () = rabbit.taking.after_loss(up.generation) => {}
            () = desk.over.cancelled() => return,
        }
    }
}

async fn attach(rabbit: &Inner, up: &Up, work: &Work, credit: u16) -> Result<(Channel, Deliveries), Trouble> {
    ensure_work(&rabbit.taking, up, work, &rabbit.limits, rabbit.part).await?;
    let channel = up.channel().await?;
    channel.basic_qos(credit, BasicQosOptions { global: false }).await.map_err(reading(&work.queue))?;
    let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
    let deliveries = channel.basic_consume(work.queue.as_str().into(), "".into(), options, arguments).await;
    match deliveries {
        Ok(deliveries) => Ok((channel, deliveries)),
        // A queue that was deleted is still there for a moment, and then it is not.
        Err(error) if code(&error) == Some(NOT_FOUND) => Err(Trouble::Lost("it was deleted just now".into())),
        Err(error) => Err(reading(&work.queue)(error)),
    }
}

/// Ends when the connection, the channel or the queue does.
async fn receive(rabbit: &Inner, work: &Work, mut deliveries: Deliveries, desk: &Desk) {
    let own_user = rabbit.user();
    while let Some(Ok(delivered)) = deliveries.next().await {
        let verdict = match (rabbit.part, &work.entrance) {
            (Part::Manager, Some(_)) => {
                let user = delivered.properties.user_id().as_ref().map(|user| user.as_str());
                vouched(&rabbit.names, &own_user, user, &delivered.data)
            }
            (Part::Worker, _) | (_, None) => Ok(()),
        };
        desk.deliver(delivered, verdict);
    }
}

#[async_trait]
impl Consumer for RabbitConsumer {
    async fn next(&mut self) -> Result<Vec<Delivery>, BrokerError> {
        tokio::task::consume_budget().await;
        loop {
            self.bury_unvouched().await?;
            {
                let mut books = self.desk.books.lock();
                // An acknowledgement of what comes after them would settle them as well.
                if !books.unvouched.is_empty() {
                    continue;
                }
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

    async fn ack_each(&mut self, tags: &[u64]) -> Result<(), BrokerError> {
        let settle = {
            let mut books = self.desk.books.lock();
            let settled = books.inbox.remove_each(tags);
            books.channel().zip(Some(settled))
        };
        let Some((channel, (together, apart))) = settle else { return Ok(()) };
        if let Some(last) = together {
            let _ = channel.basic_ack(last.tag, BasicAckOptions { multiple: true }).await;
        }
        for one in apart {
            let _ = channel.basic_ack(one.tag, BasicAckOptions { multiple: false }).await;
        }
        Ok(())
    }

    async fn retire(&mut self, seen: u64) -> Result<(), BrokerError> {
        self.desk.retired.cancel();
        let Some((channel, name)) = self.desk.books.lock().on() else { return Ok(()) };
        // What is on its way arrives before the answer. On a channel that was lost all of it comes again, to others.
        if channel.basic_cancel(name, BasicCancelOptions::default()).await.is_err() {
            return Ok(());
        }
        tokio::select! {
            () = self.desk.emptied.cancelled() => {}
            () = self.rabbit.taking.until_shut() => return Ok(()),
        }
        let unseen = self.desk.books.lock().inbox.give_back(seen);
        for one in unseen {
            let _ = channel.basic_reject(one.tag, BasicRejectOptions { requeue: true }).await;
        }
        Ok(())
    }

    async fn reject(&mut self, tag: u64, reason: &str) -> Result<(), BrokerError> {
        let body = self.desk.books.lock().inbox.get(tag).map(|theirs| theirs.body.clone());
        let Some(body) = body else { return Ok(()) };
        if self.rabbit.part == Part::Manager {
            self.rabbit.bury(&self.work, body, reason).await?;
        }
        let settle = {
            let mut books = self.desk.books.lock();
            let rejected = books.inbox.remove(tag);
            rejected.zip(books.channel())
        };
        let Some((rejected, channel)) = settle else { return Ok(()) };
        let _ = match self.rabbit.part {
            Part::Manager => channel.basic_ack(rejected.tag, BasicAckOptions { multiple: false }).await,
            // It may not write to the dead letters; the server does, and the reason is in the worker's log.
            Part::Worker => channel.basic_reject(rejected.tag, BasicRejectOptions { requeue: false }).await,
        };
        Ok(())
    }
}

impl RabbitConsumer {
    /// Each is forgotten once it is settled: a wait that is given up on loses none of them.
    async fn bury_unvouched(&mut self) -> Result<(), BrokerError> {
        loop {
            let next = self.desk.books.lock().unvouched.front().cloned();
            let Some((tag, reason)) = next else { return Ok(()) };
            self.reject(tag, &reason).await?;
            self.buried += 1;
            metrics::counter!(DEAD_LETTERS_MADE, "reason" => "unvouched").increment(1);
            // Whoever sends them by the thousand shall not fill the log as well.
            if self.buried.is_power_of_two() {
                let (queue, so_far) = (&self.work.queue, self.buried);
                tracing::warn!(queue, reason, so_far, "what nobody vouches for goes to the dead letters");
            }
            let mut books = self.desk.books.lock();
            if books.unvouched.front().is_some_and(|(first, _)| *first == tag) {
                books.unvouched.pop_front();
            }
        }
    }
}

impl Books {
    fn channel(&self) -> Option<Channel> {
        self.on().map(|(channel, _)| channel)
    }

    fn on(&self) -> Option<(Channel, ShortString)> {
        match &self.phase {
            Phase::On(channel, name) => Some((channel.clone(), name.clone())),
            Phase::Attaching | Phase::Ended(_) => None,
        }
    }
}
