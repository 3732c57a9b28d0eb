//! How long the tasks of a queue last, and so how much longer one will that has run for a while. Learned from those that were
//! seen to end; the last few thousand count.
//!
//! Among n tasks that lasted longer than the one asked about has run, one more is imagined that lasts as long again as it has:
//! where many are known it changes nothing, and of a task older than any before it is all that can be said.
//!
//! Not here: who sees tasks end, and what is done about it ([`consolidating`](crate::packing::consolidating)).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Below a second, and by factors of √2 above, to some twelve days.
const PARTS: usize = 41;
/// More than this, and all count half.
const TASKS_MAX: u64 = 4_000;
/// So many must have been seen before anything is believed.
const KNOWN_MIN: u64 = 10;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lasting {
    /// How many ended in each part; parts after the last that has any are left out.
    counts: Vec<u32>,
}

impl Lasting {
    pub fn note(&mut self, lasted: Duration) {
        let part = part(lasted.as_secs_f64()).min(PARTS - 1);
        if self.counts.len() <= part {
            self.counts.resize(part + 1, 0);
        }
        self.counts[part] = self.counts[part].saturating_add(1);
        if self.total() > TASKS_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    pub fn is_blank(&self) -> bool {
        self.counts.is_empty()
    }

    pub fn is_known(&self) -> bool {
        self.total() >= KNOWN_MIN
    }

    /// The part of the tasks that have run for `age_s` which run for `more_s` longer at least.
    pub fn goes_on(&self, age_s: f64, more_s: f64) -> f64 {
        let imagined = age_s.max(1.0) / (age_s.max(1.0) + more_s.max(0.0));
        (self.longer_than(age_s + more_s) + imagined) / (self.longer_than(age_s) + 1.0)
    }

    fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Within a part they are taken to be spread evenly.
    fn longer_than(&self, s: f64) -> f64 {
        let at = part(s);
        let whole: f64 = self.counts.iter().skip(at + 1).map(|count| f64::from(*count)).sum();
        let (from, to) = (begins(at), begins(at + 1));
        let share = ((to - s) / (to - from)).clamp(0.0, 1.0);
        whole + share * self.counts.get(at).map_or(0.0, |count| f64::from(*count))
    }
}

fn part(s: f64) -> usize {
    if s < 1.0 { 0 } else { (2.0 * s.log2()).floor() as usize + 1 }
}

fn begins(part: usize) -> f64 {
    if part == 0 { 0.0 } else { 2f64.powf((part as f64 - 1.0) / 2.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(seconds: impl IntoIterator<Item = u64>) -> Lasting {
        let mut lasting = Lasting::default();
        seconds.into_iter().for_each(|s| lasting.note(Duration::from_secs(s)));
        lasting
    }

    #[test]
    fn a_task_near_its_end_is_known_to_be_and_a_young_one_is_known_not_to_be() {
        let hour = of([3_600; 200]);
        assert!(hour.goes_on(30.0, 900.0) > 0.98, "{}", hour.goes_on(30.0, 900.0));
        assert!(hour.goes_on(3_500.0, 900.0) < 0.05, "{}", hour.goes_on(3_500.0, 900.0));
    }

    #[test]
    fn whoever_outlived_the_short_ones_is_one_of_the_long_ones() {
        let mixed = of((0..1_000).map(|n| if n % 10 == 0 { 7_200 } else { 5 }));
        assert!(mixed.goes_on(1.0, 60.0) < 0.12, "{}", mixed.goes_on(1.0, 60.0));
        assert!(mixed.goes_on(60.0, 600.0) > 0.98, "{}", mixed.goes_on(60.0, 600.0));
    }

    #[test]
    fn one_older_than_any_before_lasts_as_long_again() {
        let short = of([10; 500]);
        assert!((short.goes_on(4_000.0, 4_000.0) - 0.5).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn fewer_and_fewer_go_on_and_what_is_kept_is_little(
            lasted in prop::collection::vec(0u64..2_000_000, 0..300), age in 0.0f64..3e6, more in 0.0f64..3e6, then in 0.0f64..3e6
        ) {
            let known = of(lasted.into_iter().cycle().take(6_000));
            prop_assert!(known.counts.len() <= PARTS && known.total() <= TASKS_MAX);
            let (soon, later) = (known.goes_on(age, more), known.goes_on(age, more + then));
            prop_assert!((0.0..=1.0).contains(&soon) && later <= soon + 1e-9, "{soon} {later}");
            prop_assert!((known.goes_on(age, 0.0) - 1.0).abs() < 1e-9);
        }
    }
}
