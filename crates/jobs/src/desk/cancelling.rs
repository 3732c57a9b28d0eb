//! Ending what somebody does not want any more: a task, a job, or many jobs at once. Workers are told by whoever asks for
//! it; what they still have of it is [dying](super::dying).

use std::collections::BTreeMap;

use mutirao_core::id::{JobKey, QueueName, TaskKey};
use mutirao_core::life::Event;

use super::usage::Spent;
use super::{Desk, Now, Pick};

impl Desk {
    /// Ends every task of these jobs that has not ended, and says which of them workers must be told of: those with tasks
    /// out. The store has written it already.
    pub fn cancel_jobs(&mut self, jobs: &[JobKey]) -> BTreeMap<QueueName, Vec<JobKey>> {
        let mut at_work: BTreeMap<QueueName, Vec<JobKey>> = BTreeMap::new();
        for job in jobs {
            if let Some(queue) = self.cancel_job(*job) {
                at_work.entry(queue).or_default().push(*job);
            }
        }
        at_work
    }

    /// Its queue, when it had tasks out.
    fn cancel_job(&mut self, job: JobKey) -> Option<QueueName> {
        let ledger = self.jobs.remove(&job)?;
        self.open -= ledger.open();
        let line = self.lines.get_mut(&ledger.queue)?;
        line.leave(job);
        line.forget_waits(job);
        line.too_big.forget_job(job);
        line.open -= ledger.open();
        let mut at_work = None;
        for (index, life) in ledger.out() {
            let (task, Some(attempt)) = (TaskKey { job, index }, life.attempt()) else { continue };
            line.came_back(&ledger.rank, ledger.needs.cpus, Spent::Unknown);
            self.dying.begin(task, attempt, &ledger.queue, line, &self.sessions);
            self.sessions.part(task, attempt);
            at_work = Some(ledger.queue.clone());
        }
        at_work
    }

    /// Ends one task. False when there is nothing to end.
    pub fn cancel_task(&mut self, task: TaskKey, now: Now) -> bool {
        let out = self.jobs.get(&task.job).and_then(|l| l.attempt_of(task.index));
        if !self.happen(task, Event::Cancelled, None, None, now) {
            return false;
        }
        if let (Some(attempt), Some(queue)) = (out, self.jobs.get(&task.job).map(|l| l.queue.clone())) {
            self.effects.stop.push((queue, Pick { task, attempt }));
        }
        self.close_if_over(task.job);
        true
    }
}
