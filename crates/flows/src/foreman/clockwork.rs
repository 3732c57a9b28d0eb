//! What is due when.

use std::collections::BTreeMap;

use mutirao_core::Mono;
use mutirao_core::id::Attempt;

use super::words::{RunKey, StepKey};

#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// Its pause is over.
    Ready(StepKey),
    /// It should have been heard of.
    Overdue(StepKey, Attempt),
    /// A whole run has taken too long.
    Run(RunKey),
}

/// What is no longer wanted stays until it is due and is then found to be of no meaning: at most one for each task that was
/// sent, gone when its time is over.
#[derive(Debug, Default)]
pub struct Clockwork {
    by_time: BTreeMap<(Mono, u64), Due>,
    set: u64,
}

impl Clockwork {
    pub fn set(&mut self, at: Mono, due: Due) {
        self.set += 1;
        self.by_time.insert((at, self.set), due);
    }

    pub fn next(&self) -> Option<Mono> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    pub fn due(&mut self, now: Mono) -> Option<Due> {
        self.next().filter(|at| *at <= now)?;
        self.by_time.pop_first().map(|(_, due)| due)
    }
}
