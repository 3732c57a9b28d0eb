//! Who may call, how often. Addresses are open to anybody, so: each token has a rate of its own, and those that nobody knows
//! share one, which keeps whoever guesses from keeping the store busy. A token that was seen to be good is remembered, so
//! that guessers do not stand in its way. Bounded, and pure.

use std::collections::HashMap;
use std::time::Duration;

use mutirao_core::Mono;

use super::TokenDigest;

/// Tokens that are remembered.
const KNOWN_MAX: usize = 100_000;
/// Nothing is called more often than once a second, but some say more than they must.
const CALLS: Rate = Rate { per_second: 2.0, burst: 20.0 };
const STRANGERS: Rate = Rate { per_second: 20.0, burst: 100.0 };

#[derive(Clone, Copy, Debug)]
struct Rate {
    per_second: f64,
    burst: f64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Mono,
}

impl Bucket {
    fn full(rate: Rate, now: Mono) -> Self {
        Self { left: rate.burst, at: now }
    }

    fn filled(&self, rate: Rate, now: Mono) -> f64 {
        (self.left + now.since(self.at).as_secs_f64() * rate.per_second).min(rate.burst)
    }

    /// Takes one out, or says how long to wait for it.
    fn take(&mut self, rate: Rate, now: Mono) -> Result<(), Duration> {
        (self.left, self.at) = (self.filled(rate, now), now);
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / rate.per_second));
        }
        self.left -= 1.0;
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// It was good before.
    Known,
    /// Whether it is good must be asked.
    Stranger,
    /// Too often.
    Wait(Duration),
}

#[derive(Debug)]
pub struct Door {
    known: HashMap<TokenDigest, Bucket>,
    strangers: Bucket,
}

impl Door {
    pub fn new(now: Mono) -> Self {
        Self { known: HashMap::new(), strangers: Bucket::full(STRANGERS, now) }
    }

    pub fn pass(&mut self, token: TokenDigest, now: Mono) -> Passing {
        let (passed, as_what) = match self.known.get_mut(&token) {
            Some(bucket) => (bucket.take(CALLS, now), Passing::Known),
            None => (self.strangers.take(STRANGERS, now), Passing::Stranger),
        };
        passed.map_or_else(Passing::Wait, |()| as_what)
    }

    /// It was asked about, and is good.
    pub fn welcome(&mut self, token: TokenDigest, now: Mono) {
        if self.known.len() >= KNOWN_MAX {
            // Whoever has been quiet loses nothing by it.
            self.known.retain(|_, bucket| bucket.filled(CALLS, now) < CALLS.burst);
        }
        if self.known.len() < KNOWN_MAX {
            self.known.insert(token, Bucket::full(CALLS, now));
        }
    }

    /// It is good no more.
    pub fn forget(&mut self, token: &TokenDigest) {
        self.known.remove(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u32) -> TokenDigest {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        TokenDigest(bytes)
    }

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    #[test]
    fn whoever_guesses_is_slowed_down_and_keeps_nobody_else_from_calling() {
        let mut door = Door::new(at(0));
        door.welcome(token(0), at(0));
        let asked = (1..=1_000).filter(|n| door.pass(token(*n), at(0)) == Passing::Stranger).count();
        assert_eq!(asked, 100);
        assert_eq!(door.pass(token(2_000), at(0)), Passing::Wait(Duration::from_millis(50)));
        assert_eq!(door.pass(token(0), at(0)), Passing::Known);
        assert_eq!(door.pass(token(2_000), at(50)), Passing::Stranger);
    }

    #[test]
    fn each_token_has_a_rate_of_its_own() {
        let mut door = Door::new(at(0));
        door.welcome(token(1), at(0));
        door.welcome(token(2), at(0));
        let passed = (0..100).filter(|_| door.pass(token(1), at(0)) == Passing::Known).count();
        assert_eq!(passed, 20);
        assert_eq!(door.pass(token(2), at(0)), Passing::Known);
        assert_eq!(door.pass(token(1), at(500)), Passing::Known);
        door.forget(&token(1));
        assert_eq!(door.pass(token(1), at(501)), Passing::Stranger);
    }

    #[test]
    fn so_many_are_remembered_and_the_quiet_ones_make_room() {
        let mut door = Door::new(at(0));
        (0..KNOWN_MAX as u32 + 10).for_each(|n| door.welcome(token(n), at(0)));
        assert!(door.known.len() <= KNOWN_MAX);
        door.pass(token(KNOWN_MAX as u32 + 9), at(1));
        door.welcome(token(u32::MAX), at(2));
        assert!(door.known.contains_key(&token(u32::MAX)) && door.known.len() <= KNOWN_MAX);
    }
}
