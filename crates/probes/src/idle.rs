//! Connections that are kept for the next check of the same place, for those that ask for it (`reuse: true`). So many in all,
//! so many to one place, for so long and no longer: a name may lead elsewhere by then.
//!
//! Pure: what a connection is, whoever keeps them knows.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mutirao_core::Mono;

const IN_ALL_MAX: usize = 1_000;
const EACH_MAX: usize = 4;
/// Many servers close what is idle after a minute.
const IDLE_MAX: Duration = Duration::from_secs(55);
/// How often all are looked at.
const SWEEP: Duration = Duration::from_secs(10);

/// Where a connection leads to, and how it is spoken there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub host: String,
    pub port: u16,
    pub encrypted: bool,
    pub version: crate::check::Version,
}

#[derive(Debug)]
pub struct Idle<T> {
    kept: HashMap<Place, VecDeque<(Mono, T)>>,
    many: usize,
    swept: Mono,
}

impl<T> Default for Idle<T> {
    fn default() -> Self {
        Self { kept: HashMap::new(), many: 0, swept: Mono(Duration::ZERO) }
    }
}

impl<T> Idle<T> {
    /// The one that was used last, if it still is good.
    pub fn take(&mut self, place: &Place, now: Mono, good: impl Fn(&T) -> bool) -> Option<T> {
        self.sweep(now);
        let there = self.kept.get_mut(place)?;
        let mut found = None;
        while let Some((since, one)) = there.pop_back() {
            self.many -= 1;
            if now.since(since) < IDLE_MAX && good(&one) {
                found = Some(one);
                break;
            }
        }
        if there.is_empty() {
            self.kept.remove(place);
        }
        found
    }

    /// Past a bound the one that was used longest ago makes way, or this one is not kept.
    pub fn keep(&mut self, place: Place, one: T, now: Mono) {
        self.sweep(now);
        let there = self.kept.entry(place.clone()).or_default();
        if there.len() >= EACH_MAX && there.pop_front().is_some() {
            self.many -= 1;
        }
        if self.many < IN_ALL_MAX {
            there.push_back((now, one));
            self.many += 1;
        } else if there.is_empty() {
            self.kept.remove(&place);
        }
    }

    fn sweep(&mut self, now: Mono) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.kept.retain(|_, there| {
            there.retain(|(since, _)| now.since(*since) < IDLE_MAX);
            !there.is_empty()
        });
        self.many = self.kept.values().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u16) -> Place {
        Place { host: "shop".into(), port: n, encrypted: false, version: Default::default() }
    }

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    #[test]
    fn the_last_used_one_is_taken_once_and_only_for_its_own_place() {
        let mut idle = Idle::default();
        idle.keep(place(1), "old", at(1));
        idle.keep(place(1), "new", at(2));
        assert_eq!(idle.take(&place(2), at(3), |_| true), None);
        assert_eq!(idle.take(&place(1), at(3), |_| true), Some("new"));
        assert_eq!(idle.take(&place(1), at(3), |_| true), Some("old"));
        assert_eq!((idle.take(&place(1), at(3), |_| true), idle.many), (None, 0));
    }

    #[test]
    fn what_is_too_old_or_closed_is_let_go_of() {
        let mut idle = Idle::default();
        idle.keep(place(1), "closed", at(2));
        idle.keep(place(1), "good", at(1));
        idle.keep(place(2), "old", at(1));
        assert_eq!(idle.take(&place(1), at(3), |one| *one == "good"), Some("good"));
        assert_eq!(idle.take(&place(1), at(3), |one| *one == "good"), None, "the closed one is gone");
        assert_eq!((idle.take(&place(2), at(56), |_| true), idle.many), (None, 0));
    }

    #[test]
    fn so_many_are_kept_and_no_more() {
        let mut idle = Idle::default();
        (0..10).for_each(|n| idle.keep(place(1), n, at(1)));
        assert_eq!((idle.many, idle.take(&place(1), at(1), |_| true)), (EACH_MAX, Some(9)));
        (0..2_000).for_each(|n| idle.keep(place(n), 0, at(1)));
        assert_eq!((idle.many, idle.kept.len()), (IN_ALL_MAX, IN_ALL_MAX - EACH_MAX + 1));
        idle.keep(place(9), 0, at(60));
        assert_eq!(idle.many, 1);
    }
}
