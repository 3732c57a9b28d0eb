//! The clocks of one simulated machine. Monotonic time runs at the machine's own rate, also while a process is frozen or
//! the machine suspended; wall time can be stepped.

use std::time::Duration;

use mutirao_core::{Mono, Timestamp};
use mutirao_jobs::desk::Now;

/// Where wall clocks begin.
const EPOCH_MS: i64 = 1_700_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct LocalClock {
    /// Local seconds to a real one.
    rate: f64,
    booted_us: u64,
    stepped_ms: i64,
}

impl LocalClock {
    pub fn new(rate: f64, booted_us: u64) -> Self {
        Self { rate, booted_us, stepped_ms: 0 }
    }

    pub fn at(&self, real_us: u64) -> Now {
        let local_us = (real_us.saturating_sub(self.booted_us) as f64 * self.rate) as u64;
        let wall_ms = EPOCH_MS + ((self.booted_us + local_us) / 1_000) as i64 + self.stepped_ms;
        Now { wall: Timestamp(wall_ms), mono: Mono(Duration::from_micros(local_us)) }
    }

    pub fn step(&mut self, by_ms: i64) {
        self.stepped_ms += by_ms;
    }
}
