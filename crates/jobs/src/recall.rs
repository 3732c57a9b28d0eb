//! The desk against the store: a new owner reads everything back; then, every few seconds, jobs that it has not heard of
//! are taken in and jobs that were cancelled are dropped. So a word that got lost between managers costs seconds.
//!
//! Reading takes time, and jobs end meanwhile. [`Round`] remembers which, so that a job whose end was not written yet when
//! the store was read is not taken for a new one and run again.

use std::collections::HashSet;

use mutirao_core::id::JobKey;
use mutirao_core::{Clock, ShardId};
use mutirao_store::StoreError;
use tokio::sync::mpsc;

use crate::desk::ledger::Ledger;
use crate::desk::{Desk, Now};
use crate::store::{OpenJob, Shared as Store};

/// What is to be read.
pub enum Errand {
    Keys,
    Jobs(Vec<JobKey>),
}

/// What was read.
pub enum Found {
    Keys(Vec<JobKey>),
    Jobs(Vec<OpenJob>),
    Nothing,
}

/// Reads for the foreman, one errand at a time, until it hangs up.
pub async fn run(store: Store, shard: ShardId, mut errands: mpsc::Receiver<Errand>, found: mpsc::Sender<Found>) {
    while let Some(errand) = errands.recv().await {
        let read = match errand {
            Errand::Keys => store.open_keys(shard).await.map(Found::Keys),
            Errand::Jobs(keys) => store.open_jobs(keys).await.map(Found::Jobs),
        };
        let read = read.unwrap_or_else(|error| {
            tracing::debug!(%shard, %error, "the store could not be compared with; the next round will");
            Found::Nothing
        });
        if found.send(read).await.is_err() {
            return;
        }
    }
}

/// Everything a new owner must know. Until each session has spoken, nothing goes out to its queue.
pub async fn everything(
    store: &Store,
    shard: ShardId,
    desk: &mut Desk,
    clock: &dyn Clock,
) -> Result<usize, StoreError> {
    let sessions = store.sessions(shard).await?;
    let keys = store.open_keys(shard).await?;
    let jobs = if keys.is_empty() { Vec::new() } else { store.open_jobs(keys).await? };
    // Only now can anybody be heard: however long the reading took, it counts against no lease.
    let now = Now { wall: clock.now(), mono: clock.monotonic() };
    for (session, worker, queue) in sessions {
        desk.expect(session, worker, queue, now);
    }
    let recalled = jobs.len();
    for job in jobs {
        admit(desk, job);
    }
    Ok(recalled)
}

fn admit(desk: &mut Desk, OpenJob { key, queue, first, total, retry, needs, traces }: OpenJob) {
    desk.admit(key, Ledger::new(queue, first, total, retry, needs).recall(traces));
}

/// One comparison under way.
pub struct Round {
    /// Jobs up to this number were on the desk when it began.
    admitted: u64,
    /// Not to be taken in: they ended or were cancelled, and what was read may be from before that was written.
    over: HashSet<JobKey>,
}

impl Round {
    /// `unwritten` are jobs that are over and whose last ends are not written yet.
    pub fn begin(desk: &Desk, unwritten: impl Iterator<Item = JobKey>) -> Self {
        Self { admitted: desk.admitted(), over: unwritten.collect() }
    }

    /// A job is over while the round goes on.
    pub fn is_over(&mut self, job: JobKey) {
        self.over.insert(job);
    }

    /// Jobs in the store that the desk does not know.
    pub fn unknown(&self, desk: &Desk, open: &[JobKey]) -> Vec<JobKey> {
        let new = |job: &&JobKey| !desk.knows_job(**job) && !self.over.contains(job);
        open.iter().filter(new).copied().collect()
    }

    /// Jobs on the desk that are over in the store. `open` is in order.
    pub fn cancelled(&self, desk: &Desk, open: &[JobKey]) -> Vec<JobKey> {
        desk.admitted_until(self.admitted).filter(|job| open.binary_search(job).is_err()).collect()
    }

    pub fn take_in(&self, desk: &mut Desk, jobs: Vec<OpenJob>) {
        for job in jobs.into_iter().filter(|job| !self.over.contains(&job.key)) {
            admit(desk, job);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mutirao_core::id::QueueName;
    use mutirao_core::task::{Needs, Retry};

    use super::*;

    fn desk(jobs: &[u64]) -> Desk {
        let mut desk = Desk::new(1, Duration::from_secs(10), 1);
        for job in jobs {
            desk.admit(JobKey(*job), Ledger::new(QueueName::default(), 1, 3, Retry::default(), Needs::default()));
        }
        desk
    }

    fn keys(of: &[u64]) -> Vec<JobKey> {
        of.iter().map(|key| JobKey(*key)).collect()
    }

    #[test]
    fn what_the_desk_missed_is_found_both_ways() {
        let desk = desk(&[1, 2, 5]);
        let round = Round::begin(&desk, std::iter::empty());
        let open = keys(&[1, 3, 4, 5]);
        assert_eq!(round.unknown(&desk, &open), keys(&[3, 4]));
        assert_eq!(round.cancelled(&desk, &open), keys(&[2]));
    }

    #[test]
    fn a_job_that_ends_while_the_store_is_read_is_not_run_again() {
        let desk = desk(&[1]);
        let mut round = Round::begin(&desk, keys(&[2]).into_iter());
        round.is_over(JobKey(3));
        assert_eq!(round.unknown(&desk, &keys(&[1, 2, 3, 4])), keys(&[4]));
    }

    #[test]
    fn a_job_that_came_after_the_store_was_read_is_not_taken_for_cancelled() {
        let mut desk = desk(&[1]);
        let round = Round::begin(&desk, std::iter::empty());
        desk.admit(JobKey(9), Ledger::new(QueueName::default(), 1, 3, Retry::default(), Needs::default()));
        assert_eq!(round.cancelled(&desk, &keys(&[1])), []);
    }
}
