//! A way to the broker that can be cut, and blobs that refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_broker::{
    Broker, BrokerError, Consumer, Counts, DeadLetter, Deletion, Heard, Letters, Name, Record, Shared, Subscription,
};
use mutirao_core::blobs::{BlobError, Blobs};
use mutirao_store::blobs::FileBlobs;
use tokio::sync::watch;

#[derive(Clone)]
pub struct Cuttable {
    inner: Shared,
    open: Arc<watch::Sender<bool>>,
}

impl Cuttable {
    pub fn of(inner: Shared) -> Self {
        Self { inner, open: Arc::new(watch::Sender::new(true)) }
    }

    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    pub fn heal(&self) {
        self.open.send_replace(true);
    }

    fn cut_off() -> BrokerError {
        BrokerError::Unreachable("it was cut".into())
    }

    async fn while_open<T>(&self, work: impl Future<Output = Result<T, BrokerError>> + Send) -> Result<T, BrokerError> {
        let mut open = self.open.subscribe();
        if !*open.borrow_and_update() {
            return Err(Self::cut_off());
        }
        tokio::select! {
            done = work => done,
            _ = open.wait_for(|open| !open) => Err(Self::cut_off()),
        }
    }
}

#[async_trait]
impl Broker for Cuttable {
    async fn publish(&self, queue: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        self.inner.publish(queue, batch).await
    }

    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError> {
        self.inner.consume(queue, credit).await
    }

    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        self.inner.counts(queue).await
    }

    async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError> {
        self.inner.delete(queue).await
    }

    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        self.inner.dead_letters(queue, limit).await
    }

    async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError> {
        self.inner.count_dead_letters(queue).await
    }

    async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError> {
        self.inner.remove_dead_letters(queue, which).await
    }

    async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError> {
        self.while_open(self.inner.announce(topic, body)).await
    }

    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError> {
        let told = self.while_open(self.inner.subscribe(topic)).await?;
        Ok(Box::new(Told { told, way: self.clone() }))
    }

    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        self.while_open(self.inner.append(log, batch)).await
    }

    async fn add(&self, log: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        self.while_open(self.inner.add(log, batch)).await
    }

    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        self.while_open(self.inner.read(log, offset, limit)).await
    }

    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        self.while_open(self.inner.extent(log)).await
    }

    async fn trim(&self, log: &Name, before: u64) -> Result<(), BrokerError> {
        self.while_open(self.inner.trim(log, before)).await
    }

    async fn forget(&self, log: &Name) -> Result<(), BrokerError> {
        self.while_open(self.inner.forget(log)).await
    }
}

struct Told {
    told: Box<dyn Subscription>,
    way: Cuttable,
}

#[async_trait]
impl Subscription for Told {
    async fn next(&mut self) -> Result<Heard, BrokerError> {
        self.way.while_open(self.told.next()).await
    }
}

pub struct Grudging {
    pub inner: FileBlobs,
    pub refuses: Arc<AtomicBool>,
}

impl Grudging {
    fn may(&self) -> Result<(), BlobError> {
        if self.refuses.load(Ordering::SeqCst) { Err(BlobError::Refused("not now".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Blobs for Grudging {
    async fn append(&self, key: &str, offset: u64, bytes: Bytes) -> Result<u64, BlobError> {
        self.may()?;
        self.inner.append(key, offset, bytes).await
    }

    async fn read(&self, key: &str, offset: u64, limit: usize) -> Result<Bytes, BlobError> {
        self.may()?;
        self.inner.read(key, offset, limit).await
    }

    async fn len(&self, key: &str) -> Result<Option<u64>, BlobError> {
        self.inner.len(key).await
    }

    async fn remove_all(&self, prefix: &str) -> Result<(), BlobError> {
        self.inner.remove_all(prefix).await
    }
}
