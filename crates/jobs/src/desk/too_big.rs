//! Tasks that no worker of their queue can hold. They are taken out of the line, so that they are not handed out in vain,
//! keep nobody busy and call for no workers, until a worker comes that may hold them or the queue is defined anew. Workers
//! that leave change nothing: others of the same kind would be no larger.
//!
//! Where all tasks of a job need the same, it is told by what they need. Where they differ, the desk does not know what each
//! needs, and goes by which workers turned it down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mutirao_core::id::{JobKey, QueueName, TaskKey};
use mutirao_core::task::Needs;
use mutirao_queues::QueueSpec;

use super::ledger::Ledger;
use super::line::Line;
use super::maps::Map;
use super::sessions::Sessions;

#[derive(Default)]
pub struct TooBig {
    /// Jobs of which no task fits any worker.
    jobs: BTreeSet<JobKey>,
    /// Tasks of other jobs that every worker would turn down.
    tasks: BTreeSet<TaskKey>,
    /// What those workers had that turned a task down.
    turned_down: BTreeMap<TaskKey, Vec<Needs>>,
    /// The workers, by what they have, when it was last looked.
    under: Vec<Needs>,
}

impl TooBig {
    pub fn has(&self, task: TaskKey) -> bool {
        self.jobs.contains(&task.job) || self.tasks.contains(&task)
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.tasks.is_empty()
    }

    pub fn jobs(&self) -> impl Iterator<Item = JobKey> + '_ {
        self.jobs.iter().copied()
    }

    /// Tasks that are here by themselves, not with their job.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// The most that a worker had when it was last looked.
    pub fn largest(&self) -> Option<Needs> {
        let (cpus, memory) = (self.under.iter().map(|c| c.cpus).max(), self.under.iter().map(|c| c.memory).max());
        Some(Needs { cpus: cpus?, memory: memory? })
    }

    /// A worker that has this much turned a task down. True when each of these would.
    pub fn turn_down(&mut self, task: TaskKey, had: Needs, workers: &[Needs]) -> bool {
        let by = self.turned_down.entry(task).or_default();
        by.retain(|less| !holds(had, *less));
        by.push(had);
        let by_all = is_beyond(by, workers);
        if by_all {
            self.tasks.insert(task);
        }
        by_all
    }

    pub fn forget(&mut self, task: TaskKey) {
        self.tasks.remove(&task);
        self.turned_down.remove(&task);
    }

    pub fn forget_job(&mut self, job: JobKey) {
        self.jobs.remove(&job);
        let of_job = TaskKey { job, index: 0 }..=TaskKey { job, index: u32::MAX };
        let tasks: Vec<TaskKey> = self.turned_down.range(of_job).map(|(task, _)| *task).collect();
        tasks.into_iter().for_each(|task| self.forget(task));
    }
}

impl Line {
    /// The first job in line of which a task may fit one of these workers. Those before it leave the line.
    pub fn first_that_fits(&mut self, jobs: &Map<JobKey, Ledger>, workers: &[Needs]) -> Option<JobKey> {
        while let Some(job) = self.first() {
            let too_big = jobs.get(&job).is_some_and(|ledger| !may_fit(ledger, workers));
            if !too_big {
                return Some(job);
            }
            self.leave(job);
            self.too_big.jobs.insert(job);
        }
        None
    }

    /// Lets those back into the line that may fit one of these workers, if others are there than before.
    pub fn look_again(&mut self, jobs: &mut Map<JobKey, Ledger>, workers: &[Needs]) {
        if workers.is_empty() || self.too_big.under == workers {
            return;
        }
        self.too_big.under = workers.to_vec();
        let fit = |job: &JobKey| jobs.get(job).is_none_or(|ledger| may_fit(ledger, workers));
        let fitting: Vec<JobKey> = self.too_big.jobs().filter(fit).collect();
        let beyond = |task: &TaskKey| self.too_big.turned_down.get(task).is_some_and(|by| is_beyond(by, workers));
        let tasks: Vec<TaskKey> = self.too_big.tasks.iter().filter(|task| !beyond(task)).copied().collect();
        self.back(fitting, tasks, jobs);
    }

    /// Lets all of them back into the line: what was known of the workers holds no more.
    pub fn let_back(&mut self, jobs: &mut Map<JobKey, Ledger>) {
        let tasks = std::mem::take(&mut self.too_big.tasks).into_iter().collect();
        let all = std::mem::take(&mut self.too_big.jobs).into_iter().collect();
        self.too_big = TooBig::default();
        self.back(all, tasks, jobs);
    }

    fn back(&mut self, whole: Vec<JobKey>, tasks: Vec<TaskKey>, jobs: &mut Map<JobKey, Ledger>) {
        for job in whole {
            self.too_big.jobs.remove(&job);
            if let Some(ledger) = jobs.get(&job) {
                self.enter(job, &ledger.rank);
            }
        }
        for task in tasks {
            self.too_big.tasks.remove(&task);
            if let Some(ledger) = jobs.get_mut(&task.job) {
                ledger.back_in_line(task.index);
                self.enter(task.job, &ledger.rank);
            }
        }
    }

    /// Tasks that wait, and fit no worker.
    pub fn too_big_count(&self, jobs: &Map<JobKey, Ledger>) -> u64 {
        let waiting = |job| jobs.get(&job).map_or(0, |ledger| ledger.waiting().saturating_sub(self.waits_of(job)));
        self.too_big.jobs().map(waiting).sum::<u64>() + self.too_big.tasks() as u64
    }
}

/// What the workers of a queue have, and what those would that come by its definition, once any is there.
pub fn sizes(sessions: &Sessions, definition: Option<&(u64, Arc<QueueSpec>)>, queue: &QueueName) -> Vec<Needs> {
    let mut sizes = sessions.sizes(queue);
    let spec = definition.map(|(_, spec)| spec).filter(|spec| spec.elastic.is_some() && !sizes.is_empty());
    let to_come = spec.map(|spec| spec.workers_to_come()).and_then(|workers| workers.cpus.zip(workers.memory));
    sizes.extend(to_come.map(|(cpus, memory)| Needs { cpus, memory }));
    sizes
}

/// Whether one of these workers might hold a task of it. Nobody knows before there are any.
fn may_fit(ledger: &Ledger, workers: &[Needs]) -> bool {
    ledger.varied || workers.is_empty() || workers.iter().any(|worker| holds(*worker, ledger.needs))
}

/// Whether each of these workers has no more than one that turned it down.
fn is_beyond(turned_down_by: &[Needs], workers: &[Needs]) -> bool {
    workers.iter().all(|worker| turned_down_by.iter().any(|had| holds(*had, *worker)))
}

fn holds(whole: Needs, part: Needs) -> bool {
    part.cpus <= whole.cpus && part.memory <= whole.memory
}

#[cfg(test)]
mod tests;
