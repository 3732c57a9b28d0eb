//! How many tasks may wait here. Pure.
//!
//! Enough to stay busy until the next parcel is here, and no more, because whoever waits here cannot be taken by an
//! idle neighbour: about what ends in [`WINDOW`], and nobody while nothing ends.

use std::time::Duration;

use mutirao_core::Mono;

const WINDOW: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    opened: Mono,
    ended: usize,
    ended_before: usize,
}

impl Pace {
    pub fn ended(&mut self, tasks: usize, now: Mono) {
        self.roll(now);
        self.ended += tasks;
    }

    pub fn waiting_max(&mut self, now: Mono) -> usize {
        self.roll(now);
        self.ended.max(self.ended_before)
    }

    fn roll(&mut self, now: Mono) {
        let open_for = now.since(self.opened);
        if open_for < WINDOW {
            return;
        }
        // A window that stayed open long says that nothing ended lately.
        self.ended_before = if open_for < 2 * WINDOW { self.ended } else { 0 };
        self.ended = 0;
        self.opened = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    #[test]
    fn a_fast_worker_may_have_many_waiting_and_a_slow_one_nobody() {
        let mut pace = Pace::default();
        assert_eq!(pace.waiting_max(at(1_000)), 0);
        for ms in 1_000..1_150 {
            pace.ended(2, at(ms));
        }
        assert_eq!(pace.waiting_max(at(1_150)), 200);
        assert_eq!(pace.waiting_max(at(1_500)), 0);
    }
}
