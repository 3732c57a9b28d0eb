//! What one outbox has sent and what it knows to be applied: how much waits, and who waits for what. Pure.
//!
//! Parcels of one sender are applied in the order of their numbers, and one that was passed over never comes: so whatever is
//! known to be applied says that nothing before it is on its way any more.

use std::collections::{BTreeMap, VecDeque};

use mutirao_core::Mono;
use tokio::sync::oneshot;

use crate::intake::Answer;

/// Who waits for the write at a place of a parcel.
pub type Waiter = (u32, oneshot::Sender<Answer>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    number: u64,
    writes: usize,
    bytes: usize,
}

#[derive(Default)]
pub struct Book {
    /// By growing number: sent, or just being sent, and not known to be applied.
    under_way: VecDeque<Sent>,
    waiting: BTreeMap<u64, Vec<Waiter>>,
    writes: usize,
    bytes: usize,
    /// When something was last known to move.
    moved: Mono,
}

/// How much may be under way.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub writes: usize,
    pub bytes: usize,
}

impl Book {
    /// Before it is sent: it may be applied before its sender hears that it has arrived.
    pub fn begin(&mut self, number: u64, writes: usize, bytes: usize, waiters: Vec<Waiter>, now: Mono) {
        if self.under_way.is_empty() {
            self.moved = now;
        }
        self.under_way.push_back(Sent { number, writes, bytes });
        (self.writes, self.bytes) = (self.writes + writes, self.bytes + bytes);
        if !waiters.is_empty() {
            self.waiting.insert(number, waiters);
        }
    }

    /// It was not confirmed, so nobody counts on it. Returns how many writes do not wait any more.
    pub fn abandon(&mut self, number: u64) -> usize {
        self.waiting.remove(&number);
        let Some(at) = self.under_way.iter().position(|sent| sent.number == number) else { return 0 };
        self.under_way.remove(at).map_or(0, |sent| self.forget(sent))
    }

    /// Everything up to this number is applied, or never will be. Returns how many writes do not wait any more.
    pub fn reach(&mut self, number: u64, now: Mono) -> usize {
        let mut gone = 0;
        while let Some(sent) = self.under_way.front().copied().filter(|sent| sent.number <= number) {
            self.under_way.pop_front();
            self.moved = now;
            gone += self.forget(sent);
        }
        gone
    }

    fn forget(&mut self, sent: Sent) -> usize {
        (self.writes, self.bytes) = (self.writes - sent.writes, self.bytes - sent.bytes);
        sent.writes
    }

    /// Those who wait for this parcel.
    pub fn waiters_of(&mut self, number: u64) -> Vec<Waiter> {
        self.waiting.remove(&number).unwrap_or_default()
    }

    /// The parcels up to this one that somebody still waits for.
    pub fn awaited_through(&mut self, number: u64) -> Vec<u64> {
        self.waiting.retain(|_, waiters| waiters.iter().any(|(_, answer)| !answer.is_closed()));
        self.waiting.range(..=number).map(|(number, _)| *number).collect()
    }

    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }

    /// Whether nothing more may be sent. When nothing has moved for long, one parcel more may be: what was lost with its queue
    /// is found out only by what comes after it.
    pub fn is_full(&self, bound: Bound, now: Mono, long: std::time::Duration) -> bool {
        let full = self.writes >= bound.writes || self.bytes >= bound.bytes;
        full && now.since(self.moved) < long
    }

    /// One more is let through for that reason, and the next after as long again.
    pub fn note_probe_if_full(&mut self, bound: Bound, now: Mono) {
        if self.writes >= bound.writes || self.bytes >= bound.bytes {
            self.moved = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BOUND: Bound = Bound { writes: 10, bytes: 1_000 };
    const LONG: Duration = Duration::from_secs(10);

    fn at(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    fn full(book: &Book, s: u64) -> bool {
        book.is_full(BOUND, at(s), LONG)
    }

    #[test]
    fn what_is_applied_makes_room_and_so_does_what_was_given_up() {
        let mut book = Book::default();
        book.begin(1, 4, 40, Vec::new(), at(1));
        book.begin(2, 4, 40, Vec::new(), at(1));
        assert!(!full(&book, 1));
        book.begin(3, 4, 40, Vec::new(), at(1));
        assert!(full(&book, 1));
        assert_eq!((book.abandon(3), full(&book, 1)), (4, false));
        book.begin(4, 1, 1_000, Vec::new(), at(1));
        assert!(full(&book, 1), "by its bytes");
        assert_eq!((book.reach(4, at(2)), book.is_empty()), (9, true));
        assert_eq!(book.reach(4, at(2)), 0, "once");
    }

    #[test]
    fn whoever_waits_is_found_by_the_parcel_also_when_it_is_applied_before_it_is_confirmed() {
        let mut book = Book::default();
        let (answer, _keep) = oneshot::channel();
        let (other, _) = oneshot::channel();
        book.begin(1, 1, 1, Vec::new(), at(1));
        book.begin(2, 1, 1, vec![(0, answer)], at(1));
        book.begin(3, 1, 1, vec![(0, other)], at(1));
        assert!(book.awaited_through(1).is_empty());
        assert_eq!(book.awaited_through(9), [2], "who has gone waits for nothing");
        book.reach(3, at(1));
        assert!(!book.is_empty(), "somebody is still to be told");
        assert_eq!((book.waiters_of(2).len(), book.waiters_of(2).len()), (1, 0));
        assert!(book.is_empty() && !book.is_awaited());
    }

    #[test]
    fn one_that_has_not_moved_for_long_lets_one_through() {
        let mut book = Book::default();
        book.begin(1, 10, 1, Vec::new(), at(5));
        assert!(full(&book, 14) && !full(&book, 15));
        book.note_probe_if_full(BOUND, at(15));
        assert!(full(&book, 16));
    }
}
