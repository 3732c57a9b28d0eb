//! A provider that fails is left alone for a while, growing and with jitter, and shown. Launching and asking wait for both
//! kinds of failure; ending what must end only waits while calls fail.

use std::fmt;

use mutirao_core::{Dice, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Fleet, Terms};

/// Of what a provider says when it fails, this much is kept.
const ERROR_CHARS_MAX: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    pub cause: Cause,
    pub failures: u32,
    pub since: Timestamp,
    /// Not tried again before.
    pub until: Timestamp,
    pub error: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The provider said no, or nothing.
    Call,
    /// It launched workers that never report.
    Silence,
}

/// As `elastic status` says it.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trouble { failures, since, until, error, .. } = self;
        write!(f, "{failures} failures since {since}, tried again at {until}: {error}")
    }
}

impl Fleet {
    /// A call failed, or a worker was given up.
    pub fn failed(&mut self, cause: Cause, error: &str, terms: &Terms, dice: &Dice, now: Timestamp) {
        let before = self.trouble.as_ref();
        let failures = before.map_or(1, |trouble| trouble.failures.saturating_add(1));
        let doubled = 1u32.checked_shl(failures - 1).unwrap_or(u32::MAX);
        let pause = terms.pause_first.saturating_mul(doubled).min(Terms::PAUSE_MAX);
        self.trouble = Some(Trouble {
            cause,
            failures,
            since: before.map_or(now, |trouble| trouble.since.min(now)),
            until: now.plus(dice.jitter(pause)),
            error: error.chars().take(ERROR_CHARS_MAX).collect(),
        });
    }

    /// A call went well. That says nothing about workers that never report.
    pub fn answered(&mut self) {
        if self.trouble.as_ref().is_some_and(|trouble| trouble.cause == Cause::Call) {
            self.trouble = None;
        }
    }

    pub fn may_launch(&self, now: Timestamp) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| now >= trouble.until)
    }

    /// Of so many more that are wanted, those for which room is worth making. While a queue is in trouble its neighbours keep
    /// theirs: none is held for workers that are not asked for now, and of a kind that did not come one at a time is tried.
    pub fn worth_room_for(&self, more: u32, now: Timestamp) -> u32 {
        match &self.trouble {
            None => more,
            Some(_) if self.may_launch(now) => more.min(1),
            Some(_) => 0,
        }
    }

    pub(super) fn may_end(&self, now: Timestamp) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| trouble.cause == Cause::Silence || now >= trouble.until)
    }
}
