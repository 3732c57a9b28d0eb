//! When a monitor fires: at the instants `phase + k × every` of the calendar, for all k, whoever asks and whenever it began
//! to run. So nothing drifts, a successor goes on where its predecessor stopped, and an instant names a firing.
//!
//! The phase is taken from the monitor's identity, so that thousands with one interval are spread over it evenly, and stay
//! where they are.

use std::fmt;
use std::time::Duration;

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A monitor's key in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonitorKey(pub u64);

impl fmt::Display for MonitorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// The instants of one monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    every_ms: u64,
    phase_ms: u64,
}

impl Grid {
    /// Nothing fires more often.
    pub const EVERY_MIN: Duration = Duration::from_secs(1);
    /// Nor more seldom.
    pub const EVERY_MAX: Duration = Duration::from_secs(366 * 86_400);

    /// `uuid`: what identifies the monitor for good, also after it was moved to another installation. An interval out of
    /// bounds is taken to the nearer bound; definitions with one are refused before they come here.
    pub fn new(uuid: &str, every: Duration) -> Self {
        let every_ms = every.clamp(Self::EVERY_MIN, Self::EVERY_MAX).as_millis() as u64;
        let digest = Sha256::digest(uuid.as_bytes());
        let spread = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        Self { every_ms, phase_ms: spread % every_ms }
    }

    pub fn every_ms(&self) -> u64 {
        self.every_ms
    }

    pub fn phase_ms(&self) -> u64 {
        self.phase_ms
    }

    /// The first instant after a moment.
    pub fn after(&self, moment: Timestamp) -> Timestamp {
        let every = self.every_ms as i64;
        let past = (moment.0 - self.phase_ms as i64).rem_euclid(every);
        Timestamp(moment.0 + every - past)
    }

    /// How many instants lie in a time, its end not included.
    pub fn count(&self, from: Timestamp, until: Timestamp) -> u64 {
        let first = self.after(Timestamp(from.0 - 1));
        let past = until.0 - first.0;
        if past <= 0 { 0 } else { (past as u64).div_ceil(self.every_ms) }
    }

    /// The last instant that is not after a moment.
    pub fn at_or_before(&self, moment: Timestamp) -> Timestamp {
        Timestamp(self.after(moment).0 - self.every_ms as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_lie_on_the_grid_whoever_asks() {
        let grid = Grid::new("0b5c1f7e-8a53-4d27-9d3c-3f6f6c9f7a01", Duration::from_secs(30));
        let first = grid.after(Timestamp(1_800_000_000_000));
        assert!(first.0 - 1_800_000_000_000 <= 30_000);
        assert_eq!(grid.after(first), Timestamp(first.0 + 30_000));
        assert_eq!(
            (grid.at_or_before(first), grid.at_or_before(Timestamp(first.0 - 1))),
            (first, Timestamp(first.0 - 30_000))
        );
        assert_eq!(first.0 as u64 % 30_000, grid.phase_ms());
        let count = |from: i64, until: i64| grid.count(Timestamp(first.0 + from), Timestamp(first.0 + until));
        assert_eq!((count(0, 0), count(0, 1), count(0, 30_000), count(0, 30_001)), (0, 1, 1, 2));
        assert_eq!((count(1, 30_000), count(-60_000, 30_000), count(5, 1)), (0, 3, 0));
    }

    #[test]
    fn phases_are_spread_over_the_interval() {
        let tenths = (0..10_000).fold([0u32; 10], |mut tenths, n| {
            let grid = Grid::new(&format!("monitor-{n}"), Duration::from_secs(60));
            tenths[(grid.phase_ms() / 6_000) as usize] += 1;
            tenths
        });
        assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
    }
}
