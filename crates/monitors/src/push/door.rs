//! Who may call, how often. Addresses are open to anybody, so: each token has a rate of its own, and those that nobody knows
//! share one for each peer that they come from, and one for all, which keep whoever guesses from keeping the store busy. A
//! token that was seen to be good is remembered, and costs its peer nothing, so that guessers do not stand in its way and
//! thousands may call in the first seconds after a restart; of those that call in the same moment, the ones past the peer's
//! burst wait until those before them were seen to be good (`service/pushes.rs`). Bounded, and pure.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use mutirao_core::Mono;

use super::TokenDigest;

/// Tokens that are remembered.
const KNOWN_MAX: usize = 100_000;
/// Nothing is called more often than once a second, but some say more than they must.
const CALLS: Rate = Rate { per_second: 2.0, burst: 20.0 };
/// From one peer.
const STRANGERS: Rate = Rate { per_second: 20.0, burst: 100.0 };
/// From all of them.
const ALL_STRANGERS: Rate = Rate { per_second: 200.0, burst: 1_000.0 };
/// Peers that are told apart.
const PEERS_MAX: usize = 10_000;
/// Looking through all of them takes a while, in which nobody passes.
const SWEPT_EVERY: Duration = Duration::from_secs(1);
/// How long it is remembered of a peer that it came with a token that nobody knows.
const GUESSED_FOR: Duration = Duration::from_secs(60);

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

    fn give_back(&mut self, rate: Rate) {
        self.left = (self.left + 1.0).min(rate.burst);
    }
}

/// Whoever has one address of version 6 has all of its network.
fn one_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        version_4 => version_4,
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
    peers: HashMap<IpAddr, Bucket>,
    /// When each came last with a token that nobody knows.
    guessers: HashMap<IpAddr, Mono>,
    strangers: Bucket,
    swept: Mono,
}

impl Door {
    pub fn new(now: Mono) -> Self {
        let strangers = Bucket::full(ALL_STRANGERS, now);
        Self {
            known: HashMap::new(),
            peers: HashMap::new(),
            guessers: HashMap::new(),
            strangers,
            swept: Mono::default(),
        }
    }

    pub fn pass(&mut self, token: TokenDigest, peer: IpAddr, now: Mono) -> Passing {
        let (passed, as_what) = match self.known.get_mut(&token) {
            Some(bucket) => (bucket.take(CALLS, now), Passing::Known),
            None => (self.stranger(one_of(peer), now), Passing::Stranger),
        };
        passed.map_or_else(Passing::Wait, |()| as_what)
    }

