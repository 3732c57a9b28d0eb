//! A way to the logs that is narrow for whoever reads: what is read comes at the pace of the link, one read after the other.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_broker::{
    Broker, BrokerError, Consumer, Counts, DeadLetter, Deletion, Letters, Name, Record, Shared, Subscription,
};
use mutirao_core::{Clock, SystemClock};
use tokio::sync::Mutex;

/// That of the document.
pub const KBIT_S: f64 = 100.0;

pub struct Narrow {
    broker: Shared,
    link: Mutex<()>,
}

impl Narrow {
    pub fn of(broker: Shared) -> Self {
        Self { broker, link: Mutex::default() }
    }
}

#[async_trait]
impl Broker for Narrow {
    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        let records = self.broker.read(log, offset, limit).await?;
        let bits = records.iter().map(|record| record.body.len() * 8).sum::<usize>();
        let _mine = self.link.lock().await;
        SystemClock.sleep(Duration::from_secs_f64(bits as f64 / (KBIT_S * 1_000.0))).await;
        Ok(records)
    }

    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        self.broker.append(log, batch).await
    }

    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        self.broker.extent(log).await
    }

    async fn trim(&self, log: &Name, before: u64) -> Result<(), BrokerError> {
        self.broker.trim(log, before).await
    }

    async fn forget(&self, log: &Name) -> Result<(), BrokerError> {
        self.broker.forget(log).await
    }

    async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError> {
        self.broker.announce(topic, body).await
    }

    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError> {
        self.broker.subscribe(topic).await
    }

    async fn publish(&self, queue: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        self.broker.publish(queue, batch).await
    }

    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError> {
        self.broker.consume(queue, credit).await
    }

    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        self.broker.counts(queue).await
    }

    async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError> {
        self.broker.delete(queue).await
    }

    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        self.broker.dead_letters(queue, limit).await
    }

    async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError> {
        self.broker.count_dead_letters(queue).await
    }

    async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError> {
        self.broker.remove_dead_letters(queue, which).await
    }
}
