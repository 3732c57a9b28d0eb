//! Fanout: each subscriber has a bounded backlog of its own; the oldest make way, and the subscriber is told.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Limits;
use crate::{BrokerError, Heard, Subscription};

pub(super) struct Topic {
    limits: Limits,
    ears: Mutex<Vec<Arc<Ear>>>,
}

/// What one subscriber has still to hear.
struct Ear {
    backlog: Mutex<Backlog>,
    bell: Notify,
}

/// A bounded backlog that knows whether something fell out of it. The link's client keeps one as well.
#[derive(Default)]
pub(crate) struct Backlog {
    messages: VecDeque<Bytes>,
    bytes: usize,
    missed: bool,
}

impl Backlog {
    pub fn push(&mut self, body: Bytes, messages_max: usize, bytes_max: usize) {
        self.bytes += body.len();
        self.messages.push_back(body);
        // The newest stays whatever its size: it is all there is to hear.
        while self.messages.len() > 1 && (self.messages.len() > messages_max || self.bytes > bytes_max) {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.bytes -= oldest.len();
            self.missed = true;
        }
    }

    pub fn miss(&mut self) {
        self.missed = true;
    }

    /// The gap comes first: it lies before the oldest message kept.
    pub fn pop(&mut self) -> Option<Heard> {
        if std::mem::take(&mut self.missed) {
            return Some(Heard::Gap);
        }
        let body = self.messages.pop_front()?;
        self.bytes -= body.len();
        Some(Heard::Message(body))
    }
}

impl Topic {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, ears: Mutex::default() })
    }

    pub fn announce(&self, body: Bytes) {
        for ear in self.ears.lock().iter() {
            ear.backlog.lock().push(body.clone(), self.limits.backlog_messages_max, self.limits.backlog_bytes_max);
            ear.bell.notify_one();
        }
    }

    pub fn listen(self: Arc<Self>) -> Listener {
        let ear = Arc::new(Ear { backlog: Mutex::default(), bell: Notify::new() });
        self.ears.lock().push(ear.clone());
        Listener { topic: self, ear }
    }

    pub fn is_idle(&self) -> bool {
        self.ears.lock().is_empty()
    }
}

pub(super) struct Listener {
    topic: Arc<Topic>,
    ear: Arc<Ear>,
}

#[async_trait]
impl Subscription for Listener {
    async fn next(&mut self) -> Result<Heard, BrokerError> {
        tokio::task::consume_budget().await;
        loop {
            let heard = self.ear.backlog.lock().pop();
            if let Some(heard) = heard {
                return Ok(heard);
            }
            self.ear.bell.notified().await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.topic.ears.lock().retain(|ear| !Arc::ptr_eq(ear, &self.ear));
    }
}
