//! A broker with a fault: in memory, and what it shall not do it does not.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_broker::memory::Memory;
use mutirao_broker::{
    Broker, BrokerError, Consumer, Counts, DeadLetter, Deletion, Letters, Name, Record, Subscription,
};
use parking_lot::Mutex;
use tokio::sync::watch;

/// What is wrong with it.
pub enum Fault {
    /// It loses every announcement.
    LosesWords,
    /// This queue has no leader until the sender says so: whatever is asked of it waits.
    NoLeader(String, watch::Sender<bool>),
}

pub struct Faulty {
    under: Arc<Memory>,
    pub fault: Fault,
    /// What it was asked to announce: topics and bodies.
    pub words: Mutex<Vec<(String, Bytes)>>,
}

impl Faulty {
    pub fn new(under: &Arc<Memory>, fault: Fault) -> Arc<Self> {
        Arc::new(Self { under: under.clone(), fault, words: Mutex::default() })
    }

    pub fn without_leader(under: &Arc<Memory>, queue: String) -> Arc<Self> {
        Self::new(under, Fault::NoLeader(queue, watch::Sender::new(false)))
    }

    pub fn elect(&self) {
        if let Fault::NoLeader(_, is_led) = &self.fault {
            is_led.send_replace(true);
        }
    }

    async fn leader_of(&self, queue: &Name) {
        if let Fault::NoLeader(without, is_led) = &self.fault
            && without == queue
        {
            // The sender is ours.
            let _ = is_led.subscribe().wait_for(|is_led| *is_led).await;
        }
    }
}

#[async_trait]
impl Broker for Faulty {
    async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError> {
        self.words.lock().push((topic.into(), body.clone()));
        match self.fault {
            Fault::LosesWords => Ok(()),
            Fault::NoLeader(..) => self.under.announce(topic, body).await,
        }
    }
    async fn publish(&self, queue: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        self.leader_of(queue).await;
        self.under.publish(queue, batch).await
    }
    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        self.leader_of(queue).await;
        self.under.counts(queue).await
    }
    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError> {
        self.under.consume(queue, credit).await
    }
    async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError> {
        self.under.delete(queue).await
    }
    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        self.under.dead_letters(queue, limit).await
    }

    async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError> {
        self.under.count_dead_letters(queue).await
    }

    async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError> {
        self.under.remove_dead_letters(queue, which).await
    }
    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError> {
        self.under.subscribe(topic).await
    }
    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        self.under.append(log, batch).await
    }
    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        self.under.read(log, offset, limit).await
    }
    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        self.under.extent(log).await
    }

    async fn trim(&self, log: &Name, before: u64) -> Result<(), BrokerError> {
        self.under.trim(log, before).await
    }

    async fn forget(&self, log: &Name) -> Result<(), BrokerError> {
        self.under.forget(log).await
    }
}
