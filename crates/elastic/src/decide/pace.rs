//! What is learned of a queue's tasks from one look to the next: how many come, how long one takes, how far they are apart,
//! and how many came at the same hours of past days. All of it follows from three counts (ready, running, ended).
//!
//! Bounded, and in whole numbers, so that what is written reads back the same.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::measure::Tasks;

/// Arrivals are counted in parts of this…
const BIN: Duration = Duration::from_secs(30);
/// …as far back as this many of them.
const BINS: usize = 40;
/// Standard deviations between what was counted and what is believed.
const DOUBT: f64 = 3.0;
/// A day has this many parts of past days.
const SLOTS: usize = 96;
const SLOT_MS: i64 = 86_400_000 / SLOTS as i64;
/// Tasks whose duration counts: between half and all of the last so many.
const DONE_MAX: u64 = 1_000;
/// So many must have ended before what they took is known.
const KNOWN_MIN: u64 = 10;
/// The weight of the newest gap between arrivals, as a part.
const GAP_PART: u64 = 8;
/// Between two looks further apart than this, nothing is known of what ran.
const LOOK_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// The last look.
    last: Option<Look>,
    /// When the newest of the bins began.
    bin_from: Timestamp,
    /// What came, oldest first. Below nothing when some were taken away.
    bins: VecDeque<i64>,
    /// Of the last tasks: how long they kept servers busy, and how many ended.
    busy_ms: u64,
    done: u64,
    came_at: Option<Timestamp>,
    gap_ms: Option<u64>,
    /// When a worker was last needed.
    needed_at: Option<Timestamp>,
    slot: Option<Slot>,
    /// By part of the day: what came on the last day, and in the mean of days, in tasks an hour.
    days: Vec<Option<[u32; 2]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Look {
    at: Timestamp,
    open: u64,
    ended: u64,
}

/// The part of the day that is under way, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    number: i64,
    came: i64,
    /// Since when it has been watched.
    from: Timestamp,
}

/// Tasks a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// What goes on: of the two halves of what is remembered, the lesser. A single burst is no rate.
    pub steady: f64,
    /// More than this do not come, as far as chance allows to say.
    pub at_most: f64,
}

