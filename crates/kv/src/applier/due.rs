//! When an applier is to end what is over and to forget what is old. Pure.
//!
//! Forgetting is done a bite at a time, between batches, so that no write waits for more than one. It goes by the wall clock, and
//! what was forgotten does not come back: so while that clock has just jumped, nothing is.

use std::time::Duration;

use mutirao_core::{Mono, ShardId, Timestamp};

use crate::SHARDS;

/// How long a store that could not be asked is left alone.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks for what is old, and between two bites when there is more of it.
const FORGET_EVERY: Duration = Duration::from_secs(30);
const BITE_EVERY: Duration = Duration::from_millis(100);
/// A wall clock that goes so far from the other one has been set.
const JUMP_MIN: Duration = Duration::from_secs(60);
/// How long nothing is forgotten then: by the next jump it may be right again.
const HELD_OFF: Duration = Duration::from_secs(600);

/// When the next entry is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Soonest {
    /// The store has not said so yet.
    Unknown,
    Never,
    At(Timestamp),
}

/// What a bite left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// Perhaps.
    More,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    soonest: Soonest,
    /// The store is not asked before this.
    patience: Mono,
    forget: Mono,
    /// How far the wall clock is from the other one, in milliseconds.
    apart_ms: i64,
}

impl Due {
    /// The shards of a process do not all forget at the same moment.
    pub fn new(shard: ShardId, wall: Timestamp, now: Mono) -> Self {
        let forget = now.plus(FORGET_EVERY / SHARDS * (shard.0 % SHARDS + 1));
        Self { soonest: Soonest::Unknown, patience: now, forget, apart_ms: apart_ms(wall, now) }
    }

    /// Something was written that is over then.
    pub fn heed(&mut self, at: Timestamp) {
        self.soonest = match self.soonest {
            Soonest::Unknown => Soonest::Unknown,
            Soonest::Never => Soonest::At(at),
            Soonest::At(known) => Soonest::At(known.min(at)),
        };
    }

    /// What the store says.
    pub fn is_known(&mut self, soonest: Option<Timestamp>) {
        self.soonest = soonest.map_or(Soonest::Never, Soonest::At);
    }

    /// The store could not be asked.
    pub fn is_away(&mut self, now: Mono) {
        self.patience = now.plus(PAUSE);
    }

    /// Whether something is over, or may be.
    pub fn ends(&self, wall: Timestamp, now: Mono) -> bool {
        let is_over = match self.soonest {
            Soonest::Unknown => true,
            Soonest::Never => false,
            Soonest::At(at) => at <= wall,
        };
        is_over && now >= self.patience
    }

    /// Whether to forget a bite now. `Err`: it would be time, but the wall clock has jumped.
    pub fn forgets(&mut self, wall: Timestamp, now: Mono) -> Result<bool, Duration> {
        if now < self.forget {
            return Ok(false);
        }
        let apart_ms = apart_ms(wall, now);
        let jump = Duration::from_millis(apart_ms.abs_diff(self.apart_ms));
        self.apart_ms = apart_ms;
        if jump >= JUMP_MIN {
            self.forget = now.plus(HELD_OFF);
            return Err(jump);
        }
        Ok(true)
    }

    pub fn forgot(&mut self, left: Left, now: Mono) {
        self.forget = now.plus(match left {
            Left::Nothing => FORGET_EVERY,
            Left::More => BITE_EVERY,
        });
    }

    /// How long there is nothing to do, at most `most`.
    pub fn nap(&self, wall: Timestamp, now: Mono, most: Duration) -> Duration {
        let ends = match self.soonest {
            Soonest::At(at) => at.since(wall).max(self.patience.since(now)),
            Soonest::Never | Soonest::Unknown => most,
        };
        ends.min(self.forget.since(now)).min(most)
    }
}

fn apart_ms(wall: Timestamp, now: Mono) -> i64 {
    wall.0.saturating_sub(now.0.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(1);

    fn wall(s: u64) -> Timestamp {
        Timestamp(1_000_000 + s as i64 * 1_000)
    }

    fn mono(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    fn due(shard: u32) -> Due {
        Due::new(ShardId(shard), wall(0), mono(0))
    }

    #[test]
    fn a_store_that_is_away_is_not_asked_again_and_again_for_what_is_over() {
        let mut due = due(15);
        due.is_known(None);
        due.heed(wall(5));
        assert_eq!((due.ends(wall(4), mono(4)), due.nap(wall(4), mono(4), 5 * MOST)), (false, MOST));
        assert!(due.ends(wall(6), mono(6)));
        due.is_away(mono(6));
        assert!(!due.ends(wall(6), mono(6)), "not at once");
        assert_eq!(due.nap(wall(6), mono(6), MOST), PAUSE);
        assert!(due.ends(wall(7), mono(7)));
    }

    #[test]
    fn a_bite_is_forgotten_at_a_time_and_not_by_all_shards_at_once() {
        let first: std::collections::BTreeSet<u64> = (0..SHARDS)
            .map(|shard| {
                (0..60_000).find(|ms| due(shard).forgets(wall(0), Mono(Duration::from_millis(*ms))) == Ok(true))
            })
            .map(|ms| ms.unwrap())
            .collect();
        assert_eq!(first.len(), SHARDS as usize, "{first:?}");
        let mut due = due(15);
        assert_eq!(due.forgets(wall(30), mono(30)), Ok(true));
        due.forgot(Left::More, mono(30));
        assert_eq!(due.forgets(wall(30), mono(30)), Ok(false), "writes come between");
        assert!(due.nap(wall(30), mono(30), MOST) <= BITE_EVERY);
        assert_eq!(due.forgets(wall(31), mono(31)), Ok(true));
        due.forgot(Left::Nothing, mono(31));
        assert_eq!((due.forgets(wall(60), mono(60)), due.forgets(wall(61), mono(61))), (Ok(false), Ok(true)));
    }

    #[test]
    fn a_clock_that_was_set_wrong_for_a_moment_has_nothing_forgotten() {
        let mut due = due(15);
        let days = 50 * 3_600;
        assert_eq!(due.forgets(wall(days + 30), mono(30)), Err(Duration::from_secs(days)));
        assert_eq!(due.forgets(wall(days + 40), mono(40)), Ok(false));
        // It was set right: that is a jump as well.
        assert!(due.forgets(wall(640), mono(640)).is_err());
        assert_eq!(due.forgets(wall(1_300), mono(1_300)), Ok(true));
    }
}
