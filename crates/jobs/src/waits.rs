//! How long tasks wait between their handing out and their start, found out from one task of each parcel: enough for a
//! histogram, and nothing to do for the others.

use std::collections::HashMap;
use std::time::Duration;

use mutirao_core::{Attempt, TaskKey, Timestamp};
use parking_lot::Mutex;

/// Tasks that are followed at the same time. When they are more, all are forgotten: those whose outcome never comes
/// would fill it up otherwise.
const FOLLOWED_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub struct Waits(Mutex<HashMap<(TaskKey, Attempt), Timestamp>>);

impl Waits {
    pub fn follow(&self, task: TaskKey, attempt: Attempt, handed_out_at: Timestamp) {
        let mut followed = self.0.lock();
        if followed.len() >= FOLLOWED_MAX {
            followed.clear();
        }
        followed.insert((task, attempt), handed_out_at);
    }

    /// How long each of these had waited, as far as they were followed. Clocks of machines differ: none is negative.
    pub fn of(&self, started: impl IntoIterator<Item = (TaskKey, Attempt, Timestamp)>) -> Vec<Duration> {
        let mut followed = self.0.lock();
        if followed.is_empty() {
            return Vec::new();
        }
        let waited = |(task, attempt, at): (TaskKey, Attempt, Timestamp)| {
            followed.remove(&(task, attempt)).map(|handed_out_at| at.since(handed_out_at))
        };
        started.into_iter().filter_map(waited).collect()
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::JobKey;

    use super::*;

    #[test]
    fn each_followed_attempt_is_told_once_and_a_clock_that_is_behind_means_no_wait() {
        let waits = Waits::default();
        let task = |index| TaskKey { job: JobKey(1), index };
        let attempt = Attempt { generation: 1, n: 1 };
        waits.follow(task(1), attempt, Timestamp(1_000));
        waits.follow(task(2), attempt, Timestamp(1_000));
        let started = [
            (task(1), attempt, Timestamp(1_250)),
            (task(2), attempt, Timestamp(900)),
            (task(3), attempt, Timestamp(5)),
        ];
        assert_eq!(waits.of(started), [Duration::from_millis(250), Duration::ZERO]);
        assert!(waits.of(started).is_empty());
    }

    #[test]
    fn tasks_that_never_report_do_not_pile_up() {
        let waits = Waits::default();
        for n in 0..10 * FOLLOWED_MAX as u32 {
            waits.follow(TaskKey { job: JobKey(1), index: n }, Attempt::default(), Timestamp(0));
        }
        assert!(waits.0.lock().len() <= FOLLOWED_MAX);
    }
}
