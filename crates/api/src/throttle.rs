//! How often somebody may do something. Time comes from the injected clock; the number of somebodies is bounded.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use mutirao_core::Clock;
use serde::Deserialize;

/// Past this many, newcomers wait until somebody has been quiet for long enough to be forgotten.
pub const KEYS_MAX: usize = 100_000;
/// Counting the keys costs more than a check, so it is done once in so many.
const TIDY_EVERY: u32 = 256;

/// So many a second on average, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    pub per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

impl Rate {
    pub const fn new(per_second: u32, burst: u32) -> Self {
        Self { per_second: positive(per_second), burst: positive(burst) }
    }
}

/// A rate of zero would be a ban, which is not what a rate is for.
const fn positive(n: u32) -> NonZeroU32 {
    match NonZeroU32::new(n) {
        Some(n) => n,
        None => NonZeroU32::MIN,
    }
}

struct Ticks(Arc<dyn Clock>);

impl governor::clock::Clock for Ticks {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic().0
    }
}

pub struct Throttle<K: Hash + Eq + Clone> {
    clock: Arc<dyn Clock>,
    limiter: RateLimiter<K, DashMapStateStore<K>, Ticks, NoOpMiddleware<Duration>>,
    checks: AtomicU32,
}

impl<K: Hash + Eq + Clone> Throttle<K> {
    pub fn new(rate: Rate, clock: Arc<dyn Clock>) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        let limiter = RateLimiter::new(quota, DashMapStateStore::default(), Ticks(clock.clone()));
        Self { clock, limiter, checks: AtomicU32::new(0) }
    }

    /// Counts one; past the rate, the whole seconds to wait.
    pub fn check(&self, key: &K) -> Result<(), u64> {
        let checks = self.checks.fetch_add(1, Ordering::Relaxed);
        if checks.is_multiple_of(TIDY_EVERY) && self.limiter.len() >= KEYS_MAX {
            self.limiter.retain_recent();
            if self.limiter.len() >= KEYS_MAX {
                return Err(1);
            }
        }
        self.limiter.check_key(key).map_err(|not_until| {
            let wait = not_until.wait_time_from(self.clock.monotonic().0);
            wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
        })
    }
}

/// Whom to count a peer as: an IPv6 host has a whole /64 to itself.
pub fn household(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutirao_core::Timestamp;
    use mutirao_core::clock::ManualClock;

    #[test]
    fn a_burst_is_let_through_and_then_the_rate_holds_for_each_by_itself() {
        let clock = ManualClock::starting_at(Timestamp(0));
        let throttle = Throttle::new(Rate::new(1, 3), clock.clone());
        for _ in 0..3 {
            assert_eq!(throttle.check(&"a"), Ok(()));
        }
        assert_eq!(throttle.check(&"a"), Err(1));
        assert_eq!(throttle.check(&"b"), Ok(()));
        clock.advance(Duration::from_secs(1));
        assert_eq!((throttle.check(&"a"), throttle.check(&"a")), (Ok(()), Err(1)));
    }

    #[test]
    fn neighbours_in_one_ipv6_network_count_as_one() {
        let of = |text: &str| household(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
