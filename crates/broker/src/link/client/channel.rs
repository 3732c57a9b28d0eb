//! Consumers and subscriptions as their users hold them.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::Alive;
use super::state::Kind;
use crate::{BrokerError, Consumer, Delivery, Heard, Name, Subscription};

/// A place in the link's books; dropping it closes the channel.
struct Channel {
    link: Arc<Alive>,
    number: u64,
    bell: Arc<Notify>,
}

impl Channel {
    /// Waits until the server has opened it, over reconnects if need be.
    async fn open(link: Arc<Alive>, kind: Kind) -> Result<Self, BrokerError> {
        let (number, bell) = link.core.state.lock().open(kind);
        link.core.work.notify_one();
        let channel = Self { link, number, bell };
        loop {
            let opened = channel.link.core.state.lock().opened(number);
            if let Some(opened) = opened {
                return opened.map(|()| channel);
            }
            channel.bell.notified().await;
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.link.core.state.lock().close(self.number);
        self.link.core.work.notify_one();
    }
}

pub(super) struct LinkConsumer(Channel);

impl LinkConsumer {
    pub async fn open(link: Arc<Alive>, queue: &Name, credit: u32) -> Result<Self, BrokerError> {
        Ok(Self(Channel::open(link, Kind::Consumer { queue: queue.into(), credit }).await?))
    }
}

#[async_trait]
impl Consumer for LinkConsumer {
    async fn next(&mut self) -> Result<Vec<Delivery>, BrokerError> {
        tokio::task::consume_budget().await;
        loop {
            let arrived = self.0.link.core.state.lock().deliveries(self.0.number)?;
            if !arrived.is_empty() {
                return Ok(arrived);
            }
            self.0.bell.notified().await;
        }
    }

    async fn ack_through(&mut self, tag: u64) -> Result<(), BrokerError> {
        self.0.link.core.state.lock().ack_through(self.0.number, tag);
        self.0.link.core.work.notify_one();
        Ok(())
    }

    async fn ack_each(&mut self, tags: &[u64]) -> Result<(), BrokerError> {
        self.0.link.core.state.lock().ack_each(self.0.number, tags);
        self.0.link.core.work.notify_one();
        Ok(())
    }

    async fn retire(&mut self, seen: u64) -> Result<(), BrokerError> {
        self.0.link.core.state.lock().retire(self.0.number, seen);
        self.0.link.core.work.notify_one();
        Ok(())
    }

    async fn reject(&mut self, tag: u64, reason: &str) -> Result<(), BrokerError> {
        self.0.link.core.state.lock().reject(self.0.number, tag, reason);
        self.0.link.core.work.notify_one();
        Ok(())
    }
}

pub(super) struct LinkSubscription(Channel);

impl LinkSubscription {
    pub async fn open(link: Arc<Alive>, topic: &Name) -> Result<Self, BrokerError> {
        Ok(Self(Channel::open(link, Kind::Subscription { topic: topic.into() }).await?))
    }
}

#[async_trait]
impl Subscription for LinkSubscription {
    async fn next(&mut self) -> Result<Heard, BrokerError> {
        tokio::task::consume_budget().await;
        loop {
            let heard = self.0.link.core.state.lock().hear(self.0.number)?;
            if let Some(heard) = heard {
                return Ok(heard);
            }
            self.0.bell.notified().await;
        }
    }
}