    fn stranger(&mut self, peer: IpAddr, now: Mono) -> Result<(), Duration> {
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&peer) && now.since(self.swept) >= SWEPT_EVERY {
            // Whoever has been quiet loses nothing by it.
            self.peers.retain(|_, bucket| bucket.filled(STRANGERS, now) < STRANGERS.burst);
            self.swept = now;
        }
        // Of more peers than that at once all together are slowed down.
        if self.peers.len() < PEERS_MAX || self.peers.contains_key(&peer) {
            self.peers.entry(peer).or_insert_with(|| Bucket::full(STRANGERS, now)).take(STRANGERS, now)?;
        }
        self.strangers.take(ALL_STRANGERS, now)
    }

    /// It was asked about, and is good: whoever called was no stranger.
    pub fn welcome(&mut self, token: TokenDigest, peer: IpAddr, now: Mono) {
        if let Some(bucket) = self.peers.get_mut(&one_of(peer)) {
            bucket.give_back(STRANGERS);
        }
        self.strangers.give_back(ALL_STRANGERS);
        if self.known.len() >= KNOWN_MAX {
            // Whoever has been quiet loses nothing by it.
            self.known.retain(|_, bucket| bucket.filled(CALLS, now) < CALLS.burst);
        }
        if self.known.len() < KNOWN_MAX {
            // Of many that came at once all but the first are no news.
            self.known.entry(token).or_insert_with(|| Bucket::full(CALLS, now));
        }
    }

    /// It was asked about, and nobody knows it.
    pub fn guessed(&mut self, peer: IpAddr, now: Mono) {
        if self.guessers.len() >= PEERS_MAX {
            self.guessers.retain(|_, at| now.since(*at) < GUESSED_FOR);
        }
        if self.guessers.len() < PEERS_MAX {
            self.guessers.insert(one_of(peer), now);
        }
    }

    /// Whether it has lately come with a token that nobody knows.
    pub fn guesses(&self, peer: IpAddr, now: Mono) -> bool {
        self.guessers.get(&one_of(peer)).is_some_and(|at| now.since(*at) < GUESSED_FOR)
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

    const ANA: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const BEN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn whoever_guesses_is_slowed_down_and_keeps_nobody_else_from_calling() {
        let mut door = Door::new(at(0));
        door.welcome(token(0), ANA, at(0));
        let asked = (1..=1_000).filter(|n| door.pass(token(*n), ANA, at(0)) == Passing::Stranger).count();
        assert_eq!(asked, 100);
        assert_eq!(door.pass(token(2_000), ANA, at(0)), Passing::Wait(Duration::from_millis(50)));
        assert_eq!(door.pass(token(0), ANA, at(0)), Passing::Known);
        assert_eq!(door.pass(token(2_000), BEN, at(0)), Passing::Stranger, "from elsewhere");
        assert_eq!(door.pass(token(2_000), ANA, at(50)), Passing::Stranger);
    }

    #[test]
    fn after_a_restart_thousands_may_call_at_once_and_guessers_from_everywhere_may_not() {
        let mut door = Door::new(at(0));
        for n in 0..10_000 {
            assert_eq!(door.pass(token(n), ANA, at(0)), Passing::Stranger, "call {n}");
            door.welcome(token(n), ANA, at(0));
        }
        let peer = |n: u32| IpAddr::V4(n.into());
        let asked = (0..20_000).filter(|n| door.pass(token(50_000), peer(*n), at(0)) == Passing::Stranger).count();
        assert_eq!(asked, ALL_STRANGERS.burst as usize);
        assert!(door.peers.len() <= PEERS_MAX);
    }

    #[test]
    fn whoever_guessed_is_known_for_it_for_a_minute_and_those_remembered_are_bounded() {
        let mut door = Door::new(at(0));
        door.guessed(ANA, at(0));
        assert_eq!([door.guesses(ANA, at(59_999)), door.guesses(ANA, at(60_000))], [true, false]);
        assert!(!door.guesses(BEN, at(0)));
        (0..20_000).for_each(|n: u32| door.guessed(IpAddr::V4(n.into()), at(1)));
        assert!(door.guessers.len() <= PEERS_MAX);
        door.guessed(BEN, at(61_000));
        assert!(door.guesses(BEN, at(61_000)));
    }

    #[test]
    fn a_network_of_version_6_is_one_peer() {
        let mut door = Door::new(at(0));
        let peer = |n: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, n));
        let asked = (0..1_000).filter(|n| door.pass(token(7), peer(*n), at(0)) == Passing::Stranger).count();
        assert_eq!(asked, 100);
    }

    #[test]
    fn each_token_has_a_rate_of_its_own() {
        let mut door = Door::new(at(0));
        door.welcome(token(1), ANA, at(0));
        door.welcome(token(2), ANA, at(0));
        let passed = (0..100).filter(|_| door.pass(token(1), ANA, at(0)) == Passing::Known).count();
        assert_eq!(passed, 20);
        assert_eq!(door.pass(token(2), ANA, at(0)), Passing::Known);
        assert_eq!(door.pass(token(1), ANA, at(500)), Passing::Known);
        door.forget(&token(1));
        assert_eq!(door.pass(token(1), ANA, at(501)), Passing::Stranger);
    }

    #[test]
    fn so_many_are_remembered_and_the_quiet_ones_make_room() {
        let mut door = Door::new(at(0));
        (0..KNOWN_MAX as u32 + 10).for_each(|n| door.welcome(token(n), ANA, at(0)));
        assert!(door.known.len() <= KNOWN_MAX);
        door.pass(token(KNOWN_MAX as u32 + 9), ANA, at(1));
        door.welcome(token(u32::MAX), ANA, at(2));
        assert!(door.known.contains_key(&token(u32::MAX)) && door.known.len() <= KNOWN_MAX);
    }
}
