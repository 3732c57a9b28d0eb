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
    const MEMORY: Duration = Duration::from_secs(2);

    pub fn completed(&mut self, at: Mono, tasks: u64) {
        self.completions.push_back((at.0, tasks));
    }

    /// The most that may be out for workers with this many slots and sessions.
    pub fn most(&mut self, slots: usize, sessions: usize, now: Mono) -> usize {
        while self.completions.front().is_some_and(|(at, _)| now.0.saturating_sub(*at) > Self::MEMORY) {
            self.completions.pop_front();
        }
        // A completion weighs at most five a second in the measured rate, for a horizon of 0.15 s.
        let recent: u64 = self.completions.iter().map(|(_, n)| n).sum();
        slots + sessions + (recent as f64 * 0.75) as usize + 1
    }
}
