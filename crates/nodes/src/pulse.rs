//! When a manager says that it is there: first a little after it began and asking everybody to register, then at a steady
//! pace, asking again every so many times, so that whoever was missed, moved or changed is known within a minute.
//!
//! Nodes pass over a beat whose `ts` they have seen. So no two beats of a manager have the same, whatever its clock does.

use std::time::Duration;

use mutirao_core::{Mono, Timestamp};

use crate::wire::Heartbeat;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub first_after: Duration,
    pub every: Duration,
    /// Each of this many asks all to register.
    pub force_every: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first_after: Duration::from_millis(2_500), every: Duration::from_secs(5), force_every: 10 }
    }
}

impl Pace {
    /// How long a healthy node may not be heard of: it registers whenever it is asked to.
    pub fn asked_within(&self) -> Duration {
        self.every.saturating_mul(self.force_every.max(1))
    }
}

#[derive(Debug)]
pub struct Pulse {
    pace: Pace,
    next: Mono,
    sent: u64,
    last_ts: i64,
}

impl Pulse {
    pub fn starting(pace: Pace, now: Mono) -> Self {
        Self { pace, next: now.plus(pace.first_after), sent: 0, last_ts: 0 }
    }

    pub fn wake_at(&self) -> Mono {
        self.next
    }

    /// The beat that is due. Those that were missed while we stood still are not made up for.
    pub fn beat(&mut self, now: Mono, wall: Timestamp) -> Option<Heartbeat> {
        if now < self.next {
            return None;
        }
        let missed = now.since(self.next) >= self.pace.every;
        self.next = if missed { now.plus(self.pace.every) } else { self.next.plus(self.pace.every) };
        let force_register = self.sent.is_multiple_of(u64::from(self.pace.force_every.max(1))) || missed;
        self.sent += 1;
        self.last_ts = wall.0.max(self.last_ts + 1);
        Some(Heartbeat { available: true, force_register, ts: self.last_ts, schema: Heartbeat::SCHEMA })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    #[test]
    fn the_first_comes_after_two_and_a_half_seconds_and_every_tenth_asks_to_register() {
        let mut pulse = Pulse::starting(Pace::default(), at(0));
        assert_eq!(pulse.beat(at(2_499), Timestamp(1)), None);
        let mut seen = Vec::new();
        for ms in (0..110_000).step_by(100) {
            if let Some(beat) = pulse.beat(at(ms), Timestamp(ms as i64)) {
                seen.push((ms, beat.force_register));
            }
        }
        let forced: Vec<u64> = seen.iter().filter(|(_, forced)| *forced).map(|(ms, _)| *ms).collect();
        assert_eq!(forced, [2_500, 52_500, 102_500]);
        assert!(seen.windows(2).all(|two| two[1].0 - two[0].0 == 5_000));
    }

    #[test]
    fn no_two_beats_look_alike_though_the_clock_is_set_back() {
        let mut pulse = Pulse::starting(Pace::default(), at(0));
        let mut last = 0;
        for (n, wall) in [9_000, 1_000, 1_000, 500, 20_000].into_iter().enumerate() {
            let beat = pulse.beat(at(2_500 + 5_000 * n as u64), Timestamp(wall)).unwrap();
            assert!(beat.ts > last);
            last = beat.ts;
        }
    }

    #[test]
    fn who_stood_still_asks_once_and_does_not_make_up_for_what_it_missed() {
        let mut pulse = Pulse::starting(Pace::default(), at(0));
        pulse.beat(at(2_500), Timestamp(1));
        let beat = pulse.beat(at(600_000), Timestamp(2)).unwrap();
        assert!(beat.force_register, "many may have come and gone");
        assert_eq!(pulse.beat(at(600_001), Timestamp(3)), None);
        assert_eq!(pulse.wake_at(), at(605_000));
    }
}
