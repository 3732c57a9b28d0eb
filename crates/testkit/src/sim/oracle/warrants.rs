//! Whether a worker was given up with reason: it died or left, or no beat of it reached the broker for as long as a lease. A
//! worker that lives and beats is never given up, so no task of its is ever lost or dead by it.
//!
//! Beats are noted where they reach the broker: that its owner was frozen, or could not write, or saw the broker away, is no
//! excuse. Only where the owner could not know that it hears nothing is there one ([`Warrants::excuse`]).

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::id::SessionId;

use super::super::ground::SECOND;
use super::super::weather::{LEASE, RATES, Weather};

/// What ordinary travelling and ticking may add to a silence.
const SLACK_US: u64 = SECOND;

#[derive(Default)]
pub struct Warrants {
    beat_at_us: BTreeMap<SessionId, u64>,
    /// Sessions that are gone, or were silent for too long.
    suspects: BTreeSet<SessionId>,
    silence_us: u64,
    excuse: Option<&'static str>,
}

impl Warrants {
    pub fn of(weather: &Weather) -> Self {
        let slowest_us = if weather.slow_letters_per_mille > 0 { weather.slow_letter_us } else { 0 };
        let lease_us = (LEASE.as_micros() as f64 / RATES.1) as u64;
        Self { silence_us: lease_us.saturating_sub(slowest_us + SLACK_US), ..Self::default() }
    }

    /// From here on nothing can be said about who was given up.
    pub fn excuse(&mut self, why: &'static str) {
        self.excuse.get_or_insert(why);
    }

    /// A beat of a session has reached the broker.
    pub fn beat(&mut self, session: &SessionId, now_us: u64) {
        let last_us = self.beat_at_us.insert(session.clone(), now_us).unwrap_or(now_us);
        if now_us - last_us >= self.silence_us {
            self.suspects.insert(session.clone());
        }
    }

    pub fn gone(&mut self, session: &SessionId) {
        self.suspects.insert(session.clone());
    }

    /// How long ago a session beat that was given up all the same.
    pub fn wronged(&self, session: &SessionId, now_us: u64) -> Option<u64> {
        let silent_us = now_us - self.beat_at_us.get(session).copied().unwrap_or_default();
        let warranted = self.excuse.is_some() || self.suspects.contains(session) || silent_us >= self.silence_us;
        (!warranted).then_some(silent_us)
    }
}
