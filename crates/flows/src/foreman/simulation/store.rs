//! A model of the store: what is there stays as it is.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::Timestamp;

use crate::foreman::words::{Admitted, Batch, Noted, Outcome, RunEnd, RunKey, StepKey, Stored, Try};

#[derive(Default)]
pub struct Store {
    pub runs: BTreeMap<RunKey, Admitted>,
    pub outcomes: BTreeMap<StepKey, Outcome>,
    pub tries: BTreeMap<StepKey, Try>,
    pub noted: BTreeMap<StepKey, Noted>,
    pub ends: BTreeMap<RunKey, (RunEnd, Timestamp)>,
    pub announced: BTreeSet<RunKey>,
}

impl Store {
    pub fn apply(&mut self, batch: &Batch) {
        for outcome in &batch.outcomes {
            let kept = self.outcomes.entry(outcome.key).or_insert_with(|| outcome.clone());
            assert_eq!(kept.end, outcome.end, "{} ended in two ways", outcome.key);
        }
        for one in &batch.tries {
            let kept = self.tries.entry(one.key).or_insert_with(|| one.clone());
            kept.tries = kept.tries.max(one.tries);
            self.noted.remove(&one.key);
        }
        self.noted.extend(batch.noted.iter().map(|one| (one.key, one.clone())));
        for (run, end, at) in &batch.ends {
            self.ends.entry(*run).or_insert_with(|| (end.clone(), *at));
        }
        self.announced.extend(batch.announced.iter().copied());
    }

    pub fn all_announced(&self) -> bool {
        self.runs.keys().all(|run| self.announced.contains(run))
    }

    /// What a new owner must know.
    pub fn read(&self) -> Vec<Stored> {
        let open = self.runs.values().filter(|run| !self.announced.contains(&run.key));
        open.map(|admitted| {
            let run = admitted.key;
            Stored {
                admitted: admitted.clone(),
                outcomes: self.outcomes.values().filter(|one| one.key.run == run).cloned().collect(),
                tries: self.tries.values().filter(|one| one.key.run == run).cloned().collect(),
                noted: self.noted.values().filter(|one| one.key.run == run).cloned().collect(),
                end: self.ends.get(&run).cloned(),
            }
        })
        .collect()
    }
}
