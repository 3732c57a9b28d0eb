//! One work queue of the simulated broker.

use std::collections::VecDeque;

use super::flaw::Flaw;
use super::weather::Requeueing;
use super::wire::{Body, ConnId};

pub struct Message {
    /// Its place in the queue, for ever.
    number: u64,
    body: Body,
    pub durable_at_us: u64,
}

struct Consumer {
    conn: ConnId,
    id: u64,
    credit: usize,
    tag: u64,
    unacked: VecDeque<(u64, Message)>,
}

#[derive(Default)]
pub struct Queue {
    pub ready: VecDeque<Message>,
    consumers: Vec<Consumer>,
    /// Whose turn it is.
    turn: usize,
}

impl Queue {
    pub fn publish(&mut self, number: u64, body: Body, durable_at_us: u64) {
        self.ready.push_back(Message { number, body, durable_at_us });
    }

    pub fn join(&mut self, conn: ConnId, id: u64, credit: usize) {
        self.consumers.push(Consumer { conn, id, credit, tag: 0, unacked: VecDeque::new() });
    }

    /// All consumers of a connection go, and what they had goes back.
    pub fn leave(&mut self, conn: ConnId, requeueing: Requeueing) {
        self.remove(|consumer| consumer.conn == conn, requeueing);
    }

    /// True if it was one of this queue.
    pub fn cancel(&mut self, conn: ConnId, id: u64, requeueing: Requeueing) -> bool {
        self.remove(|consumer| consumer.conn == conn && consumer.id == id, requeueing)
    }

    fn remove(&mut self, goes: impl Fn(&Consumer) -> bool, requeueing: Requeueing) -> bool {
        let (gone, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.consumers).into_iter().partition(goes);
        self.consumers = stay;
        let back = gone.iter().map(|consumer| consumer.unacked.len()).sum::<usize>() > 0;
        let some = !gone.is_empty();
        for consumer in gone {
            self.ready.extend(consumer.unacked.into_iter().map(|(_, message)| message));
        }
        if back && requeueing == Requeueing::ToItsPlace {
            self.ready.make_contiguous().sort_by_key(|message| message.number);
        }
        some
    }

    pub fn ack(&mut self, conn: ConnId, id: u64, through: u64) -> bool {
        let found = self.consumers.iter_mut().find(|consumer| consumer.conn == conn && consumer.id == id);
        let Some(consumer) = found else { return false };
        while consumer.unacked.front().is_some_and(|(tag, _)| *tag <= through) {
            consumer.unacked.pop_front();
        }
        true
    }

    /// Who gets what now.
    pub fn deal(&mut self, flaw: Option<Flaw>) -> Vec<(ConnId, u64, u64, Body)> {
        let mut dealt = Vec::new();
        let spare = |consumer: &Consumer| consumer.unacked.len() < consumer.credit || flaw == Some(Flaw::NoCredit);
        while !self.ready.is_empty() {
            let n = self.consumers.len();
            let Some(at) = (0..n).map(|i| (self.turn + i) % n).find(|at| spare(&self.consumers[*at])) else { break };
            self.turn = at + 1;
            let Some(message) = self.ready.pop_front() else { break };
            let consumer = &mut self.consumers[at];
            consumer.tag += 1;
            dealt.push((consumer.conn, consumer.id, consumer.tag, message.body.clone()));
            consumer.unacked.push_back((consumer.tag, message));
        }
        dealt
    }

    pub fn unacked(&self) -> usize {
        self.consumers.iter().map(|consumer| consumer.unacked.len()).sum()
    }

    /// A consumer that has more than it may, and what it may.
    pub fn over_credit(&self) -> Option<(usize, usize)> {
        let over = self.consumers.iter().find(|consumer| consumer.unacked.len() > consumer.credit);
        over.map(|consumer| (consumer.unacked.len(), consumer.credit))
    }
}
