//! How long reports gather before they leave together. Pure.
//!
//! A message costs the broker, the manager and the store as much as dozens of outcomes in it do, so where tasks end in quick
//! succession they travel together. Nobody waits for that who has nothing else to do: an idle worker reports at once, and one
//! whose tasks end slowly, or that has none in hand, soon, because then its report brings the next.

use std::time::Duration;

/// How long reports gather while there is other work, and between two looks whether to go on.
pub(crate) const GATHER: Duration = Duration::from_millis(5);
/// How long they gather at most. Well within what the manager lets out ahead (`jobs/src/desk/window.rs`) and what a worker
/// has in hand ([`super::pace`]), so that nobody runs dry meanwhile.
const GATHER_MAX: Duration = Duration::from_millis(40);
/// Reports that are worth a message of their own.
pub(crate) const FLUSH_REPORTS: usize = 256;

/// What there is to report, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heap {
    pub reports: usize,
    /// Nothing waits or runs here.
    pub idle: bool,
    /// Tasks wait here for their turn.
    pub busy: bool,
}

impl Heap {
    /// Whether it leaves now, having gathered for so long; `before` is how it was a [`GATHER`] ago, if it was looked at.
    pub fn leaves(self, before: Option<Heap>, gathered: Duration) -> bool {
        let Some(before) = before else { return self.is_worth_it() };
        let grows = self.reports > before.reports;
        self.is_worth_it() || gathered >= GATHER_MAX || !self.busy || !grows
    }

    fn is_worth_it(self) -> bool {
        self.reports >= FLUSH_REPORTS || self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(reports: usize, busy: bool) -> Heap {
        Heap { reports, idle: false, busy }
    }

    /// How many gather, and for how long in ms, where one ends every so many ms, and so many wait at first.
    fn gathered(every_ms: u64, mut waiting: u64) -> (usize, u64) {
        let (mut before, mut reports, mut ms) = (None, 1, 0);
        loop {
            let heap = heap(reports, waiting > 0);
            if heap.leaves(before.replace(heap), Duration::from_millis(ms)) {
                return (reports, ms);
            }
            let ended = (ms + 5) / every_ms - ms / every_ms;
            reports += ended as usize;
            waiting = waiting.saturating_sub(ended);
            ms += 5;
        }
    }

    #[test]
    fn what_ends_in_quick_succession_travels_together() {
        assert_eq!(gathered(2, 1_000), (21, 40));
        assert_eq!(gathered(5, 1_000), (9, 40));
    }

    #[test]
    fn what_ends_slowly_does_not_wait_for_the_next() {
        assert_eq!(gathered(100, 1_000), (1, 5));
    }

    #[test]
    fn the_last_one_in_hand_is_told_soon() {
        assert_eq!(gathered(2, 0), (3, 5));
        assert_eq!(gathered(2, 6), (8, 15));
    }

    #[test]
    fn an_idle_worker_and_one_with_much_to_say_report_at_once() {
        assert!(Heap { reports: 1, idle: true, busy: false }.leaves(None, Duration::ZERO));
        assert!(heap(FLUSH_REPORTS, true).leaves(None, Duration::ZERO));
        assert!(!heap(1, true).leaves(None, Duration::ZERO));
    }
}
