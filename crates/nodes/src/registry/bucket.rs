//! So many at once, then one every so often.

use std::time::Duration;

use mutirao_core::Mono;

#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    burst: u32,
    every: Duration,
    left: f64,
    at: Mono,
}

impl Bucket {
    pub fn full(burst: u32, every: Duration, now: Mono) -> Self {
        Self { burst, every: every.max(Duration::from_micros(1)), left: f64::from(burst), at: now }
    }

    /// What was taken was of no use.
    pub fn give_back(&mut self) {
        self.left = (self.left + 1.0).min(f64::from(self.burst));
    }

    pub fn take(&mut self, now: Mono) -> bool {
        let refilled = now.since(self.at).as_secs_f64() / self.every.as_secs_f64();
        self.left = (self.left + refilled).min(f64::from(self.burst));
        self.at = self.at.max(now);
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }
}
