//! Which signed requests have been seen. A request is good for one use: its nonce is remembered for as long as its time
//! can still be in the window.
//!
//! The memory does not outlive the process, and other managers do not have it. A request recorded less than a window before a
//! restart could be sent again after it: what nodes may send is repeatable without harm (a blob's bytes at their place), or
//! useless without the key, and so are a resource manager's questions and calls about its lease. What else it may change is
//! remembered by the store as well ([`upkeep`](super::upkeep)).

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use mutirao_core::auth::SIGNATURE_WINDOW_S;
use mutirao_core::{Mono, Problem};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// A request from the far edge of the future window stays acceptable for two windows.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(2 * SIGNATURE_WINDOW_S as u64);

#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    First,
    Again,
    /// Too many to remember: accepting it could be accepting a replay.
    Full,
}

pub struct Nonces {
    nonces_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    known: HashSet<u128>,
    oldest_first: VecDeque<(Mono, u128)>,
}

impl Nonces {
    pub fn remembering(nonces_max: usize) -> Self {
        Self { nonces_max, inner: Mutex::default() }
    }

    pub fn see(&self, key: &str, nonce: &str, now: Mono) -> Seen {
        let mark = mark(key, nonce);
        let mut inner = self.inner.lock();
        while let Some((at, old)) = inner.oldest_first.front().copied() {
            if now.since(at) < KEPT_FOR {
                break;
            }
            inner.oldest_first.pop_front();
            inner.known.remove(&old);
        }
        if inner.known.contains(&mark) {
            return Seen::Again;
        }
        if inner.known.len() >= self.nonces_max {
            return Seen::Full;
        }
        inner.known.insert(mark);
        inner.oldest_first.push_back((now, mark));
        Seen::First
    }
}

pub(super) fn used_before() -> Problem {
    Problem::unauthenticated("this signed request was already used").remedy("sign each request with a new nonce")
}

/// Sixteen bytes stand for key and nonce, however long they are.
pub(super) fn mark(key: &str, nonce: &str) -> u128 {
    let digest = Sha256::new().chain_update(key).chain_update([0]).chain_update(nonce).finalize();
    digest.iter().take(16).fold(0, |mark, byte| (mark << 8) | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    #[test]
    fn a_nonce_is_good_once_for_each_key_while_its_window_is_open() {
        let nonces = Nonces::remembering(10);
        let (a, b) = ("a", "b");
        assert_eq!(nonces.see(a, "n", at(0)), Seen::First);
        assert_eq!(nonces.see(b, "n", at(0)), Seen::First);
        assert_eq!(nonces.see(a, "n", at(119)), Seen::Again);
        assert_eq!(nonces.see(a, "n", at(120)), Seen::First);
    }

    #[test]
    fn a_full_memory_refuses_instead_of_forgetting() {
        let nonces = Nonces::remembering(2);
        let a = "a";
        assert_eq!((nonces.see(a, "1", at(0)), nonces.see(a, "2", at(0))), (Seen::First, Seen::First));
        assert_eq!(nonces.see(a, "3", at(1)), Seen::Full);
        assert_eq!(nonces.see(a, "1", at(1)), Seen::Again);
        assert_eq!(nonces.see(a, "3", at(120)), Seen::First);
    }
}
