//! How many tasks of a queue may be out, by what its owner knows: a reckoning of its own, to hold `jobs::desk::window` to.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::Mono;

#[derive(Default)]
pub struct WindowCheck {
    completions: VecDeque<(Duration, u64)>,
}

impl WindowCheck {
    /// What ended longer ago than this weighs nothing any more.
    const MEMORY: Duration = Duration::from_secs(60);
    /// The window looks this far ahead.
    const HORIZON_S: f64 = 0.15;

    pub fn completed(&mut self, at: Mono, tasks: u64) {
        self.completions.push_back((at.0, tasks));
    }

    /// The most that may be out for workers with this many slots and sessions.
    pub fn most(&mut self, slots: usize, sessions: usize, now: Mono) -> usize {
        while self.completions.front().is_some_and(|(at, _)| now.0.saturating_sub(*at) > Self::MEMORY) {
            self.completions.pop_front();
        }
        // A fresh completion weighs at most five a second in the measured rate. An older one has faded, unless nobody
        // looked at the rate since: then it is spread over all that time.
        let weight = |age: Duration| if age < Duration::from_secs(2) { 5.0 } else { 1.0 / age.as_secs_f64() };
        let rate_per_s: f64 =
            self.completions.iter().map(|(at, n)| *n as f64 * weight(now.0.saturating_sub(*at))).sum();
        slots + sessions + (rate_per_s * Self::HORIZON_S) as usize + 1
    }
}
