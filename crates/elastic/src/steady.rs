//! Time for decisions: a wall clock that does not jump. Windows and periods must survive a restart, so they are kept as
//! wall time; but a wall clock that is set an hour ahead would end every window at once. So a process reads the wall once and
//! counts on from there by the monotonic clock.
//!
//! Between two processes it may still step back; [`State`](crate::State) and [`Fleet`](crate::Fleet) then take what seems to
//! lie in the future as having happened just now.

use mutirao_core::{Clock, Mono, Timestamp};

#[derive(Clone, Copy, Debug)]
pub struct Steady {
    wall: Timestamp,
    mono: Mono,
}

impl Steady {
    pub fn starting(clock: &dyn Clock) -> Self {
        Self { wall: clock.now(), mono: clock.monotonic() }
    }

    pub fn now(&self, clock: &dyn Clock) -> Timestamp {
        self.wall.plus(clock.monotonic().since(self.mono))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutirao_core::clock::ManualClock;
    use std::time::Duration;

    #[test]
    fn a_wall_clock_that_jumps_moves_no_window() {
        let clock = ManualClock::starting_at(Timestamp(1_000_000));
        let steady = Steady::starting(clock.as_ref());
        clock.step_wall_ms(3_600_000);
        clock.advance(Duration::from_secs(5));
        assert_eq!(steady.now(clock.as_ref()), Timestamp(1_005_000));
        clock.step_wall_ms(-7_200_000);
        assert_eq!(steady.now(clock.as_ref()), Timestamp(1_005_000));
    }
}
