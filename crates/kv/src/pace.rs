//! How long to wait for more before a batch is begun. A batch costs nearly as much with one write in it as with a hundred, and takes
//! its time from the cores that writes are taken with. So where writes come fast, those that nobody waits for are gathered for a
//! moment: the more there were, the longer. Where they come slowly nothing waits. Batches that cost less together than one
//! after the other begin on a beat that they have in common. Pure.

use std::time::Duration;

use mutirao_core::Mono;

use crate::intake::Until;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// For each write of a batch, this long passes between its begin and that of the next.
    per_write: Duration,
    /// But never longer than this.
    most: Duration,
    /// Writes that make a batch full.
    full: usize,
    /// What waits, waits for the next multiple of this: all that do so begin together, however long they should have waited by
    /// themselves.
    beat: Option<Duration>,
    /// When the next batch may begin.
    next: Mono,
}

/// What is in hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InHand {
    pub writes: usize,
    /// No more come before these are done.
    pub is_all: bool,
    /// The most that anybody waits for.
    pub until: Until,
}

impl Pace {
    pub const fn new(per_write: Duration, most: Duration, full: usize) -> Self {
        Self { per_write, most, full, beat: None, next: Mono(Duration::ZERO) }
    }

    pub const fn on_the_beat(self, beat: Duration) -> Self {
        Self { beat: Some(beat), ..self }
    }

    /// How long to wait for more; none: the batch is to begin now.
    pub fn gather(self, hand: InHand, now: Mono) -> Option<Duration> {
        let hurry = hand.until == Until::Applied || hand.is_all || hand.writes >= self.full;
        let left = Some(self.next.since(now)).filter(|left| !hurry && !left.is_zero())?;
        Some(self.beat.map_or(left, |beat| until_multiple(beat, now)))
    }

    /// A batch of so many begins now.
    pub fn begin(&mut self, writes: usize, now: Mono) {
        // As many as go into one were waiting already: more of them may be.
        let writes = if writes >= self.full { 0 } else { writes as u32 };
        self.next = now.plus((self.per_write * writes).min(self.most));
    }
}

fn until_multiple(beat: Duration, now: Mono) -> Duration {
    let since = now.0.as_nanos() % beat.as_nanos();
    beat - Duration::from_nanos(since as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FULL: usize = 1_000;
    const PACE: Pace = Pace::new(Duration::from_millis(3), Duration::from_millis(250), FULL);

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    fn some(writes: usize) -> InHand {
        InHand { writes, is_all: false, until: Until::Durable }
    }

    #[test]
    fn what_somebody_waits_for_and_what_is_as_much_as_may_be_is_not_held_back() {
        let mut pace = PACE;
        assert_eq!(pace.gather(some(1), at(5)), None, "nothing was written lately");
        pace.begin(100, at(1_000));
        assert_eq!(pace.gather(some(1), at(1_050)), Some(Duration::from_millis(200)));
        assert_eq!(pace.gather(InHand { until: Until::Applied, ..some(1) }, at(1_050)), None);
        assert_eq!(pace.gather(InHand { is_all: true, ..some(1) }, at(1_050)), None);
        assert_eq!(pace.gather(some(FULL), at(1_050)), None);
        pace.begin(FULL, at(2_000));
        assert_eq!(pace.gather(some(1), at(2_000)), None, "more of the same may be waiting");
    }

    #[test]
    fn on_a_beat_all_that_wait_begin_together_and_what_comes_slowly_waits_for_none() {
        let beat = PACE.on_the_beat(Duration::from_millis(4));
        let (mut one, mut other) = (beat, beat);
        assert_eq!(one.gather(some(1), at(5)), None);
        one.begin(10, at(1_001));
        other.begin(3, at(1_002));
        assert_eq!(one.gather(some(1), at(1_003)), Some(Duration::from_millis(1)));
        assert_eq!(other.gather(some(1), at(1_003)), Some(Duration::from_millis(1)));
        assert_eq!(one.gather(some(1), at(1_004)), Some(Duration::from_millis(4)), "the one after is the next");
        assert_eq!(other.gather(some(1), at(1_011)), None, "3 ms for each of three have passed");
    }

    /// Milliseconds that writes wait at most when one comes every so many microseconds.
    fn longest_wait_ms(every_us: u64) -> u64 {
        let (mut pace, mut hand, mut first, mut longest) = (PACE, 0, 0, 0);
        for us in (0..5_000_000).step_by(every_us as usize) {
            let now = Mono(Duration::from_micros(us));
            first = if hand == 0 { us } else { first };
            hand += 1;
            if pace.gather(some(hand), now).is_none() {
                longest = longest.max((us - first) / 1_000);
                pace.begin(std::mem::take(&mut hand), now);
            }
        }
        longest
    }

    proptest! {
        #[test]
        fn writes_that_come_slowly_wait_for_nothing_and_none_waits_long(every_us in 200_u64..100_000) {
            let longest = longest_wait_ms(every_us);
            prop_assert!(longest <= PACE.most.as_millis() as u64 + every_us / 1_000 + 1, "{longest}");
            if every_us >= 3_000 {
                prop_assert!(longest == 0, "{longest} ms, one every {every_us} µs");
            }
        }
    }
}
