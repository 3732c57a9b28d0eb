//! How many checks may be under way at once: more for as long as this process keeps up, fewer as soon as it does not.
//!
//! The sign is how late the process itself wakes up, never how long services take: a slow service costs a socket and a
//! timer, and a thousand of them must not make room scarce for those that are fast. A process that wakes up late would
//! measure its own lateness as theirs. Grows by a step, shrinks by a share: additive increase, multiplicative decrease.
//!
//! Pure: whoever has a clock says how late it was.

use std::time::Duration;

const LEAST: usize = 64;
const FIRST: usize = 512;
const STEP: usize = 64;
/// Waking up later than this is a sign that there is more to do than can be done.
pub const LATE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    now: usize,
    most: usize,
}

impl Limit {
    pub fn new(most: usize) -> Self {
        let most = most.max(LEAST);
        Self { now: FIRST.min(most), most }
    }

    pub fn now(&self) -> usize {
        self.now
    }

    /// Told how late the process woke up, and how many were under way. It does not grow while nobody needs it to.
    pub fn observe(&mut self, late: Duration, under_way: usize) {
        if late > LATE {
            self.now = (self.now.min(under_way.max(LEAST)) * 4 / 5).max(LEAST);
        } else if under_way * 10 >= self.now * 9 {
            self.now = (self.now + STEP).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_TIME: Duration = Duration::from_millis(1);
    const TOO_LATE: Duration = Duration::from_millis(80);

    #[test]
    fn it_grows_while_it_is_used_and_not_beyond_its_bound() {
        let mut limit = Limit::new(2_000);
        limit.observe(IN_TIME, 10);
        assert_eq!(limit.now(), FIRST, "nobody needs more");
        for _ in 0..100 {
            limit.observe(IN_TIME, limit.now());
        }
        assert_eq!(limit.now(), 2_000);
    }

    #[test]
    fn it_shrinks_at_once_when_the_process_is_late_and_never_to_nothing() {
        let mut limit = Limit::new(10_000);
        limit.observe(TOO_LATE, 500);
        assert_eq!(limit.now(), 400);
        for _ in 0..100 {
            limit.observe(TOO_LATE, limit.now());
        }
        assert_eq!(limit.now(), LEAST);
    }

    #[test]
    fn it_settles_around_what_the_process_can_do() {
        // A process that wakes up late from 3,000 on.
        let mut limit = Limit::new(10_000);
        let mut seen = Vec::new();
        for _ in 0..500 {
            limit.observe(if limit.now() > 3_000 { TOO_LATE } else { IN_TIME }, limit.now());
            seen.push(limit.now());
        }
        let later = &seen[200..];
        assert!(later.iter().all(|now| (2_400..=3_100).contains(now)), "{later:?}");
    }
}
