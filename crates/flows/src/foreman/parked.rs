//! Who waits for a node with room, by what they want of it, the oldest first. Each stands there once, and leaves when it is
//! its turn or when it looks again by itself: nobody stays whose run is over.

use std::collections::BTreeMap;

use mutirao_core::Mono;
use mutirao_nodes::ActionName;

use super::clockwork::{Alarm, Clockwork, Due};
use super::words::StepKey;

#[derive(Debug, Default)]
pub struct Parked {
    lines: BTreeMap<ActionName, BTreeMap<u64, (StepKey, Alarm)>>,
    came: u64,
}

impl Parked {
    pub fn waiting(&self, action: &ActionName) -> usize {
        self.lines.get(action).map_or(0, BTreeMap::len)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lines.values().map(BTreeMap::len).sum()
    }

    /// Until it is its turn, or then.
    pub fn join(&mut self, action: ActionName, key: StepKey, until: Mono, clockwork: &mut Clockwork) {
        self.came += 1;
        let alarm = clockwork.set(until, Due::Parked(action.clone(), self.came));
        self.lines.entry(action).or_default().insert(self.came, (key, alarm));
    }

    /// Its alarm has rung.
    pub fn leave(&mut self, action: &ActionName, place: u64) -> Option<StepKey> {
        let line = self.lines.get_mut(action)?;
        let left = line.remove(&place);
        if line.is_empty() {
            self.lines.remove(action);
        }
        left.map(|(key, _)| key)
    }

    /// The first in its line.
    pub fn next(&mut self, action: &ActionName, clockwork: &mut Clockwork) -> Option<StepKey> {
        let line = self.lines.get_mut(action)?;
        let first = line.pop_first();
        if line.is_empty() {
            self.lines.remove(action);
        }
        first.map(|(_, (key, alarm))| {
            clockwork.unset(alarm);
            key
        })
    }
}
