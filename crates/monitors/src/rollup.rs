//! What many outcomes come to: counts and times of a minute, an hour, a day, and how much of a stretch of time it was up.
//!
//! Raw outcomes are kept for days; what they come to is kept for years. Rolls of one step add up to the next, exactly, so it
//! does not matter who adds up when, nor how often.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::grid::MonitorKey;
use crate::health::Verdict;
use crate::sketch::Sketch;

/// How long the stretch is that one row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

    /// What it is added up from; minutes are added up from outcomes.
    pub fn finer(self) -> Option<Self> {
        match self {
            Step::Minute => None,
            Step::Hour => Some(Step::Minute),
            Step::Day => Some(Step::Hour),
        }
    }

    /// How long rolls of it are kept.
    pub fn kept(self) -> Duration {
        let day = Duration::from_secs(86_400);
        day * match self {
            Step::Minute => 2,
            Step::Hour => 100,
            Step::Day => 5 * 366,
        }
    }

    pub fn number(self) -> i64 {
        match self {
            Step::Minute => 0,
            Step::Hour => 1,
            Step::Day => 2,
        }
    }

    pub fn of_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.number() == number)
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

    /// The share of good ones, in percent; none when nothing counts.
    pub fn uptime_percent(&self) -> Option<f64> {
        let all = self.good + self.bad;
        (all > 0).then(|| self.good as f64 * 100.0 / all as f64)
    }
}

/// What outcomes come to, by monitor and stretch.
pub fn gather(
    step: Step,
    outcomes: impl IntoIterator<Item = (MonitorKey, Timestamp, Ended)>,
) -> BTreeMap<(MonitorKey, Timestamp), Roll> {
    let mut rolls: BTreeMap<_, Roll> = BTreeMap::new();
    for (monitor, at, ended) in outcomes {
        rolls.entry((monitor, step.of(at))).or_default().add(ended);
    }
    rolls
}

/// What finer rolls come to.
pub fn merge(
    step: Step,
    parts: impl IntoIterator<Item = (MonitorKey, Timestamp, Roll)>,
) -> BTreeMap<(MonitorKey, Timestamp), Roll> {
    let mut rolls: BTreeMap<_, Roll> = BTreeMap::new();
    for (monitor, at, roll) in parts {
        rolls.entry((monitor, step.of(at))).or_default().merge(&roll);
    }
    rolls
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
            const M: MonitorKey = MonitorKey(1);
            let by = |step: Step| gather(step, outcomes.iter().map(|(at, ended)| (M, Timestamp(*at), *ended)));
            for (finer, coarser) in [(Step::Minute, Step::Hour), (Step::Hour, Step::Day)] {
                let parts = by(finer).into_iter().map(|((monitor, at), roll)| (monitor, at, roll));
                prop_assert_eq!(merge(coarser, parts), by(coarser));
            }
        }
    }

    #[test]
    fn maintenance_counts_neither_way() {
        assert_eq!(Roll { excused: 5, ..Roll::default() }.uptime_percent(), None);
        assert_eq!(Roll { good: 3, bad: 1, excused: 5, ..Roll::default() }.uptime_percent(), Some(75.0));
    }
}
