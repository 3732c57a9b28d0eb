//! The recommendations of a window: the lowest holds back going up, the highest holds back going down.
//!
//! Bounded: what comes within a small part of the window after another is folded into it, so that a loop of any pace keeps a
//! few hundred marks at most. A folded mark lives a little longer than the window, never shorter.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

/// Into how many parts a window is cut.
const PARTS: u32 = 240;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recent {
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    from: Timestamp,
    at: Timestamp,
    low: u32,
    high: u32,
}

impl Recent {
    /// Whoever takes over without a history recommends what is there, for a whole window.
    pub fn begin(&mut self, count: u32, now: Timestamp) {
        if self.marks.is_empty() {
            self.marks.push_back(Mark { from: now, at: now, low: count, high: count });
        }
    }

    pub fn note(&mut self, count: u32, now: Timestamp, keep: Duration) {
        self.marks.retain(|mark| now.since(mark.at) < keep);
        match self.marks.back_mut() {
            Some(last) if now.since(last.from) < keep / PARTS => {
                *last = Mark { from: last.from, at: now, low: last.low.min(count), high: last.high.max(count) };
            }
            _ => self.marks.push_back(Mark { from: now, at: now, low: count, high: count }),
        }
    }

    pub fn lowest(&self, count: u32, now: Timestamp, window: Duration) -> u32 {
        self.within(now, window).map(|mark| mark.low).fold(count, u32::min)
    }

    pub fn highest(&self, count: u32, now: Timestamp, window: Duration) -> u32 {
        self.within(now, window).map(|mark| mark.high).fold(count, u32::max)
    }

    pub fn forget_the_future(&mut self, now: Timestamp) {
        for mark in &mut self.marks {
            mark.from = mark.from.min(now);
            mark.at = mark.at.min(now);
        }
    }

    fn within(&self, now: Timestamp, window: Duration) -> impl Iterator<Item = &Mark> {
        self.marks.iter().filter(move |mark| now.since(mark.at) < window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Duration = Duration::from_secs(300);
    const SHORT: Duration = Duration::from_secs(2);

    proptest! {
        #[test]
        fn the_extremes_of_a_window_are_never_missed_and_the_marks_are_few(
            noted in prop::collection::vec((1i64..40, 0u32..50), 1..300)
        ) {
            let (mut recent, mut all, mut now) = (Recent::default(), Vec::new(), Timestamp(0));
            for (after, count) in noted {
                now.0 += after;
                recent.note(count, now, SHORT);
                all.push((now, count));
                let inside = all.iter().filter(|(at, _)| now.since(*at) < SHORT).map(|(_, count)| *count);
                prop_assert!(recent.lowest(u32::MAX, now, SHORT) <= inside.clone().min().unwrap());
                prop_assert!(recent.highest(0, now, SHORT) >= inside.max().unwrap());
                prop_assert!(recent.marks.len() <= PARTS as usize + 2, "{}", recent.marks.len());
            }
        }
    }

    #[test]
    fn a_mark_as_old_as_the_window_is_out_of_it() {
        let mut recent = Recent::default();
        recent.note(9, Timestamp(0), WINDOW);
        assert_eq!(recent.highest(1, Timestamp(299_999), WINDOW), 9);
        assert_eq!(recent.highest(1, Timestamp(300_000), WINDOW), 1);
        assert_eq!(recent.highest(1, Timestamp(0), Duration::ZERO), 1);
    }

    #[test]
    fn a_clock_that_stepped_back_holds_nothing_longer_than_a_window() {
        let mut recent = Recent::default();
        recent.note(9, Timestamp(10_000_000), WINDOW);
        recent.forget_the_future(Timestamp(1_000));
        assert_eq!(recent.highest(1, Timestamp(301_001), WINDOW), 1);
    }
}
