//! How far the count may move: changes of the past, and the rates that limit the next. As in Kubernetes, a rate counts from
//! what there was when its period began, so changes within the period, up and down, are taken back first.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::policy::{Rate, Rules, Select, Step};

/// Into how many parts the longest period is cut; changes of one part are folded into one.
const PARTS: u32 = 240;

/// By how much the count was changed, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Turns {
    turns: VecDeque<Turn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Turn {
    from: Timestamp,
    at: Timestamp,
    by: i64,
}

impl Turns {
    pub fn note(&mut self, was: u32, is: u32, now: Timestamp, keep: Duration) {
        let by = i64::from(is) - i64::from(was);
        self.turns.retain(|turn| now.since(turn.at) < keep);
        match self.turns.back_mut() {
            Some(last) if now.since(last.from) < keep / PARTS => {
                *last = Turn { from: last.from, at: now, by: last.by + by }
            }
            _ if keep.is_zero() => {}
            _ => self.turns.push_back(Turn { from: now, at: now, by }),
        }
    }

    pub fn forget_the_future(&mut self, now: Timestamp) {
        for turn in &mut self.turns {
            turn.from = turn.from.min(now);
            turn.at = turn.at.min(now);
        }
    }

    /// What there was when the period began.
    fn at_the_start(&self, current: u32, now: Timestamp, period: Duration) -> i64 {
        let changed: i64 = self.turns.iter().filter(|turn| now.since(turn.at) < period).map(|turn| turn.by).sum();
        i64::from(current) - changed
    }
}

/// The most there may be now.
pub fn up_to(rules: &Rules, turns: &Turns, current: u32, now: Timestamp) -> u32 {
    // Rounded up: a small count must be able to grow by a small percentage.
    let after = |rate: &Rate, start: i64| match rate.step {
        Step::Count(count) => start + i64::from(count),
        Step::Percent(percent) => (start as f64 * (1.0 + f64::from(percent) / 100.0)).ceil() as i64,
    };
    let reach = rules.policies.iter().map(|rate| after(rate, turns.at_the_start(current, now, rate.per.0)));
    let limit = match rules.select {
        Select::Disabled => None,
        Select::Max => reach.max(),
        Select::Min => reach.min(),
    };
    as_count(limit.unwrap_or(i64::from(current))).max(current)
}

/// The fewest there may be now.
pub fn down_to(rules: &Rules, turns: &Turns, current: u32, now: Timestamp) -> u32 {
    let after = |rate: &Rate, start: i64| match rate.step {
        Step::Count(count) => start - i64::from(count),
        Step::Percent(percent) => (start as f64 * (1.0 - f64::from(percent) / 100.0)) as i64,
    };
    let reach = rules.policies.iter().map(|rate| after(rate, turns.at_the_start(current, now, rate.per.0)));
    // The largest change down is the smallest count.
    let limit = match rules.select {
        Select::Disabled => None,
        Select::Max => reach.min(),
        Select::Min => reach.max(),
    };
    as_count(limit.unwrap_or(i64::from(current))).min(current)
}

fn as_count(count: i64) -> u32 {
    count.clamp(0, i64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutirao_core::quantity::Span;

    const NOW: Timestamp = Timestamp(1_000_000);

    /// Changes spread evenly over the last `span_s`, as the source's own tests have them.
    fn turns(changes: &[i64], span_s: i64) -> Turns {
        let mut turns = Turns::default();
        let step_ms = span_s * 1_000 / (changes.len() as i64 + 1);
        for (i, by) in changes.iter().enumerate() {
            let at = Timestamp(NOW.0 - span_s * 1_000 + step_ms * (i as i64 + 1));
            turns.turns.push_back(Turn { from: at, at, by: *by });
        }
        turns
    }

    fn rules(count: u32, count_per_s: u64, percent: u32, percent_per_s: u64) -> Rules {
        let mut policies = Vec::new();
        if count > 0 {
            policies.push(Rate::count(count, Span::secs(count_per_s)));
        }
        if percent > 0 {
            policies.push(Rate::percent(percent, Span::secs(percent_per_s)));
        }
        Rules::up().policies(policies)
    }

    #[test]
    fn going_up_is_limited_as_in_kubernetes() {
        for (rules, past, current, limit) in [
            (rules(30, 60, 0, 0), turns(&[], 120), 10, 40),
            (rules(0, 0, 200, 60), turns(&[], 120), 10, 30),
            (rules(0, 0, 700, 60), turns(&[], 120), 3, 24),
            (rules(150, 120, 0, 0), turns(&[1, 5, 9], 120), 100, 235),
            (rules(0, 0, 200, 120), turns(&[1, 5, 9], 120), 100, 255),
            (rules(5, 120, 0, 0), turns(&[1, 5, 9], 120), 100, 100),
            (rules(0, 0, 300, 300), turns(&[4, -2], 120), 6, 16),
        ] {
            assert_eq!(up_to(&rules, &past, current, NOW), limit, "{rules:?} {past:?}");
        }
    }

    #[test]
    fn going_down_is_limited_as_in_kubernetes() {
        for (rules, past, current, limit) in [
            (rules(20, 60, 1, 60), turns(&[], 120), 100, 80),
            (rules(2, 60, 1, 60), turns(&[], 120), 100, 98),
            (rules(5, 60, 0, 0), turns(&[], 120), 10, 5),
            (rules(0, 0, 50, 60), turns(&[], 120), 10, 5),
            (rules(5, 120, 0, 0), turns(&[-1, -5, -9], 120), 100, 100),
            (rules(0, 0, 50, 120), turns(&[-2, -4, -6], 120), 100, 56),
            (rules(0, 0, 50, 180), turns(&[2, -4], 120), 10, 6),
            (rules(0, 0, 10, 120), turns(&[-10, -10, -10], 120), 100, 100),
            (rules(0, 0, 1000, 120), turns(&[-10, -10, -10], 120), 10, 0),
            (rules(130, 120, 0, 0), turns(&[-1, -5, -9], 120), 100, 0),
        ] {
            assert_eq!(down_to(&rules, &past, current, NOW), limit, "{rules:?} {past:?}");
        }
    }

    #[test]
    fn the_selected_rate_counts() {
        let both = rules(4, 60, 50, 60);
        let selected = |select| Rules { select, ..both.clone() };
        let none = Turns::default();
        assert_eq!(up_to(&selected(Select::Max), &none, 20, NOW), 30);
        assert_eq!(up_to(&selected(Select::Min), &none, 20, NOW), 24);
        assert_eq!(up_to(&selected(Select::Disabled), &none, 20, NOW), 20);
        assert_eq!(down_to(&selected(Select::Max), &none, 20, NOW), 10);
        assert_eq!(down_to(&selected(Select::Min), &none, 20, NOW), 16);
        assert_eq!(down_to(&selected(Select::Disabled), &none, 20, NOW), 20);
    }

    #[test]
    fn changes_are_forgotten_after_the_longest_period_and_folded_before() {
        let keep = Duration::from_secs(60);
        let mut turns = Turns::default();
        for i in 0..100_000 {
            turns.note(10, 11, Timestamp(i * 10), keep);
        }
        assert!(turns.turns.len() <= PARTS as usize + 2, "{}", turns.turns.len());
        turns.note(10, 12, Timestamp(100_000_000), keep);
        assert_eq!(turns.turns.len(), 1);
    }
}
