//! The beats that all shards keep to, so that a process wakes up once for all of them, and what they write is committed
//! together: 25,000 monitors that were fired and settled each at its own moment cost three times as much.

use std::time::Duration;

use mutirao_core::{Clock, Mono};

/// Fired together rather than one by one: half as long costs a third more, twice as long would begin to be seen.
pub const BREATH: Duration = Duration::from_millis(50);
/// Outcomes that come within it are written together.
pub const SETTLE: Duration = Duration::from_millis(100);

/// Sleeps for `wait`, and then until the next beat.
pub async fn to_the_beat(clock: &dyn Clock, wait: Duration, beat: Duration) {
    clock.sleep(until_the_beat(clock.monotonic(), wait, beat)).await;
}

fn until_the_beat(now: Mono, wait: Duration, beat: Duration) -> Duration {
    let beat = beat.as_nanos() as u64;
    let then = (now.0 + wait).as_nanos() as u64;
    Duration::from_nanos((then / beat + 1) * beat) - now.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shards_wake_up_at_the_same_beats_and_never_before_they_asked_to() {
        let ms = Duration::from_millis;
        let wakes = |now, wait| ms(now) + until_the_beat(Mono(ms(now)), ms(wait), BREATH);
        assert_eq!(wakes(1_003, 0), ms(1_050));
        assert_eq!(wakes(1_003, 5), ms(1_050));
        assert_eq!(wakes(1_011, 37), ms(1_050));
        assert_eq!(wakes(1_011, 42), ms(1_100));
        assert_eq!(wakes(1_050, 0), ms(1_100), "a beat that is now is over");
        assert_eq!(wakes(1_050, 1_000), ms(2_100));
    }
}
