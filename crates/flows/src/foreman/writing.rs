//! One batch at a time goes to the store, until the store has it; what it means comes after.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;

use super::clockwork::Due;
use super::run::{State, Then};
use super::words::{Batch, Effect, RunKey};
use super::{Foreman, Now};

/// The store is asked again after this.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Writing {
    pub batch: Arc<Batch>,
    pub marks: Vec<u64>,
    /// None while the store has it; else when it is tried again.
    pub again_at: Option<Mono>,
}

impl Foreman {
    pub(super) fn due_write(&mut self, now: Mono) -> Option<Arc<Batch>> {
        if let Some(writing) = &mut self.writing {
            let again = writing.again_at.is_some_and(|at| at <= now);
            return again.then(|| {
                writing.again_at = None;
                writing.batch.clone()
            });
        }
        if self.pending.is_empty() {
            return None;
        }
        let next = Batch { number: self.pending.number + 1, ..Batch::default() };
        let batch = Arc::new(std::mem::replace(&mut self.pending, next));
        let marks = std::mem::take(&mut self.pending_marks);
        self.writing = Some(Writing { batch: batch.clone(), marks, again_at: None });
        Some(batch)
    }

    pub(super) fn written(&mut self, number: u64, now: Now) {
        let Some(Writing { batch, marks, .. }) = self.writing.take_if(|writing| writing.batch.number == number) else {
            return;
        };
        self.ill = false;
        let mut moved: Vec<RunKey> = Vec::new();
        let keys = batch.outcomes.iter().map(|one| one.key).chain(batch.tries.iter().map(|one| one.key));
        for key in keys {
            let Some(run) = self.runs.get_mut(&key.run) else { continue };
            let Some(item) = run.item_mut(key) else { continue };
            // A late ok may have come after a failure was sent to the store; then the next batch decides.
            match &item.state {
                State::Writing { batch, then } if *batch == number => match then {
                    Then::Done | Then::Failed => run.seal(key),
                    Then::Retry { not_before } => {
                        self.clockwork.set(*not_before, Due::Ready(key));
                        item.state = State::Ready;
                    }
                },
                _ => continue,
            }
            if moved.last() != Some(&key.run) {
                moved.push(key.run);
            }
        }
        for run in moved {
            self.advance(run, now);
        }
        for (run, end, at) in &batch.ends {
            self.announce(*run, end, *at);
        }
        for run in &batch.announced {
            self.runs.remove(run);
        }
        self.effects.extend(marks.into_iter().map(Effect::Acknowledge));
    }

    pub(super) fn unwritten(&mut self, number: u64, now: Now) {
        if let Some(writing) = self.writing.as_mut().filter(|writing| writing.batch.number == number) {
            writing.again_at = Some(now.mono.plus(PAUSE));
            self.ill = true;
        }
    }
}
