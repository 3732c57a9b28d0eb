//! What many outcomes come to: counts and times of a minute, an hour, a day, and how much of a stretch of time it was up.
//!
//! Raw outcomes are kept for days; what they come to is kept for years. Rolls of one step add up to the next, exactly, so it
//! does not matter who adds up when, nor whether an outcome came late: its minute is added up anew.

use std::time::Duration;

use mutirao_core::Timestamp;

use crate::health::Verdict;
use crate::sketch::Sketch;

/// How long the stretch is that one row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Minute,
    Hour,
    Day,
}

impl Step {
    pub const ALL: [Step; 3] = [Step::Minute, Step::Hour, Step::Day];

    pub fn length(self) -> Duration {
        Duration::from_secs(match self {
            Step::Minute => 60,
            Step::Hour => 3_600,
            Step::Day => 86_400,
        })
    }

    /// The beginning of the stretch that a moment lies in. Days are those of UTC.
    pub fn of(self, at: Timestamp) -> Timestamp {
        Timestamp(at.0 - at.0.rem_euclid(self.length().as_millis() as i64))
    }

    /// The coarsest that still gives `points` rows for a span.
    pub fn for_span(span: Duration, points: u32) -> Self {
        let enough = |step: &Step| span >= step.length().saturating_mul(points);
        Step::ALL.into_iter().rev().find(enough).unwrap_or(Step::Minute)
    }
}

/// All outcomes of one monitor in one stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roll {
    pub good: u64,
    pub bad: u64,
    /// Bad ones at times when that was to be expected: they count neither way.
    pub excused: u64,
    /// Of those that were answered.
    pub times: Sketch,
    pub longest_us: u64,
}

/// One outcome, as far as sums go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub verdict: Verdict,
    /// Within a maintenance window.
    pub excused: bool,
    /// Microseconds; none when there was no answer.
    pub took_us: Option<u64>,
}

impl Roll {
    pub fn add(&mut self, ended: Ended) {
        match (ended.verdict, ended.excused) {
            (Verdict::Good, _) => self.good += 1,
            (Verdict::Bad, false) => self.bad += 1,
            (Verdict::Bad, true) => self.excused += 1,
        }
        if let Some(took) = ended.took_us {
            self.times.add(took);
            self.longest_us = self.longest_us.max(took);
        }
    }

    pub fn merge(&mut self, other: &Roll) {
        self.good = self.good.saturating_add(other.good);
        self.bad = self.bad.saturating_add(other.bad);
        self.excused = self.excused.saturating_add(other.excused);
        self.times.merge(&other.times);
        self.longest_us = self.longest_us.max(other.longest_us);
    }

    /// The share of good ones, in percent; none when nothing counts. Never rounded up to a hundred.
    pub fn uptime_percent(&self) -> Option<f64> {
        let all = self.good + self.bad;
        (all > 0).then(|| self.good as f64 * 100.0 / all as f64)
    }
}

/// A percentage for people. 99.9996 is not 100: what was not always up is never shown as if it had been.
pub fn percent(share: f64) -> String {
    let shown = (share * 1_000.0).floor() / 1_000.0;
    if shown >= 100.0 { "100 %".into() } else { format!("{shown:.3} %") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ended() -> impl Strategy<Value = (i64, Ended)> {
        (0..4 * 86_400_000i64, any::<bool>(), any::<bool>(), prop::option::of(0..9_000_000u64)).prop_map(
            |(at, good, excused, took_us)| {
                (at, Ended { verdict: if good { Verdict::Good } else { Verdict::Bad }, excused, took_us })
            },
        )
    }

    proptest! {
        #[test]
        fn minutes_make_hours_and_hours_make_days(outcomes in prop::collection::vec(ended(), 0..200)) {
            use std::collections::BTreeMap;
            let by = |step: Step| {
                let mut rolls: BTreeMap<Timestamp, Roll> = BTreeMap::new();
                for (at, ended) in &outcomes {
                    rolls.entry(step.of(Timestamp(*at))).or_default().add(*ended);
                }
                rolls
            };
            for (finer, coarser) in [(Step::Minute, Step::Hour), (Step::Hour, Step::Day)] {
                let mut summed: BTreeMap<Timestamp, Roll> = BTreeMap::new();
                for (at, roll) in by(finer) {
                    summed.entry(coarser.of(at)).or_default().merge(&roll);
                }
                prop_assert_eq!(summed, by(coarser));
            }
        }
    }

    #[test]
    fn what_was_not_always_up_is_never_shown_as_if() {
        let shown = |good, bad| percent(Roll { good, bad, ..Roll::default() }.uptime_percent().unwrap());
        assert_eq!([shown(10, 0), shown(999_999, 1), shown(999, 1)], ["100 %", "99.999 %", "99.900 %"]);
        assert_eq!(shown(9_999_999, 1), "99.999 %");
        assert_eq!(Roll { excused: 5, ..Roll::default() }.uptime_percent(), None);
    }

    #[test]
    fn a_chart_has_as_many_points_as_were_asked_for_at_least() {
        let day = Duration::from_secs(86_400);
        assert_eq!(Step::for_span(day, 100), Step::Minute);
        assert_eq!(Step::for_span(day * 30, 100), Step::Hour);
        assert_eq!(Step::for_span(day * 365, 100), Step::Day);
        assert_eq!(Step::for_span(Duration::from_secs(10), 100), Step::Minute);
    }
}
