//! One batch at a time goes to the store, until the store has it; what it means comes after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;

use super::clockwork::Due;
use super::run::{Phase, State, Then};
use super::words::{Batch, Effect, End, Outcome, RunKey, StepKey};
use super::{Foreman, Now};

/// The store is asked again after this.
const PAUSE: Duration = Duration::from_secs(1);

/// A batch that is with the store.
#[derive(Debug)]
pub struct Writing {
    pub batch: Arc<Batch>,
    pub marks: Vec<u64>,
    /// None while the store has it; else when it is tried again.
    pub again_at: Option<Mono>,
}

impl Foreman {
    pub(super) fn due_write(&mut self, now: Now) -> Option<Arc<Batch>> {
        if let Some(writing) = &mut self.writing {
            let again = writing.again_at.is_some_and(|at| at <= now.mono);
            return again.then(|| {
                writing.again_at = None;
                writing.batch.clone()
            });
        }
        if self.pending.is_empty() {
            return None;
        }
        self.end_what_ends(now);
        let next = Batch { number: self.pending.number + 1, ..Batch::default() };
        let batch = Arc::new(std::mem::replace(&mut self.pending, next));
        let marks = std::mem::take(&mut self.pending_marks);
        self.pending_bytes = 0;
        self.writing = Some(Writing { batch: batch.clone(), marks, again_at: None });
        Some(batch)
    }

    /// A run that waits for nothing but what this batch says ends with it, in the same write.
    fn end_what_ends(&mut self, now: Now) {
        let mut ended: BTreeMap<RunKey, Option<Vec<StepKey>>> = BTreeMap::new();
        for Outcome { key, end, .. } in &self.pending.outcomes {
            let keys = ended.entry(key.run).or_insert_with(|| Some(Vec::new()));
            match (end, keys) {
                (End::Ok(_), Some(keys)) => keys.push(*key),
                // How a run fails is decided once that is durable, with whatever else is.
                (End::Failed(_), keys) => *keys = None,
                (_, None) => {}
            }
        }
        for (key, keys) in ended {
            let going = self.runs.get_mut(&key).filter(|run| run.phase == Phase::Going);
            if let (Some(run), Some(keys)) = (going, keys)
                && let Some(end) = run.end_with(&keys, self.pending.number, self.rules.pace)
            {
                self.finish(key, end, now);
            }
        }
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
                State::Decided { batch, then } if *batch == number => match then {
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
            self.forget(*run);
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
