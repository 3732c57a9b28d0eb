//! How much of everything a history held, and the last look at it.

use super::super::rows::{Rows, TaskRow};
use super::Oracle;

/// What the history held, so that a test can see that it held something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub tasks: u64,
    pub runs: u64,
    pub repeats: u64,
    /// Tries that counted as lost.
    pub losses: u64,
    pub takeovers: u64,
    pub disasters: u64,
    /// Times that the broker was away for more than a moment.
    pub outages: u64,
    /// Owners that left while workers held tasks of theirs.
    pub handovers: u64,
    /// Workers that went without having been heard to the end.
    pub unheard: u64,
    /// Reports that nobody should believe.
    pub strays: u64,
    /// Times that a queue was defined, changed or deleted.
    pub queue_changes: u64,
    /// Managers that were killed and started again under their names.
    pub restarts: u64,
    /// Jobs that could not be read for a while.
    pub damaged: u64,
    /// Workers that were told to rest, and did.
    pub rested: u64,
    /// Tasks that waited for a while after a failure, and went out again.
    pub retried: u64,
    /// Times that an owner had no room for what came.
    pub full: u64,
    pub events: u64,
}

impl Oracle {
    pub fn check_all(&mut self, rows: &Rows) {
        for job in rows.jobs.keys() {
            self.check_job(rows, *job);
        }
        for (job, row) in &rows.jobs {
            self.tally.tasks += u64::from(row.definition.total);
            let losses = |task: &TaskRow| match task {
                TaskRow::Ended { losses, .. } => *losses,
                TaskRow::Again(again) => again.losses,
            };
            self.tally.losses += row.tasks.values().map(|task| u64::from(losses(task))).sum::<u64>();
            if !row.finished {
                self.fail(|| format!("{job:?} is not finished: {:?} of {}", row.counts, row.definition.total));
            }
        }
    }
}
