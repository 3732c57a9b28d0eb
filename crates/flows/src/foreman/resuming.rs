//! Tasks that nodes are at while their owner changes. Where one is gets written down once it has been there for a while, beside
//! what else is written; a task that ends sooner costs nothing. Whoever reads the run back asks that node for it again, under
//! the same attempt: a node that remembers what it was asked goes on with it, or says again what came of it.
//!
//! A node that does not come back in time, or has no room for it, is not waited for: another gets it, as a new attempt.

use mutirao_core::Mono;
use mutirao_core::id::Attempt;
use mutirao_nodes::NodeId;

use super::run::Run;
use super::words::{Noted, StepKey, Stored};
use super::{Foreman, Now};

impl Foreman {
    pub(super) fn take_back(&mut self, stored: Stored, now: Now) {
        let Stored { admitted, outcomes, tries, noted, end } = stored;
        let mut run = Run::new(admitted, outcomes, tries);
        run.stored_noted =
            noted.into_iter().map(|one| ((one.key.step, one.key.item), (one.attempt, one.node))).collect();
        run.resume_until = now.mono.plus(self.rules.resume_within);
        self.take(run, end, now);
    }

    pub(super) fn note(&mut self, key: StepKey, attempt: Attempt) {
        let Some(out) = self.outs.get_mut(&key).filter(|out| out.attempt == attempt) else { return };
        out.note = None;
        let noted = out.node.clone().map(|node| Noted { key, attempt, node });
        self.pending.noted.extend(noted);
    }
}

impl Run {
    /// The attempt that is to be gone on with, and where.
    pub(super) fn resumed(&mut self, key: StepKey, now: Mono) -> Option<(Attempt, NodeId)> {
        let in_time = now < self.resume_until;
        let item = self.item_mut(key)?;
        item.resume = item.resume.take().filter(|_| in_time);
        item.resume.clone()
    }
}
