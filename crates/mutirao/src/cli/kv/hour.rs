//! What time it is over there, where values end: a clock that is set wrong here must not make an export of values that are over.

use mutirao_client::Client;
use mutirao_core::{Clock, SystemClock, Timestamp};

/// The server tells its time in whole seconds, so a clock that differs by less is as good.
const SAME_MS: i64 = 2_000;

/// By how many milliseconds the server's clock is ahead of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead(i64);

impl Ahead {
    /// Not at all, where the server does not tell.
    pub async fn ask(client: &Client) -> Self {
        let there = client.health().await.ok().and_then(|health| health.now);
        there.map_or(Self::default(), |there| Self::of(there, SystemClock.now()))
    }

    fn of(there: Timestamp, here: Timestamp) -> Self {
        let ahead = there.0.saturating_sub(here.0);
        Self(if ahead.saturating_abs() < SAME_MS { 0 } else { ahead })
    }

    pub fn now(self) -> Timestamp {
        self.at(SystemClock.now())
    }

    fn at(self, here: Timestamp) -> Timestamp {
        Timestamp(here.0.saturating_add(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_wrong_here_is_put_right_and_one_that_is_not_is_left_alone() {
        let (there, late, early) = (Timestamp(7_200_000), Timestamp(3_600_000), Timestamp(10_800_000));
        for here in [late, early] {
            assert_eq!(Ahead::of(there, here).at(here), there);
        }
        assert_eq!(Ahead::of(there, Timestamp(7_200_900)).at(Timestamp(7_200_900)), Timestamp(7_200_900));
    }
}
