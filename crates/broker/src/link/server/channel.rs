//! The consumers and subscriptions of one connection. Each is a task that owns its end of the broker and waits for room
//! in the outbox before it takes more; all of them end with the connection.

use std::collections::HashMap;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::outbox::Outbox;
use crate::link::frame::{FRAME_COST_MAX, Frame, Rubbish, Tell, body_cost, fitting};
use crate::{BrokerError, Consumer, Delivery, Heard, Shared};

/// Consumers and subscriptions of one connection.
const CHANNELS_MAX: usize = 1_024;
/// Acknowledgements and rejections that may wait for their consumer.
const SETTLES_MAX: usize = 256;

pub(super) enum Settle {
    AckThrough(u64),
    AckEach(Vec<u64>),
    Reject(u64, String),
    Retire(u64),
}

enum Channel {
    Consumer(mpsc::Sender<Settle>),
    Subscription(AbortHandle),
}

pub(super) struct Channels {
    broker: Shared,
    outbox: Outbox,
    open: HashMap<u64, Channel>,
    tasks: JoinSet<()>,
}

impl Channels {
    pub fn new(broker: Shared, outbox: Outbox) -> Self {
        Self { broker, outbox, open: HashMap::new(), tasks: JoinSet::new() }
    }

    pub async fn consume(
        &mut self,
        channel: u64,
        queue: String,
        credit: u32,
        allowed: Result<(), BrokerError>,
    ) -> Result<(), Rubbish> {
        if let Err(error) = self.admit(channel, allowed)? {
            self.outbox.send(Frame::bare(Tell::Ended { channel, error })).await;
            return Ok(());
        }
        let (settles, to_settle) = mpsc::channel(SETTLES_MAX);
        let (broker, outbox) = (self.broker.clone(), self.outbox.clone());
        self.tasks.spawn(async move {
            let ended = match broker.consume(&queue, credit).await {
                Ok(consumer) => {
                    outbox.send(Frame::bare(Tell::Opened { channel })).await;
                    pump(channel, consumer, to_settle, &outbox).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                outbox.send(Frame::bare(Tell::Ended { channel, error })).await;
            }
        });
        self.open.insert(channel, Channel::Consumer(settles));
        Ok(())
    }

    pub async fn subscribe(
        &mut self,
        channel: u64,
        topic: String,
        allowed: Result<(), BrokerError>,
    ) -> Result<(), Rubbish> {
        if let Err(error) = self.admit(channel, allowed)? {
            self.outbox.send(Frame::bare(Tell::Ended { channel, error })).await;
            return Ok(());
        }
        let (broker, outbox) = (self.broker.clone(), self.outbox.clone());
        let task = self.tasks.spawn(async move {
            let Err(error) = relay(channel, &broker, &topic, &outbox).await;
            outbox.send(Frame::bare(Tell::Ended { channel, error })).await;
        });
        self.open.insert(channel, Channel::Subscription(task));
        Ok(())
    }

    fn admit(&mut self, channel: u64, allowed: Result<(), BrokerError>) -> Result<Result<(), BrokerError>, Rubbish> {
        while self.tasks.try_join_next().is_some() {}
        if self.open.contains_key(&channel) {
            return Err(Rubbish::Channel(channel));
        }
        if allowed.is_ok() && self.open.len() >= CHANNELS_MAX {
            let why = format!("this connection has {CHANNELS_MAX} already");
            return Ok(Err(BrokerError::Refused { what: "another consumer or subscription".into(), why }));
        }
        Ok(allowed)
    }

    /// Waits when the consumer is itself waiting for the peer to read.
    pub async fn settle(&mut self, channel: u64, settle: Settle) {
        if let Some(Channel::Consumer(settles)) = self.open.get(&channel) {
            // It may have ended; then there is nothing left to settle.
            let _ = settles.send(settle).await;
        }
    }

    pub fn close(&mut self, channel: u64) {
        match self.open.remove(&channel) {
            // Without its sender the task settles what is in line and ends.
            Some(Channel::Consumer(_)) | None => {}
            Some(Channel::Subscription(task)) => task.abort(),
        }
    }
}

/// Moves deliveries out and settlements in, until the peer closes the channel.
async fn pump(
    channel: u64,
    mut consumer: Box<dyn Consumer>,
    mut to_settle: mpsc::Receiver<Settle>,
    outbox: &Outbox,
) -> Result<(), BrokerError> {
    loop {
        tokio::select! {
            biased;
            settle = to_settle.recv() => match settle {
                Some(Settle::AckThrough(tag)) => consumer.ack_through(tag).await?,
                Some(Settle::AckEach(tags)) => consumer.ack_each(&tags).await?,
                Some(Settle::Reject(tag, reason)) => consumer.reject(tag, &reason).await?,
                Some(Settle::Retire(seen)) => consumer.retire(seen).await?,
                None => return Ok(()),
            },
            batch = consumer.next() => {
                let mut batch = batch?;
                while !batch.is_empty() {
                    let rest = batch.split_off(fitting(FRAME_COST_MAX, batch.iter().map(|delivery| body_cost(&delivery.body))));
                    outbox.send(deliveries(channel, batch)).await;
                    batch = rest;
                }
            }
        }
    }
}

fn deliveries(channel: u64, batch: Vec<Delivery>) -> Frame<Tell> {
    let (tags, bodies) = batch.into_iter().map(|one| ((one.tag, one.redelivered), one.body)).unzip();
    Frame { head: Tell::Deliveries { channel, tags }, bodies }
}

async fn relay(
    channel: u64,
    broker: &Shared,
    topic: &str,
    outbox: &Outbox,
) -> Result<std::convert::Infallible, BrokerError> {
    let mut subscription = broker.subscribe(topic).await?;
    outbox.send(Frame::bare(Tell::Opened { channel })).await;
    loop {
        let frame = match subscription.next().await? {
            Heard::Message(body) => Frame { head: Tell::Heard { channel }, bodies: vec![body] },
            Heard::Gap => Frame::bare(Tell::Gap { channel }),
        };
        outbox.send(frame).await;
    }
}
