//! Which of a session's messages have been heard. Workers number them, because a broker may lose one, or deliver it again
//! after later ones; a heartbeat that comes after a gap says nothing about what it does not name.
//!
//! A gap is waited for, and no longer than a lease: by then what is missing is lost, and the session's word counts again.

use std::collections::BTreeSet;

use mutirao_core::Mono;

/// Messages of one session that are waited for; past it the oldest count as lost.
const MISSING_MAX: usize = 1_024;

/// How a message stands to those heard before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Everything that was said before it was heard, or is known to be lost.
    Whole,
    /// Something that was said before it may still come.
    Gap,
    /// Something that was said after it was heard before it, or it is heard again.
    Late,
}

#[derive(Debug, Default)]
pub struct Sequence {
    /// The highest number heard; nothing before the first that is heard is waited for.
    last: Option<u64>,
    missing: BTreeSet<u64>,
    /// What is missing then is lost.
    wait_until: Mono,
}

impl Sequence {
    /// Takes a number in. Versions that did not count are taken at their word.
    pub fn hear(&mut self, number: Option<u64>, now: Mono, wait_until: Mono) -> Order {
        if now >= self.wait_until {
            self.missing.clear();
        }
        let (Some(number), Some(last)) = (number, self.last) else {
            self.last = self.last.or(number);
            return self.order();
        };
        if number <= last {
            self.missing.remove(&number);
            return Order::Late;
        }
        self.last = Some(number);
        if number - last > 1 && self.missing.is_empty() {
            self.wait_until = wait_until;
        }
        self.missing.extend((last + 1..number).rev().take(MISSING_MAX));
        while self.missing.len() > MISSING_MAX {
            self.missing.pop_first();
        }
        self.order()
    }

    fn order(&self) -> Order {
        if self.missing.is_empty() { Order::Whole } else { Order::Gap }
    }

    /// Nothing that was said is waited for.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// Time in which nothing could be heard does not count.
    pub fn forgive(&mut self, by: std::time::Duration) {
        self.wait_until = self.wait_until.plus(by);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    fn hear(sequence: &mut Sequence, number: u64, s: u64) -> Order {
        sequence.hear(Some(number), at(s), at(s + 10))
    }

    #[test]
    fn a_gap_is_open_until_it_is_filled() {
        let mut sequence = Sequence::default();
        assert_eq!(hear(&mut sequence, 7, 0), Order::Whole, "what was said to an earlier owner is not waited for");
        assert_eq!(hear(&mut sequence, 8, 0), Order::Whole);
        assert_eq!(hear(&mut sequence, 11, 1), Order::Gap);
        assert_eq!(hear(&mut sequence, 9, 2), Order::Late);
        assert_eq!(hear(&mut sequence, 12, 2), Order::Gap);
        assert_eq!(hear(&mut sequence, 10, 3), Order::Late);
        assert_eq!(hear(&mut sequence, 10, 3), Order::Late);
        assert!(sequence.is_whole());
        assert_eq!(hear(&mut sequence, 13, 3), Order::Whole);
    }

    #[test]
    fn what_does_not_come_in_time_is_lost_and_time_in_which_nothing_could_be_heard_does_not_count() {
        let mut sequence = Sequence::default();
        hear(&mut sequence, 1, 0);
        assert_eq!(hear(&mut sequence, 3, 0), Order::Gap);
        sequence.forgive(Duration::from_secs(5));
        assert_eq!(hear(&mut sequence, 4, 14), Order::Gap);
        assert_eq!(hear(&mut sequence, 5, 15), Order::Whole);
    }

    #[test]
    fn a_version_that_does_not_count_is_taken_at_its_word() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.hear(None, at(0), at(10)), Order::Whole);
        assert_eq!(sequence.hear(None, at(1), at(10)), Order::Whole);
    }

    #[test]
    fn however_long_a_gap_is_little_is_remembered_of_it() {
        let mut sequence = Sequence::default();
        hear(&mut sequence, 1, 0);
        hear(&mut sequence, u64::MAX - 1, 0);
        assert_eq!(sequence.missing.len(), MISSING_MAX);
    }
}
