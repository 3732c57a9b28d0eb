//! How many there may be of each kind, and kinds that are left alone for a while because one of them failed.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::Mono;

use super::{Listed, again};

/// How long a kind is left alone at most. A cloud that has none left may have some in a while.
const PAUSE_MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub struct Limits {
    pub at_most: u32,
    /// Of each kind: how many, and how long one may take until it takes work.
    pub kinds: BTreeMap<String, (u32, Duration)>,
}

#[derive(Debug)]
struct Pause {
    until: Mono,
    failures: u32,
    why: String,
}

#[derive(Debug)]
pub(super) struct Kinds {
    limits: Limits,
    paused: BTreeMap<String, Pause>,
}

impl Kinds {
    pub fn new(limits: Limits) -> Self {
        Self { limits, paused: BTreeMap::new() }
    }

    /// As the list says, else as its name does. None of one that is not known any more.
    pub fn of(&self, listed: &Listed) -> Option<String> {
        let said = listed.kind.as_ref().filter(|kind| self.limits.kinds.contains_key(*kind));
        let named = || {
            let begins =
                |kind: &&String| listed.node.0.strip_prefix(kind.as_str()).is_some_and(|rest| rest.starts_with('-'));
            self.limits.kinds.keys().filter(begins).max_by_key(|kind| kind.len())
        };
        said.or_else(named).cloned()
    }

    pub fn room(&self, kind: &str, of_kind: usize, of_all: usize, now: Mono) -> u32 {
        let Some((most, _)) = self.limits.kinds.get(kind) else { return 0 };
        let left = |most: u32, there: usize| most.saturating_sub(u32::try_from(there).unwrap_or(u32::MAX));
        match self.pause(kind, now) {
            Some(_) => 0,
            None => left(*most, of_kind).min(left(self.limits.at_most, of_all)),
        }
    }

    pub fn ready_within(&self, kind: &Option<String>) -> Duration {
        let known = kind.as_ref().and_then(|kind| self.limits.kinds.get(kind));
        known.map_or(Duration::ZERO, |(_, span)| *span)
    }

    /// One of it failed. Longer and longer, until one works.
    pub fn fails(&mut self, kind: Option<&str>, why: &str, now: Mono) {
        let Some(kind) = kind else { return };
        let failures = self.paused.get(kind).map_or(0, |pause| pause.failures).saturating_add(1);
        let span = again(failures).max(again(1)).saturating_mul(failures.min(5)).min(PAUSE_MAX);
        self.paused.insert(kind.to_owned(), Pause { until: now.plus(span), failures, why: why.to_owned() });
    }

    pub fn works(&mut self, kind: Option<&str>) {
        kind.and_then(|kind| self.paused.remove(kind));
    }

    pub fn pause(&self, kind: &str, now: Mono) -> Option<String> {
        self.paused.get(kind).filter(|pause| now < pause.until).map(|pause| pause.why.clone())
    }

    pub fn paused(&self, now: Mono) -> Vec<(String, String)> {
        let now_paused = self.paused.iter().filter(|(_, pause)| now < pause.until);
        now_paused.map(|(kind, pause)| (kind.clone(), pause.why.clone())).collect()
    }
}
