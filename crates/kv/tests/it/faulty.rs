//! A broker between the outbox and the queue that does what networks do: loses messages, loses confirms, and carries a
//! message twice, the second time late.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_broker::{
    Broker, BrokerError, Consumer, Counts, DeadLetter, Deletion, Letters, Memory, Name, Record, Subscription,
};
use parking_lot::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It never arrives.
    Lost,
    /// It arrives; nobody hears of it.
    Unconfirmed,
    /// It is in the queue twice, one after the other.
    Twice,
    /// It is in the queue, and once more behind whatever comes next.
    Again,
}

/// What becomes of the next message.
pub type Fate = Box<dyn FnMut() -> Fault + Send>;

pub struct Faulty {
    queue: Arc<Memory>,
    fate: Mutex<Fate>,
    late: Mutex<VecDeque<(String, Vec<Bytes>)>>,
}

impl Faulty {
    pub fn new(queue: Arc<Memory>, fate: Fate) -> Arc<Self> {
        Arc::new(Self { queue, fate: Mutex::new(fate), late: Mutex::default() })
    }

    fn next(&self) -> Fault {
        (self.fate.lock())()
    }
}

#[async_trait]
impl Broker for Faulty {
    async fn publish(&self, queue: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        let away = || BrokerError::Unreachable("the connection broke".into());
        let fault = self.next();
        if fault == Fault::Lost {
            return Err(away());
        }
        self.queue.publish(queue, batch.clone()).await?;
        let late: Vec<_> = self.late.lock().drain(..).collect();
        for (queue, batch) in late {
            self.queue.publish(&queue, batch).await?;
        }
        match fault {
            Fault::Twice => self.queue.publish(queue, batch).await,
            Fault::Again => {
                self.late.lock().push_back((queue.into(), batch));
                Ok(())
            }
            Fault::Unconfirmed => Err(away()),
            Fault::None | Fault::Lost => Ok(()),
        }
    }

    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError> {
        self.queue.consume(queue, credit).await
    }

    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        self.queue.counts(queue).await
    }

    async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError> {
        self.queue.delete(queue).await
    }

    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        self.queue.dead_letters(queue, limit).await
    }

    async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError> {
        self.queue.count_dead_letters(queue).await
    }

    async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError> {
        self.queue.remove_dead_letters(queue, which).await
    }

    async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError> {
        self.queue.announce(topic, body).await
    }

    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError> {
        self.queue.subscribe(topic).await
    }

    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        self.queue.append(log, batch).await
    }

    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        self.queue.read(log, offset, limit).await
    }

    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        self.queue.extent(log).await
    }

    async fn trim(&self, log: &Name, before: u64) -> Result<(), BrokerError> {
        self.queue.trim(log, before).await
    }

    async fn forget(&self, log: &Name) -> Result<(), BrokerError> {
        self.queue.forget(log).await
    }
}
