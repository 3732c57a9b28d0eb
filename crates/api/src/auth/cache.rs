//! What was looked up a moment ago. Bounded, short-lived, and never resurrecting: a lookup that began before something
//! was forgotten cannot put it back.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Mono};
use parking_lot::Mutex;

/// How long what was believed still is while nobody can be asked.
const IN_AN_OUTAGE: Duration = Duration::from_secs(600);
/// How long an entry is believed. Also how long a revocation made by another process can go unnoticed here.
pub const BELIEVED_FOR: Duration = Duration::from_secs(10);
pub const ENTRIES_MAX: usize = 10_000;

pub struct Cache<K, V> {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner<K, V>>,
}

struct Inner<K, V> {
    entries: HashMap<K, (V, Mono)>,
    /// Grows with each [`Cache::forget`].
    forgotten: u64,
}

/// Says when a lookup began.
#[derive(Clone, Copy)]
pub struct Began(u64);

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, inner: Mutex::new(Inner { entries: HashMap::new(), forgotten: 0 }) }
    }

    /// What is believed now, or the mark to give to [`Cache::keep`] after looking it up.
    pub fn get<Q>(&self, key: &Q) -> Result<V, Began>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let now = self.clock.monotonic();
        let inner = self.inner.lock();
        match inner.entries.get(key) {
            Some((value, until)) if now < *until => Ok(value.clone()),
            _ => Err(Began(inner.forgotten)),
        }
    }

    /// What was believed, when nobody can be asked any more: who is known goes on. Nobody can revoke anything then, but by
    /// a process that still can be asked.
    pub fn believed_once<Q>(&self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let now = self.clock.monotonic();
        let inner = self.inner.lock();
        inner.entries.get(key).filter(|(_, until)| now < until.plus(IN_AN_OUTAGE)).map(|(value, _)| value.clone())
    }

    /// A lookup that begins now.
    pub fn began(&self) -> Began {
        Began(self.inner.lock().forgotten)
    }

    pub fn keep(&self, began: Began, key: K, value: V) {
        let now = self.clock.monotonic();
        let mut inner = self.inner.lock();
        if began.0 != inner.forgotten {
            return;
        }
        if inner.entries.len() >= ENTRIES_MAX {
            inner.entries.retain(|_, (_, until)| now < *until);
        }
        if inner.entries.len() < ENTRIES_MAX {
            inner.entries.insert(key, (value, now.plus(BELIEVED_FOR)));
        }
    }

    pub fn forget<Q>(&self, key: &Q)
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut inner = self.inner.lock();
        inner.forgotten += 1;
        inner.entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutirao_core::Timestamp;
    use mutirao_core::clock::ManualClock;

    #[test]
    fn an_entry_is_believed_for_a_while_only() {
        let clock = ManualClock::starting_at(Timestamp(0));
        let cache = Cache::new(clock.clone());
        let began = cache.get("a").unwrap_err();
        cache.keep(began, "a".to_owned(), 1);
        assert_eq!(cache.get("a").ok(), Some(1));
        clock.advance(BELIEVED_FOR);
        assert!(cache.get("a").is_err());
        assert_eq!(cache.believed_once("a"), Some(1));
        clock.advance(IN_AN_OUTAGE);
        assert_eq!(cache.believed_once("a"), None);
        cache.keep(began, "a".to_owned(), 1);
        cache.forget("a");
        assert_eq!(cache.believed_once("a"), None, "it was revoked here");
    }

    #[test]
    fn a_lookup_that_began_before_a_revocation_does_not_undo_it() {
        let cache = Cache::new(ManualClock::starting_at(Timestamp(0)));
        let began = cache.get("a").unwrap_err();
        cache.forget("a");
        cache.keep(began, "a".to_owned(), 1);
        assert!(cache.get("a").is_err());
    }

    #[test]
    fn it_never_grows_past_its_bound() {
        let clock = ManualClock::starting_at(Timestamp(0));
        let cache = Cache::new(clock.clone());
        let fill = |from: usize| {
            for n in from..from + ENTRIES_MAX + 5 {
                let began = cache.get(&n).unwrap_err();
                cache.keep(began, n, ());
            }
            cache.inner.lock().entries.len()
        };
        assert_eq!(fill(0), ENTRIES_MAX);
        clock.advance(BELIEVED_FOR);
        assert_eq!(fill(1_000_000), ENTRIES_MAX, "the old ones made room");
    }
}
