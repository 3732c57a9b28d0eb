//! How many tasks of a queue may start in a second: a bucket that fills with time. It holds a tenth of a second's worth, and
//! at least one, so over any span of T seconds at most `rate × (T + 0.1)` go out, or one more than `rate × T` where the rate
//! is small.

use std::time::Duration;

use mutirao_core::Mono;

const BURST_S: f64 = 0.1;
/// Between two looks at the clock, at most: a rate that somebody wrote past every check must not stop the desk.
const WAIT_MAX_S: f64 = 2.0 * 86_400.0;

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    per_second: f64,
    tokens: f64,
    at: Mono,
}

impl Pace {
    /// One may go at once, whoever went before.
    pub fn new(per_second: f64, now: Mono) -> Self {
        Self { per_second, tokens: 1.0, at: now }
    }

    /// The same bucket under another rate.
    pub fn at_rate(self, per_second: f64) -> Self {
        Self { per_second, ..self }
    }

    /// How many may go now.
    pub fn room(&mut self, now: Mono) -> usize {
        let holds = (self.per_second * BURST_S).max(1.0);
        let came = now.since(self.at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + came).min(holds);
        self.at = self.at.max(now);
        self.tokens as usize
    }

    pub fn went(&mut self, tasks: usize) {
        self.tokens -= tasks as f64;
    }

    /// When the next may go, if it may not yet.
    pub fn next(&self) -> Option<Mono> {
        let missing = 1.0 - self.tokens;
        // A millionth more, or rounding would have us look a moment too early, again and again.
        let wait_s = (missing / self.per_second + 1e-6).min(WAIT_MAX_S);
        (missing > 0.0).then(|| self.at.plus(Duration::from_secs_f64(wait_s)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whoever asks, however often, and takes as much as there is.
        #[test]
        fn over_any_span_no_more_go_than_the_rate_allows(
            rate in 0.5f64..5_000.0,
            steps in prop::collection::vec(0u64..400_000, 1..200),
        ) {
            let mut now = Mono(Duration::from_secs(1_000));
            let mut pace = Pace::new(rate, now);
            let mut went: Vec<(Mono, usize)> = Vec::new();
            for us in steps {
                now = now.plus(Duration::from_micros(us));
                let tasks = pace.room(now);
                pace.went(tasks);
                went.push((now, tasks));
            }
            for (from, (begin, _)) in went.iter().enumerate() {
                let mut sum = 0;
                for (end, tasks) in &went[from..] {
                    sum += tasks;
                    let most = rate * end.since(*begin).as_secs_f64() + (rate * BURST_S).max(1.0);
                    prop_assert!(sum as f64 <= most + 1e-6, "{sum} > {most}");
                }
            }
        }
    }

    #[test]
    fn whoever_comes_when_told_to_finds_room() {
        let mut now = Mono(Duration::from_secs(5));
        let mut pace = Pace::new(3.0, now);
        for _ in 0..100 {
            assert_eq!(pace.room(now), 1);
            pace.went(1);
            now = pace.next().unwrap();
        }
        let took = now.since(Mono(Duration::from_secs(5))).as_secs_f64();
        assert!((33.0..34.0).contains(&took), "{took}");
    }
}
