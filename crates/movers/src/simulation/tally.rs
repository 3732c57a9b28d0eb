//! What is counted.

use crate::round::Round;

/// Latencies by their size: buckets a hundredth apart.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    buckets: Vec<u64>,
    sum_s: f64,
    count: u64,
}

const LEAST_S: f64 = 1e-5;
const STEP: f64 = 1.01;

impl Histogram {
    pub fn add(&mut self, seconds: f64) {
        let bucket = ((seconds / LEAST_S).max(1.0).ln() / STEP.ln()) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.sum_s += seconds;
        self.count += 1;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn mean_ms(&self) -> f64 {
        self.sum_s / self.count.max(1) as f64 * 1_000.0
    }

    /// Right to within a hundredth.
    pub fn percentile_ms(&self, share: f64) -> f64 {
        let wanted = (share * self.count as f64).ceil() as u64;
        let mut passed = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            passed += count;
            if passed >= wanted {
                return LEAST_S * STEP.powi(bucket as i32) * 1_000.0;
            }
        }
        0.0
    }
}

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Of each event the copy that came first, and the one that came last.
    pub fast: Histogram,
    pub slow: Histogram,
    pub moves: u32,
    /// Moves that came to nothing, because the target was lost or never caught up.
    pub failed: u32,
    /// Events whose first copy was done, and that were said at all.
    pub processed: u64,
    pub said: u64,
    pub rounds: Vec<Round>,
    /// Mean latency of first and of last copies in each second, in milliseconds.
    pub course: Vec<(f64, f64)>,
    /// Rounds that asked for a host.
    pub asked: u32,
}
