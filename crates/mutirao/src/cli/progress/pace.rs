//! How fast a job goes, and how long it will take at that. Pure.
//!
//! What counts is what ended lately, not since the beginning: a job that stood still for an hour goes no slower for it
//! afterwards. While it stands still nothing is foretold, only since when.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::Mono;

/// What ended in this time counts, or the last few if those took longer.
const LATELY: Duration = Duration::from_secs(30);
const FEW: u64 = 10;
/// Between two looks that are kept.
const APART: Duration = Duration::from_millis(250);
/// After this, or after so many times as long as a task took before, it stands still.
const STILL_AFTER: Duration = Duration::from_secs(15);
const STILL_TIMES: f64 = 10.0;

/// What can be said of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Going {
    /// Nothing has ended since we began to look.
    Unknown,
    At {
        per_s: f64,
        left: Duration,
    },
    /// Nothing has ended for so long.
    Still(Duration),
}

#[derive(Debug)]
pub struct Pace {
    /// When how many had ended, the oldest first; never empty.
    looks: VecDeque<(Mono, u64)>,
}

impl Pace {
    pub fn new(ended: u64, now: Mono) -> Self {
        Self { looks: [(now, ended)].into() }
    }

    pub fn see(&mut self, ended: u64, now: Mono) {
        let (_, before) = self.last();
        if ended == before {
            return;
        }
        // Whatever was before a pause, or before tasks were opened again, says nothing of what comes.
        if ended < before || self.still(now).is_some() {
            self.looks.clear();
        }
        match self.looks.len() {
            2.. if now.since(self.looks[self.looks.len() - 2].0) < APART => {
                self.looks.pop_back();
                self.looks.push_back((now, ended));
            }
            _ => self.looks.push_back((now, ended)),
        }
        while self.looks.len() > 2 && now.since(self.looks[0].0) > LATELY && ended - self.looks[1].1 >= FEW {
            self.looks.pop_front();
        }
    }

    /// `left` tasks have not ended.
    pub fn going(&self, left: u64, now: Mono) -> Going {
        if let Some(still) = self.still(now) {
            return Going::Still(still);
        }
        let ((since, from), (_, to)) = (self.looks[0], self.last());
        if to == from {
            return Going::Unknown;
        }
        let per_s = (to - from) as f64 / now.since(since).as_secs_f64().max(0.001);
        Going::At { per_s, left: Duration::from_secs_f64((left as f64 / per_s).min(f64::from(u32::MAX))) }
    }

    fn still(&self, now: Mono) -> Option<Duration> {
        let ((since, from), (last, to)) = (self.looks[0], self.last());
        if to == from {
            return None;
        }
        let each = last.since(since).as_secs_f64() / (to - from) as f64;
        let silent = now.since(last);
        (silent.as_secs_f64() > STILL_AFTER.as_secs_f64().max(each * STILL_TIMES)).then_some(silent)
    }

    fn last(&self) -> (Mono, u64) {
        self.looks[self.looks.len() - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: f64) -> Mono {
        Mono(Duration::from_secs_f64(s))
    }

    fn rate(pace: &Pace, now: f64) -> f64 {
        match pace.going(1_000, at(now)) {
            Going::At { per_s, .. } => per_s,
            other => panic!("{other:?} at {now}"),
        }
    }

    /// Ten in a second, told twenty times a second.
    fn run(pace: &mut Pace, ended: &mut u64, from: f64, seconds: u32) {
        for n in 1..=seconds * 20 {
            *ended += u64::from(n % 2 == 0);
            pace.see(*ended, at(from + f64::from(n) / 20.0));
        }
    }

    #[test]
    fn a_pause_slows_nothing_down_that_comes_after_it() {
        let (mut pace, mut ended) = (Pace::new(0, at(0.0)), 0);
        assert_eq!(pace.going(1_000, at(5.0)), Going::Unknown, "nothing is foretold from nothing");
        run(&mut pace, &mut ended, 0.0, 60);
        assert!((rate(&pace, 60.0) - 10.0).abs() < 0.5, "{}", rate(&pace, 60.0));
        assert!(pace.looks.len() < 200, "{}", pace.looks.len());
        assert_eq!(pace.going(1_000, at(3_660.0)), Going::Still(Duration::from_secs(3_600)));
        run(&mut pace, &mut ended, 3_660.0, 5);
        assert!((rate(&pace, 3_665.0) - 10.0).abs() < 1.0, "{}", rate(&pace, 3_665.0));
    }

    #[test]
    fn tasks_that_take_minutes_do_not_stand_still_between_two_ends() {
        let mut pace = Pace::new(0, at(0.0));
        for n in 1..=20 {
            pace.see(n, at(n as f64 * 120.0));
        }
        assert_eq!(
            pace.going(10, at(20.0 * 120.0)),
            Going::At { per_s: 1.0 / 120.0, left: Duration::from_secs(1_200) }
        );
        assert!(rate(&pace, 21.5 * 120.0) < 1.0 / 120.0);
        assert_eq!(pace.going(10, at(31.0 * 120.0)), Going::Still(Duration::from_secs(1_320)));
    }

    #[test]
    fn tasks_that_are_opened_again_begin_anew() {
        let mut pace = Pace::new(0, at(0.0));
        pace.see(50, at(1.0));
        pace.see(40, at(2.0));
        assert_eq!(pace.going(10, at(2.0)), Going::Unknown);
    }
}
