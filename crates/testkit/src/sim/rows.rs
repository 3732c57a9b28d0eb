//! The jobs in the store, by the rules that `jobs::store` sets and both engines keep: an end absorbs, counters move only
//! with rows that did, a job that is over takes nothing more, a key makes one job, a queue takes its jobs along.

mod queues;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use mutirao_core::id::{Attempt, JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::job::Counts;
use mutirao_core::life::Final;
use mutirao_jobs::desk::ledger::Trace;
use mutirao_jobs::desk::{Again, Ended, SessionChange};
use mutirao_jobs::store::{OpenJob, Settlement};
use mutirao_shards::ShardId;

use super::flaw::Flaw;
use super::weather::shard_of_queue;
use super::wire::{Created, Definition, Loaded, QueueChange, QueueWord};
pub use queues::Queues;

#[derive(Clone, Debug)]
pub enum TaskRow {
    Again(Again),
    Ended { how: Final, attempt: Option<Attempt>, failures: u32, losses: u32 },
}

pub struct JobRow {
    pub definition: Rc<Definition>,
    pub counts: Counts,
    pub cancelled: bool,
    pub finished: bool,
    pub tasks: BTreeMap<u32, TaskRow>,
    /// Until when nobody can read it.
    damaged_until_us: u64,
}

#[derive(Default)]
pub struct Rows {
    pub jobs: BTreeMap<JobKey, JobRow>,
    keys: BTreeMap<u64, JobKey>,
    sessions: BTreeMap<SessionId, (WorkerId, QueueName)>,
    pub queues: Queues,
    /// Workers that are to take nothing new.
    pub resting: BTreeSet<WorkerId>,
}

impl Rows {
    pub fn unfinished(&self) -> Vec<JobKey> {
        self.jobs.iter().filter(|(_, row)| !row.finished).map(|(job, _)| *job).collect()
    }

    pub fn damage(&mut self, job: JobKey, until_us: u64) {
        if let Some(row) = self.jobs.get_mut(&job) {
            row.damaged_until_us = until_us;
        }
    }

    /// Everything can be read again, and nobody is to rest.
    pub fn recover(&mut self) {
        self.jobs.values_mut().for_each(|row| row.damaged_until_us = 0);
        self.resting.clear();
    }

    /// The unfinished jobs of a shard, whether they can be read or not.
    pub fn open_keys(&self, shard: ShardId) -> Vec<JobKey> {
        let open = self.jobs.iter().filter(|(_, row)| !row.finished && row.definition.shard == shard);
        open.map(|(job, _)| *job).collect()
    }

    /// None when there is no such queue.
    pub fn create(&mut self, key: u64, definition: Rc<Definition>, flaw: Option<Flaw>) -> Option<(JobKey, Created)> {
        if let Some(job) = self.keys.get(&key).filter(|_| flaw != Some(Flaw::ForgetsKeys)) {
            return Some((*job, Created::Before));
        }
        if !self.queues.has(&definition.queue) {
            return None;
        }
        let job = JobKey(self.jobs.len() as u64 + 1);
        let (counts, tasks) = (Counts::default(), BTreeMap::new());
        let row = JobRow { definition, counts, cancelled: false, finished: false, tasks, damaged_until_us: 0 };
        self.jobs.insert(job, row);
        self.keys.insert(key, job);
        Some((job, Created::New))
    }

    /// What is written of the queue, if the change is not too late, and the jobs that went with it.
    pub fn change_queue(&mut self, change: &QueueChange) -> (Option<QueueWord>, Vec<JobKey>) {
        let word = self.queues.change(change);
        let gone = matches!(word, Some(QueueWord::Removed(_)));
        let of_queue = |row: &JobRow| gone && !row.finished && row.definition.queue == change.queue;
        let jobs: Vec<JobKey> = self.jobs.iter().filter(|(_, row)| of_queue(row)).map(|(job, _)| *job).collect();
        jobs.iter().for_each(|job| drop(self.cancel(*job)));
        (word, jobs)
    }

    /// Where the job is, if there was something to cancel.
    pub fn cancel(&mut self, job: JobKey) -> Option<(ShardId, QueueName)> {
        let row = self.jobs.get_mut(&job).filter(|row| !row.finished)?;
        let ended = row.counts.ended() - row.counts.cancelled;
        row.counts.cancelled = u64::from(row.definition.total) - ended;
        (row.cancelled, row.finished) = (true, true);
        Some((row.definition.shard, row.definition.queue.clone()))
    }

