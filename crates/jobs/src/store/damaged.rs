//! Rows of tasks that cannot be read. Such a job is held as it is, and no other: what became of its tasks is not known, so
//! running them again might run what has ended.

use std::collections::BTreeMap;
use std::fmt::Display;

use mutirao_core::id::JobKey;

use super::{OpenJob, Unreadable};

#[derive(Default)]
pub(super) struct Damaged(BTreeMap<JobKey, String>);

impl Damaged {
    /// The first of a job says why.
    pub fn found(&mut self, job: JobKey, error: impl Display) {
        self.0.entry(job).or_insert_with(|| format!("what is written of its tasks is damaged: {error}"));
    }

    /// From those that can be taken up to those that cannot.
    pub fn set_apart(self, jobs: &mut Vec<OpenJob>, unreadable: &mut Vec<Unreadable>) {
        if self.0.is_empty() {
            return;
        }
        jobs.retain(|job| !self.0.contains_key(&job.key));
        unreadable.extend(self.0.into_iter().map(|(job, why)| Unreadable { job, why }));
        unreadable.sort_unstable_by_key(|unreadable| unreadable.job);
    }
}
