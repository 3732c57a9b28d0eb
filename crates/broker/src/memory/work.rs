//! A work queue behind the trait: the pure [`Queue`] under a short lock, and the waking of consumers.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Limits;
use super::queue::{MemberId, Queue};
use crate::takers::Takers;
use crate::{BrokerError, Consumer, Counts, DeadLetter, Delivery, Letters, Name};

pub(super) struct Lane {
    name: String,
    limits: Limits,
    state: Mutex<State>,
}

struct State {
    queue: Queue,
    bells: BTreeMap<MemberId, Arc<Notify>>,
}

impl State {
    fn deal(&mut self) {
        for id in self.queue.deal() {
            if let Some(bell) = self.bells.get(&id) {
                bell.notify_one();
            }
        }
    }
}

impl Lane {
    pub fn new(name: &Name, limits: Limits) -> Arc<Self> {
        let state = State { queue: Queue::of(Takers::of(name)), bells: BTreeMap::new() };
        Arc::new(Self { name: name.into(), limits, state: Mutex::new(state) })
    }

    pub fn publish(&self, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        let mut state = self.state.lock();
        state
            .queue
            .publish(batch, &self.limits)
            .map_err(|no_room| BrokerError::Full { name: self.name.clone(), bound: no_room.bound })?;
        state.deal();
        Ok(())
    }

    pub fn join(self: Arc<Self>, credit: u32) -> Seat {
        let bell = Arc::new(Notify::new());
        let id = {
            let mut state = self.state.lock();
            let id = state.queue.join(credit);
            state.bells.insert(id, bell.clone());
            state.deal();
            id
        };
        Seat { lane: self, id, bell }
    }

    pub fn counts(&self) -> Counts {
        self.state.lock().queue.counts()
    }

    pub fn dead_letters(&self, limit: u32) -> Vec<DeadLetter> {
        self.state.lock().queue.dead_letters(limit)
    }

    pub fn remove_dead_letters(&self, which: &Letters) -> u64 {
        self.state.lock().queue.remove_dead_letters(which)
    }

    /// Nothing would be lost with it.
    pub fn is_idle(&self) -> bool {
        self.counts() == Counts::default()
    }
}

/// One consumer's place in a lane. Dropping it gives back what it holds.
pub(super) struct Seat {
    lane: Arc<Lane>,
    id: MemberId,
    bell: Arc<Notify>,
}

#[async_trait]
impl Consumer for Seat {
    async fn next(&mut self) -> Result<Vec<Delivery>, BrokerError> {
        tokio::task::consume_budget().await;
        loop {
            let taken = self.lane.state.lock().queue.take(self.id);
            if !taken.is_empty() {
                return Ok(taken);
            }
            self.bell.notified().await;
        }
    }

    async fn ack_through(&mut self, tag: u64) -> Result<(), BrokerError> {
        let mut state = self.lane.state.lock();
        state.queue.ack_through(self.id, tag);
        state.deal();
        Ok(())
    }

    async fn ack_each(&mut self, tags: &[u64]) -> Result<(), BrokerError> {
        let mut state = self.lane.state.lock();
        state.queue.ack_each(self.id, tags);
        state.deal();
        Ok(())
    }

    async fn retire(&mut self, seen: u64) -> Result<(), BrokerError> {
        let mut state = self.lane.state.lock();
        state.queue.retire(self.id, seen);
        state.deal();
        Ok(())
    }

    async fn reject(&mut self, tag: u64, reason: &str) -> Result<(), BrokerError> {
        let mut state = self.lane.state.lock();
        state.queue.reject(self.id, tag, reason, &self.lane.limits);
        state.deal();
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.lane.state.lock();
        state.queue.leave(self.id);
        state.bells.remove(&self.id);
        state.deal();
    }
}
