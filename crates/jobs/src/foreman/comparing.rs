//! The desk against the store, every few seconds: jobs that it has not heard of are taken in, jobs that were cancelled are
//! dropped, tasks that were tried anew are. So a word that got lost between managers costs seconds. A job that somebody speaks of is read at once.
//!
//! Reading takes time, and jobs end meanwhile. A [`Round`] remembers which, so that a job whose end was not written yet when
//! the store was read is not taken for a new one and run again.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::id::JobKey;

use super::{Effect, Foreman, Outside};
use crate::desk::Desk;
use crate::desk::ledger::Ledger;
use crate::store::OpenJob;

/// Between two comparisons.
const COMPARE: Duration = Duration::from_secs(5);
/// Jobs that were spoken of and not read yet; when they are more, everything is compared.
const WANTED_MAX: usize = 1_024;

/// What is to be read.
#[derive(Debug, PartialEq)]
pub enum Errand {
    /// The unfinished jobs of the shard, in order.
    Keys,
    /// Those of these that are unfinished.
    Jobs(Vec<JobKey>),
}

/// What was read.
pub enum Found {
    Keys {
        open: Vec<JobKey>,
        /// Those of them of which tasks were tried anew, with how many.
        revived: Vec<(JobKey, u64)>,
    },
    Jobs(Vec<OpenJob>),
    /// The store did not say.
    Nothing,
}

pub(super) struct Comparing {
    round: Option<Round>,
    /// The next step of the round, not begun yet.
    errand: Option<Errand>,
    /// Jobs that somebody says there are, and that we do not know.
    wanted: BTreeSet<JobKey>,
    /// Everything is to be compared.
    due: bool,
    last: Mono,
}

impl Comparing {
    pub fn new(now: Mono) -> Self {
        Self { round: None, errand: None, wanted: BTreeSet::new(), due: false, last: now }
    }

    pub fn tick(&mut self, now: Mono) {
        self.due |= now.since(self.last) >= COMPARE;
    }

    /// Everything, without waiting for its turn.
    pub fn soon(&mut self) {
        self.due = true;
    }

    pub fn ask_for(&mut self, job: JobKey) {
        match self.wanted.len() < WANTED_MAX {
            true => drop(self.wanted.insert(job)),
            false => self.due = true,
        }
    }

    pub fn is_over(&mut self, job: JobKey) {
        self.wanted.remove(&job);
        if let Some(round) = &mut self.round {
            round.over.insert(job);
        }
    }

    /// Where the next round begins, if one is to.
    fn first_errand(&mut self, now: Mono) -> Option<Errand> {
        let wanted = std::mem::take(&mut self.wanted);
        if std::mem::take(&mut self.due) {
            self.last = now;
            return Some(Errand::Keys);
        }
        (!wanted.is_empty()).then(|| Errand::Jobs(wanted.into_iter().collect()))
    }
}

impl<A> Foreman<A> {
    /// Begins a round, or goes on with one.
    pub(super) fn compare(&mut self, outside: Outside) -> Option<Effect<A>> {
        if !self.may_act(outside) {
            return None;
        }
        if self.comparing.round.is_none() {
            self.comparing.errand = Some(self.comparing.first_errand(outside.now.mono)?);
            self.comparing.round = Some(Round::begin(&self.desk, self.pending.unwritten()));
        }
        self.comparing.errand.take().map(Effect::Read)
    }

    pub(super) fn found(&mut self, found: Found) {
        let Some(round) = self.comparing.round.take() else { return };
        match found {
            Found::Nothing => {}
            Found::Jobs(jobs) => round.take_in(&mut self.desk, jobs),
            Found::Keys { open, revived } => {
                self.cancel_jobs(&round.cancelled(&self.desk, &open));
                let mut missed = round.unknown(&self.desk, &open);
                missed.extend(self.desk.behind(&revived));
                if !missed.is_empty() {
                    (self.comparing.round, self.comparing.errand) = (Some(round), Some(Errand::Jobs(missed)));
                }
            }
        }
    }
}

pub(super) fn admit(desk: &mut Desk, job: OpenJob) {
    let OpenJob { key, queue, first, total, retry, needs, varied, rank, traces, revived } = job;
    let mut ledger = Ledger::new(queue, first, total, retry, needs).varied(varied).ranked(rank).recall(traces);
    ledger.revived = revived;
    desk.admit(key, ledger);
}

/// One comparison under way.
struct Round {
    /// Jobs up to this number were on the desk when it began.
    admitted: u64,
    /// Not to be taken in: they ended or were cancelled, and what was read may be from before that was written.
    over: HashSet<JobKey>,
}

impl Round {
    /// `unwritten` are jobs that are over and whose last ends are not written yet.
    fn begin(desk: &Desk, unwritten: impl Iterator<Item = JobKey>) -> Self {
        Self { admitted: desk.admitted(), over: unwritten.collect() }
    }

    /// Jobs in the store that the desk does not know.
    fn unknown(&self, desk: &Desk, open: &[JobKey]) -> Vec<JobKey> {
        let new = |job: &&JobKey| !desk.knows_job(**job) && !self.over.contains(job);
        open.iter().filter(new).copied().collect()
    }

    /// Jobs on the desk that are over in the store. `open` is in order.
    fn cancelled(&self, desk: &Desk, open: &[JobKey]) -> Vec<JobKey> {
        let mut over: Vec<JobKey> =
            desk.admitted_until(self.admitted).filter(|job| open.binary_search(job).is_err()).collect();
        over.sort_unstable();
        over
    }

    fn take_in(&self, desk: &mut Desk, jobs: Vec<OpenJob>) {
        for job in jobs.into_iter().filter(|job| !self.over.contains(&job.key)) {
            match desk.knows_job(job.key) {
                true => desk.catch_up(&job),
                false => admit(desk, job),
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        round.over.insert(JobKey(3));
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