impl Pace {
    /// To be told of each look. Without a count of what ended nothing is learned.
    pub fn see(&mut self, tasks: &Tasks, now: Timestamp) {
        let Some(ended) = tasks.ended else { return };
        let look = Look { at: now, open: tasks.ready.saturating_add(tasks.running), ended };
        let before = self.last.replace(look);
        self.roll(now);
        // The first look, or another owner, which counts anew: what is there was there before.
        let Some(before) = before.filter(|before| before.ended <= ended) else { return };
        let done = ended - before.ended;
        let came = look.open as i64 - before.open as i64 + done as i64;
        if let Some(bin) = self.bins.back_mut() {
            *bin = bin.saturating_add(came);
        }
        if let Some(slot) = &mut self.slot {
            slot.came = slot.came.saturating_add(came);
        }
        if came > 0 {
            if let Some(at) = self.came_at {
                let gap = u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
                let mean = self.gap_ms.unwrap_or(gap);
                self.gap_ms = Some(mean - mean / GAP_PART + gap / GAP_PART);
            }
            self.came_at = Some(now);
        }
        let span = now.since(before.at).min(LOOK_MAX);
        let busy = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).saturating_mul(tasks.running);
        self.busy_ms = self.busy_ms.saturating_add(busy);
        self.done = self.done.saturating_add(done);
        while self.done > DONE_MAX {
            (self.busy_ms, self.done) = (self.busy_ms / 2, self.done / 2);
        }
    }

    pub fn is_blank(&self) -> bool {
        *self == Self::default()
    }

    /// What one takes, in seconds: all the time that servers were busy, what still runs included, over what ended. What is
    /// said beforehand counts as one task.
    pub fn task_s(&self, said: Duration) -> f64 {
        ((self.busy_ms as f64 / 1_000.0 + said.as_secs_f64()) / (self.done as f64 + 1.0)).max(0.001)
    }

    /// The same, once so many have ended that it is known without anybody's word.
    pub fn task_takes(&self) -> Option<Duration> {
        (self.done >= KNOWN_MIN).then(|| Duration::from_millis(self.busy_ms / self.done))
    }

    /// By what share it may be longer, as far as chance allows to say. Durations vary about as much as they are long.
    pub fn task_doubt(&self) -> f64 {
        DOUBT / (self.done as f64 + 1.0).sqrt()
    }

    pub fn rate(&self, now: Timestamp) -> Rate {
        let newest_s = now.since(self.bin_from).as_secs_f64();
        let bin_s = BIN.as_secs_f64();
        let span = |bins: usize| newest_s + bin_s * (bins.max(1) - 1) as f64;
        let count = |bins: usize| self.bins.iter().rev().take(bins).sum::<i64>().max(0) as f64;
        let all = self.bins.len();
        if all < 3 {
            return Rate { steady: 0.0, at_most: f64::INFINITY };
        }
        let half = all / 2;
        let (late, early) = (count(half), (count(all) - count(half)).max(0.0));
        let steady = (late / span(half)).min(early / (span(all) - span(half)));
        let bound = |bins: usize| (count(bins) + DOUBT * count(bins).sqrt() + DOUBT * DOUBT / 2.0) / span(bins);
        // A bin that has only begun says nothing.
        let at_most = (2..=all).map(bound).fold(f64::INFINITY, f64::min);
        Rate { steady, at_most }
    }

    /// Tasks a second at the same hour of past days: of the last one and their mean, the lesser.
    pub fn past(&self, at: Timestamp) -> Option<f64> {
        let slot = at.0.div_euclid(SLOT_MS).rem_euclid(SLOTS as i64) as usize;
        let [last, mean] = (*self.days.get(slot)?)?;
        Some(f64::from(last.min(mean)) / 3_600.0)
    }

    /// Between arrivals, in the mean.
    pub fn gap(&self) -> Option<Duration> {
        self.gap_ms.map(Duration::from_millis)
    }

    pub fn needed(&mut self, now: Timestamp) {
        self.needed_at = Some(now);
    }

    /// For how long no worker has been needed. Whoever takes over without a history needed one just now.
    pub fn not_needed_for(&mut self, now: Timestamp) -> Duration {
        now.since(*self.needed_at.get_or_insert(now))
    }

    pub fn forget_the_future(&mut self, now: Timestamp) {
        let times = [self.came_at.as_mut(), self.needed_at.as_mut(), self.last.as_mut().map(|last| &mut last.at)];
        times.into_iter().flatten().for_each(|at| *at = (*at).min(now));
        self.bin_from = self.bin_from.min(now);
        if self.slot.is_some_and(|slot| slot.from > now) {
            self.slot = None;
        }
    }

    fn roll(&mut self, now: Timestamp) {
        let bin_ms = BIN.as_millis() as i64;
        let passed = (now.0 - self.bin_from.0) / bin_ms;
        if self.bins.is_empty() || passed > 2 * BINS as i64 {
            self.bins.clear();
            self.bins.push_back(0);
            self.bin_from = now;
        } else {
            for _ in 0..passed {
                self.bins.push_back(0);
            }
            self.bin_from = Timestamp(self.bin_from.0 + passed * bin_ms);
        }
        while self.bins.len() > BINS {
            self.bins.pop_front();
        }
        let number = now.0.div_euclid(SLOT_MS);
        let slot = *self.slot.get_or_insert(Slot { number, came: 0, from: now });
        if slot.number != number {
            // Nothing is concluded from a part of the day that was seen in part.
            let whole = slot.from.0 - slot.number * SLOT_MS < SLOT_MS / 10;
            if whole && number == slot.number + 1 {
                self.keep(slot);
            }
            self.slot = Some(Slot { number, came: 0, from: now });
        }
    }

    fn keep(&mut self, slot: Slot) {
        self.days.resize(SLOTS, None);
        let an_hour = slot.came.max(0).saturating_mul(3_600_000 / SLOT_MS);
        let last = u32::try_from(an_hour).unwrap_or(u32::MAX);
        let day = &mut self.days[slot.number.rem_euclid(SLOTS as i64) as usize];
        let mean = day.map_or(last, |[_, mean]| ((u64::from(mean) + u64::from(last)) / 2) as u32);
        *day = Some([last, mean]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(pace: &mut Pace, s: u64, ready: u64, running: u64, ended: u64) {
        let tasks = Tasks { ready, running, ended: Some(ended), ..Tasks::default() };
        pace.see(&tasks, Timestamp(0).plus(Duration::from_secs(s)));
    }

    #[test]
    fn what_comes_and_what_one_takes_follow_from_three_counts() {
        let mut pace = Pace::default();
        // One every ten seconds, each runs twenty: two at a time.
        for s in 0..1_200 {
            look(&mut pace, s, 0, 2, s / 10);
        }
        let now = Timestamp(1_199_000);
        let task = pace.task_s(Duration::from_secs(60));
        assert!((19.0..21.5).contains(&task), "{task}");
        let rate = pace.rate(now);
        assert!((0.09..=0.101).contains(&rate.steady), "{rate:?}");
        assert!((0.1..0.2).contains(&rate.at_most), "{rate:?}");
        assert_eq!(pace.gap().map(|gap| gap.as_secs()), Some(10));
    }

    #[test]
    fn a_burst_is_no_rate_and_is_soon_known_to_be_over() {
        let mut pace = Pace::default();
        for s in 0..900 {
            look(&mut pace, s, if s < 600 { 0 } else { 500 }, 0, 0);
        }
        let rate = pace.rate(Timestamp(899_000));
        assert_eq!(rate.steady, 0.0);
        assert!(rate.at_most < 0.02, "{rate:?}");
    }

    #[test]
    fn a_task_that_does_not_end_is_known_to_be_long() {
        let mut pace = Pace::default();
        for s in 0..3_600 {
            look(&mut pace, s, 0, 1, 0);
        }
        assert!(pace.task_s(Duration::from_secs(60)) > 3_600.0);
    }

    #[test]
    fn the_same_hour_of_past_days_is_remembered_and_one_odd_day_forgotten() {
        let mut pace = Pace::default();
        let (mut ended, day) = (0, 86_400);
        for n in 0..4 {
            for s in (0..day).step_by(20) {
                // From nine to ten, one a second; on the third day from twenty to 21 hours too.
                let busy = (32_400..36_000).contains(&s) || (n == 2 && (72_000..75_600).contains(&s));
                ended += if busy { 20 } else { 0 };
                look(&mut pace, n * day + s, 0, 0, ended);
            }
        }
        let hour = |h: u64| pace.past(Timestamp(0).plus(Duration::from_secs(4 * day + h * 3_600 + 1_000)));
        assert!((0.9..1.1).contains(&hour(9).unwrap()), "{:?}", hour(9));
        assert_eq!((hour(20), hour(3)), (Some(0.0), Some(0.0)));
        assert_eq!(Pace::default().past(Timestamp(0)), None, "no history is not the same as none");
    }

    #[test]
    fn another_owner_counts_anew_and_nothing_came_of_it() {
        let mut pace = Pace::default();
        look(&mut pace, 0, 5, 5, 900);
        look(&mut pace, 1, 5, 5, 0);
        look(&mut pace, 2, 6, 5, 0);
        assert_eq!(pace.bins, [1]);
    }
}