    /// What can be read of a shard.
    pub fn load(&self, shard: ShardId, now_us: u64) -> Loaded {
        let open = self.jobs.iter().filter(|(_, row)| !row.finished && row.definition.shard == shard);
        let open = open.filter(|(_, row)| row.damaged_until_us <= now_us);
        let jobs = open.map(|(key, row)| {
            let definition = &row.definition;
            let open = OpenJob {
                key: *key,
                queue: definition.queue.clone(),
                first: definition.first,
                total: definition.total,
                retry: definition.retry,
                needs: definition.needs,
                varied: false,
                rank: definition.rank.clone(),
                traces: row.tasks.iter().map(|(index, row)| trace(*index, row)).collect(),
                revived: 0,
            };
            (open, definition.clone())
        });
        let sessions = self.sessions.iter().filter(|(_, (_, queue))| shard_of_queue(queue) == shard);
        Loaded {
            jobs: jobs.collect(),
            sessions: sessions.map(|(id, (worker, queue))| (id.clone(), worker.clone(), queue.clone())).collect(),
            queues: self.queues.of(shard),
        }
    }

    pub fn settle(&mut self, settlement: &Settlement, flaw: Option<Flaw>) {
        for ended in &settlement.ended {
            self.end(ended, flaw);
        }
        for late in &settlement.late {
            self.complete(late);
        }
        for again in &settlement.again {
            let Some(row) = self.jobs.get_mut(&again.task.job).filter(|row| !row.finished) else { continue };
            let task = row.tasks.entry(again.task.index).or_insert(TaskRow::Again(*again));
            if let TaskRow::Again(before) = task
                && again.tries >= before.tries
            {
                *task = TaskRow::Again(*again);
            }
        }
        for change in settlement.sessions.iter().filter(|_| flaw != Some(Flaw::ForgetsSessions)) {
            match change {
                SessionChange::Came(session, worker, queue) => {
                    self.sessions.insert(session.clone(), (worker.clone(), queue.clone()));
                }
                SessionChange::Went(session) => drop(self.sessions.remove(session)),
            }
        }
    }

    fn end(&mut self, ended: &Ended, flaw: Option<Flaw>) {
        let Some(row) = self.jobs.get_mut(&ended.task.job).filter(|row| !row.finished) else { return };
        let was_final = match row.tasks.get(&ended.task.index) {
            Some(TaskRow::Ended { .. }) => true,
            // A bad end of an attempt that the row knows of was written before, and the task is tried anew since.
            Some(TaskRow::Again(before)) => {
                let is_bad = !matches!(ended.how, Final::Ok | Final::Cancelled);
                is_bad && ended.attempt.is_none_or(|attempt| attempt.n <= before.tries)
            }
            None => false,
        };
        if !was_final {
            let now = TaskRow::Ended {
                how: ended.how,
                attempt: ended.attempt,
                failures: ended.failures,
                losses: ended.losses,
            };
            row.tasks.insert(ended.task.index, now);
        }
        if !was_final || flaw == Some(Flaw::CountsRepeats) {
            *row.counts.of(ended.how) += 1;
            row.finished = row.counts.ended() == u64::from(row.definition.total);
        }
    }

    /// What a cancelled task still said: changes no state and no count.
    fn complete(&mut self, late: &Ended) {
        let Some(row) = self.jobs.get_mut(&late.task.job).filter(|row| row.cancelled) else { return };
        if !matches!(row.tasks.get(&late.task.index), Some(TaskRow::Ended { .. })) {
            let now = TaskRow::Ended { how: Final::Cancelled, attempt: late.attempt, failures: 0, losses: 0 };
            row.tasks.insert(late.task.index, now);
        }
    }

    /// How a task ended, by its own row or with its whole job.
    pub fn end_of(&self, task: TaskKey) -> Option<Final> {
        let row = self.jobs.get(&task.job)?;
        match row.tasks.get(&task.index) {
            Some(TaskRow::Ended { how, .. }) => Some(*how),
            _ => row.cancelled.then_some(Final::Cancelled),
        }
    }

    pub fn all_finished(&self) -> bool {
        self.jobs.values().all(|row| row.finished)
    }
}

fn trace(index: u32, row: &TaskRow) -> Trace {
    match row {
        TaskRow::Ended { .. } => Trace::Ended(index),
        TaskRow::Again(Again { tries, failures, losses, not_before, .. }) => {
            Trace::Again { index, tries: *tries, failures: *failures, losses: *losses, not_before: *not_before }
        }
    }
}

#[cfg(test)]
mod tests;
