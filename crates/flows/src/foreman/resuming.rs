//! Tasks that nodes are at while their owner changes. Where one is gets written down, beside what else is written: at once,
//! unless the last task of its action was over in no time; then once it has been there for a while, and one that ends sooner
//! costs nothing. Whoever reads the run back asks that node for it again, under
//! the same attempt: a node that remembers what it was asked goes on with it, or says again what came of it.
//!
//! A node that does not come back in time, or has no room for it, is not waited for: another gets it, as a new attempt.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::id::Attempt;

use super::run::Run;
use super::words::{Noted, StepKey, Stored};
use super::{Foreman, Now};

/// Actions that are known to be quick; tasks of others are written down at once.
const QUICK_MAX: usize = 1_000;

impl Foreman {
    pub(super) fn take_back(&mut self, stored: Stored, now: Now) {
        let Stored { admitted, outcomes, tries, noted, end } = stored;
        let mut run = Run::new(admitted, outcomes, tries);
        run.stored_noted = noted.into_iter().map(|one| ((one.key.step, one.key.item), one)).collect();
        run.resume_until = now.mono.plus(self.rules.resume_within);
        self.take(run, end, now);
    }

    /// Until it is written down where it is.
    pub(super) fn noted_after(&self, key: StepKey) -> Duration {
        let quick = self.action_of(key).is_some_and(|action| self.quick.contains(&action));
        if quick { self.rules.note_after } else { Duration::ZERO }
    }

    /// A task was over after so long.
    pub(super) fn took(&mut self, key: StepKey, time: Duration) {
        let Some(action) = self.action_of(key) else { return };
        if time >= self.rules.note_after {
            self.quick.remove(&action);
        } else if self.quick.len() < QUICK_MAX {
            self.quick.insert(action);
        }
    }

    pub(super) fn note(&mut self, key: StepKey, attempt: Attempt) {
        let Some(out) = self.outs.get_mut(&key).filter(|out| out.attempt == attempt) else { return };
        out.note = None;
        let noted = out.node.clone().map(|node| Noted { key, attempt, node, since: out.began_at });
        self.pending.noted.extend(noted);
    }
}

impl Run {
    /// The attempt that is to be gone on with, and where.
    pub(super) fn resumed(&mut self, key: StepKey, now: Mono) -> Option<Noted> {
        let in_time = now < self.resume_until;
        let item = self.item_mut(key)?;
        item.resume = item.resume.take().filter(|_| in_time);
        item.resume.clone()
    }
}
