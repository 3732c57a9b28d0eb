//! What is due when.

use std::collections::BTreeMap;

use mutirao_core::Mono;
use mutirao_core::id::Attempt;
use mutirao_nodes::ActionName;

use super::words::{RunKey, StepKey};

#[derive(Clone, Debug)]
pub enum Due {
    /// Its pause is over.
    Ready(StepKey),
    /// Whoever has this place in the line for that action looks again, room or not.
    Parked(ActionName, u64),
    /// It has been with its node for a while.
    Noted(StepKey, Attempt),
    /// It should have been heard of.
    Overdue(StepKey, Attempt),
    /// A whole run has taken too long.
    Run(RunKey),
}

/// By which it can be taken back.
pub type Alarm = (Mono, u64);

#[derive(Debug, Default)]
pub struct Clockwork {
    by_time: BTreeMap<Alarm, Due>,
    set: u64,
}

impl Clockwork {
    pub fn set(&mut self, at: Mono, due: Due) -> Alarm {
        self.set += 1;
        self.by_time.insert((at, self.set), due);
        (at, self.set)
    }

    /// It is of no meaning any more. One that was due already is no mistake.
    pub fn unset(&mut self, alarm: Alarm) {
        self.by_time.remove(&alarm);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    pub fn next(&self) -> Option<Mono> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    pub fn due(&mut self, now: Mono) -> Option<Due> {
        self.next().filter(|at| *at <= now)?;
        self.by_time.pop_first().map(|(_, due)| due)
    }
}
