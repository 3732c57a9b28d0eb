//! A queue that one takes from at a time: what is not acknowledged by whoever leaves goes back to its head, in order.

use std::collections::VecDeque;

use bytes::Bytes;

/// Messages that one may hold.
const CREDIT: usize = 8;

#[derive(Default)]
pub struct Queue {
    ready: VecDeque<Bytes>,
    /// In the order in which they came; the first takes.
    takers: Vec<(usize, VecDeque<Bytes>)>,
    /// Held by who has left, and not back yet.
    late: Vec<Bytes>,
}

impl Queue {
    pub fn put(&mut self, message: Bytes) {
        self.ready.push_back(message);
    }

    pub fn has(&self, taker: usize) -> bool {
        self.takers.iter().any(|(of, _)| *of == taker)
    }

    pub fn attach(&mut self, taker: usize) {
        if !self.has(taker) {
            self.takers.push((taker, VecDeque::new()));
        }
    }

    /// `cancels_first`: what it held is back only after the next has taken something.
    pub fn leave(&mut self, taker: usize, cancels_first: bool) {
        let Some(at) = self.takers.iter().position(|(of, _)| *of == taker) else { return };
        let (_, held) = self.takers.remove(at);
        if cancels_first {
            self.late.extend(held);
        } else {
            self.give_back(held);
        }
    }

    fn give_back(&mut self, held: impl IntoIterator<Item = Bytes, IntoIter: DoubleEndedIterator>) {
        for message in held.into_iter().rev() {
            self.ready.push_front(message);
        }
    }

    pub fn deliver(&mut self, taker: usize) -> Option<Bytes> {
        let (first, held) = self.takers.first_mut()?;
        if *first != taker || held.len() >= CREDIT {
            return None;
        }
        let next = self.ready.pop_front();
        held.extend(next.clone());
        let late = std::mem::take(&mut self.late);
        self.give_back(late);
        next
    }

    /// The first so many of what it holds.
    pub fn acknowledge(&mut self, taker: usize, many: usize) {
        if let Some((_, held)) = self.takers.iter_mut().find(|(of, _)| *of == taker) {
            held.drain(..many.min(held.len()));
        }
    }
}
