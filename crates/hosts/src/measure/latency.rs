//! How long events take through the parts before a reader, gathered between two announcements. The part with 95 of 100 below it
//! is taken from a histogram whose steps are an eighth apart, so it is right to within an eighth.

use std::collections::BTreeMap;

use mutirao_streams::part::Facts;
use mutirao_streams::wire::{Latency, Part, StreamId, What};

const STEPS: usize = 8;
/// Up to 2^40 µs, which is twelve days.
const BUCKETS: usize = 41 * STEPS;

#[derive(Clone, Debug)]
pub struct Gathered {
    events: u64,
    latency_us: u64,
    wait_us: u64,
    service_us: u64,
    buckets: Vec<u64>,
}

impl Default for Gathered {
    fn default() -> Self {
        Self { events: 0, latency_us: 0, wait_us: 0, service_us: 0, buckets: vec![0; BUCKETS] }
    }
}

impl Gathered {
    /// So many events were read, which took so long.
    pub fn add(&mut self, events: u64, took: mutirao_streams::part::Latency) {
        self.events += events;
        self.latency_us += took.latency_us * events;
        self.wait_us += took.wait_us.min(took.latency_us) * events;
        self.service_us += took.service_us.min(took.latency_us) * events;
        self.buckets[bucket(took.latency_us)] += events;
    }

    pub fn told(&self, of: Part) -> Option<Latency> {
        let events = self.events;
        (events > 0).then(|| Latency {
            of,
            events,
            us_mean: self.latency_us / events,
            us_p95: self.percentile(95),
            wait_us_mean: self.wait_us / events,
            service_us_mean: self.service_us / events,
        })
    }

    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.events * percent).div_ceil(100);
        let mut seen = 0;
        for (n, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(n);
            }
        }
        0
    }
}

/// Steps of an eighth of each power of two.
fn bucket(us: u64) -> usize {
    if us < STEPS as u64 {
        return us as usize;
    }
    let power = us.ilog2() as usize;
    let within = (us >> (power - 3)) as usize - STEPS;
    ((power - 2) * STEPS + within).min(BUCKETS - 1)
}

fn upper(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (power, within) = (bucket / STEPS + 2, bucket % STEPS);
    ((STEPS + within + 1) as u64) << (power - 3)
}

/// Of each of those before it.
#[derive(Debug, Default)]
pub struct Latencies(BTreeMap<(What, u32), Gathered>, Option<StreamId>);

impl Latencies {
    pub fn add(&mut self, stream: &StreamId, what: What, facts: &Facts, now_us: i64) {
        if self.1.is_none() {
            self.1 = Some(stream.clone());
        }
        // A source has nothing before it; what it says has no cause but itself.
        if facts.rows > 0 && facts.times.caused_us > 0 {
            self.0.entry((what, facts.replica)).or_default().add(u64::from(facts.rows), facts.latency(now_us));
        }
    }

    pub fn take(&mut self) -> Vec<Latency> {
        let Some(stream) = self.1.clone() else { return Vec::new() };
        let part = |what, replica| Part { stream: stream.clone(), what, replica };
        let all = std::mem::take(&mut self.0).into_iter();
        all.filter_map(|((what, replica), gathered)| gathered.told(part(what, replica))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_an_eighth() {
        for us in (0..5_000).chain([1 << 20, (1 << 30) + 7, u64::from(u32::MAX) * 16]) {
            let high = upper(bucket(us));
            assert!(high >= us && high <= us + us / 8 + 1, "{us}: {high}");
        }
    }

    #[test]
    fn means_and_the_part_with_95_below_it() {
        let mut gathered = Gathered::default();
        let took = |n| mutirao_streams::part::Latency { latency_us: 2 * n, wait_us: n, service_us: n, whole_us: 0 };
        (1..=100).for_each(|n| gathered.add(1, took(n)));
        let part = Part { stream: StreamId("s".into()), what: What::Stage(0), replica: 0 };
        let told = gathered.told(part).unwrap();
        assert_eq!((told.events, told.us_mean, told.wait_us_mean, told.service_us_mean), (100, 101, 50, 50));
        assert!((190..=214).contains(&told.us_p95), "{}", told.us_p95);
    }
}
