//! The time of day in microseconds. The clock tells milliseconds; how far within one it is, the clock that does not jump says,
//! held between what the other one says before and after.

use std::sync::Arc;

use mutirao_core::{Clock, Mono};
use parking_lot::Mutex;

pub struct Wall {
    clock: Arc<dyn Clock>,
    /// What the steady clock lacks to the time of day.
    ahead_us: Mutex<i64>,
}

impl Wall {
    pub fn of(clock: Arc<dyn Clock>) -> Self {
        let ahead_us = clock.now().0 * 1_000 - steady(&*clock);
        Self { clock, ahead_us: Mutex::new(ahead_us) }
    }

    pub fn now_us(&self) -> i64 {
        let (wall, steady) = (self.clock.now().0 * 1_000, steady(&*self.clock));
        let mut ahead_us = self.ahead_us.lock();
        let now = (steady + *ahead_us).clamp(wall, wall + 999);
        *ahead_us = now - steady;
        now
    }
}

/// Whether the time of day was set since it was looked at last: it went on by something else than time passed.
#[derive(Debug, Default)]
pub struct Steps {
    ahead_us: Option<i64>,
}

/// A clock that is drawn nearer, slowly, is not set.
const STEP_US: i64 = 250_000;

impl Steps {
    pub fn look(&mut self, now_us: i64, steady: Mono) -> bool {
        let ahead_us = now_us.saturating_sub(micros(steady));
        let before = self.ahead_us.replace(ahead_us);
        before.is_some_and(|before| ahead_us.abs_diff(before) >= STEP_US as u64)
    }
}

fn steady(clock: &dyn Clock) -> i64 {
    micros(clock.monotonic())
}

fn micros(at: Mono) -> i64 {
    i64::try_from(at.0.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mutirao_core::Timestamp;
    use mutirao_core::clock::ManualClock;

    use super::*;

    #[test]
    fn it_is_never_off_by_more_than_a_millisecond_and_follows_jumps() {
        let clock = ManualClock::starting_at(Timestamp(1_700_000_000_000));
        let wall = Wall::of(clock.clone());
        for _ in 0..1_000 {
            clock.advance(Duration::from_micros(1_300));
            let now = wall.now_us();
            assert!((0..1_000).contains(&(now - clock.now().0 * 1_000)), "{now}");
        }
        clock.step_wall_ms(-5_000_000);
        assert_eq!(wall.now_us() / 1_000, clock.now().0);
    }
    #[test]
    fn a_clock_that_is_set_is_noticed_once_and_one_that_is_only_slow_or_looked_at_late_is_not() {
        let clock = ManualClock::starting_at(Timestamp(1_700_000_000_000));
        let mut steps = Steps::default();
        let mut look = || steps.look(clock.now().0 * 1_000, clock.monotonic());
        assert!(!look());
        clock.advance(Duration::from_secs(3_600));
        assert!(!look(), "time passed");
        clock.step_wall_ms(30);
        assert!(!look(), "it was drawn nearer");
        for by_ms in [3_600_000, -3_600_000] {
            clock.step_wall_ms(by_ms);
            assert!(look() && !look());
        }
    }
}
