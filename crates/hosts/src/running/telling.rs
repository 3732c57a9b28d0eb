//! How far a part is, announced to those who append to its log: several times a second while it moves, and each second anyway.
//! With it, how long events took through them.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::part::Facts;
use mutirao_streams::wire::{Part, Progress, progress_of};

use super::{Job, Means};
use crate::measure::latency::Latencies;

/// While it moves.
const OFTEN: Duration = Duration::from_millis(200);
const ANYWAY: Duration = Duration::from_secs(1);
/// How much one record of late counts for the average.
const WEIGHT: f64 = 0.05;

pub struct Telling {
    part: Part,
    topic: String,
    means: Means,
    told: Option<(u64, u64)>,
    told_at: Mono,
    latencies: Latencies,
    latencies_at: Mono,
    record_bytes: f64,
}

impl Telling {
    pub fn of(job: &Job) -> Self {
        let now = job.means.clock.monotonic();
        Self {
            part: job.part.clone(),
            topic: progress_of(&job.part.stream),
            means: job.means.clone(),
            told: None,
            told_at: now,
            latencies: Latencies::default(),
            latencies_at: now,
            record_bytes: 0.0,
        }
    }

    pub fn heard(&mut self, bytes: usize, facts: Option<&Facts>, now_us: i64) {
        let weight = if self.record_bytes == 0.0 { 1.0 } else { WEIGHT };
        self.record_bytes += (bytes as f64 - self.record_bytes) * weight;
        if let Some(facts) = facts
            && let Some(what) = facts.from
        {
            self.latencies.add(&self.part.stream, what, facts, now_us);
        }
    }

    /// Says how far it is, if it is time to. It waits for nobody.
    pub fn tell(&mut self, needed: u64, next: u64) {
        let now = self.means.clock.monotonic();
        let passed = now.since(self.told_at);
        let moved = self.told != Some((needed, next));
        if self.told.is_some() && passed < if moved { OFTEN } else { ANYWAY } {
            return;
        }
        (self.told, self.told_at) = (Some((needed, next)), now);
        let mut latencies = Vec::new();
        if now.since(self.latencies_at) >= ANYWAY {
            (latencies, self.latencies_at) = (self.latencies.take(), now);
        }
        let record_bytes = self.record_bytes as u64;
        let progress = Progress { reader: self.part.clone(), needed, next, record_bytes, latencies };
        let Ok(bytes) = postcard::to_stdvec(&progress) else { return };
        let (means, topic) = (self.means.clone(), self.topic.clone());
        // It is said again soon; who does not hear it now is not waited for.
        tokio::spawn(async move { means.broker.announce(&topic, bytes.into()).await });
    }
}
