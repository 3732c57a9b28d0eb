//! Tasks that ended badly: tried anew, one, those of a job, or those of a queue.

use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, QueueName, TaskKey};
use mutirao_core::job::{DeadTask, JobView, Retried};
use mutirao_core::{Problem, Timestamp};
use mutirao_store::refused;

use super::room::Coming;
use super::{Jobs, unstoppable};
use crate::question::Question;
use crate::store::dead::{DeadFilter, Revived, Tried, Which};

/// Jobs of a queue that are tried anew by one request; the rest needs another.
const JOBS_MAX: u64 = 10_000;

impl Jobs {
    /// Tries tasks of a job anew that ended badly, and answers with how many.
    pub async fn retry_job(&self, job: &JobView, which: Which) -> Result<u64, Problem> {
        let queue = self.queue_named(&job.queue).await?;
        let counts = &job.counts;
        let tasks = match which {
            Which::All => counts.failed + counts.timed_out + counts.lost + counts.dead,
            Which::One(_) => 1,
        };
        if queue.unreadable.is_none() && tasks > 0 {
            self.room_for(Coming::Again(job.id), tasks, &queue.spec).await?;
        }
        // What fails from now on is not tried anew by this request: it would have no end.
        let until = self.0.clock.now();
        let mut tried = 0;
        loop {
            let tasks = self.revive(job.id, &job.queue, which, until).await?;
            tried += tasks;
            if tasks == 0 || which != Which::All {
                return Ok(tried);
            }
        }
    }

    /// Tries all of a queue anew, the newest jobs first.
    pub async fn retry_queue(&self, namespace: &str, queue: &QueueName) -> Result<Retried, Problem> {
        self.queue_named(queue).await?;
        let mut sum = Retried::default();
        let mut filter = DeadFilter {
            namespace: namespace.to_owned(),
            queue: Some(queue.clone()),
            limit: 1,
            ..DeadFilter::default()
        };
        while sum.jobs < JOBS_MAX {
            let Some(next) = self.dead(filter.clone()).await?.into_iter().next() else { break };
            let job = next.task.id.job;
            let (view, _) = self.written(job).await?;
            // One that cannot be tried anew keeps none of the others from it.
            match self.retry_job(&view, Which::All).await {
                Ok(0) => {}
                Ok(tasks) => sum = Retried { tasks: sum.tasks + tasks, jobs: sum.jobs + 1 },
                Err(problem) if problem.status == 409 => {}
                // What was done before it is done: it is said, and the rest is for another try.
                Err(mut problem) => {
                    if sum.tasks > 0 {
                        let done = format!("{} tasks of {} jobs are tried anew, then: ", sum.tasks, sum.jobs);
                        problem.detail = Some(done + problem.detail.as_deref().unwrap_or(&problem.title));
                    }
                    return Err(problem);
                }
            }
            filter.after = Some(TaskKey { job, index: u32::MAX });
        }
        Ok(sum)
    }

    pub async fn dead(&self, filter: DeadFilter) -> Result<Vec<DeadTask>, Problem> {
        self.0.store.dead(filter).await.map_err(refused)
    }

    /// One step. What is written is told to the owner at once; were nobody to hear it, the owner would find it in the store.
    async fn revive(&self, job: JobKey, queue: &QueueName, which: Which, until: Timestamp) -> Result<u64, Problem> {
        let (jobs, shard) = (self.clone(), shard_of(queue));
        let revived = unstoppable(async move {
            let revived = jobs.0.store.revive(job, which, until).await.map_err(refused)?;
            if let Revived::Tasks(tasks) = &revived
                && !tasks.is_empty()
            {
                let tasks: Vec<Tried> = tasks.clone();
                jobs.0.asking.tell(shard, Question::Revive { job, tasks }).await;
                jobs.0.news.tell(vec![job]);
            }
            Ok(revived)
        })
        .await?;
        match revived {
            Revived::Tasks(tasks) => Ok(tasks.len() as u64),
            Revived::Missing => Err(Problem::not_found(format!("there is no job {job}"))),
            Revived::Cancelled => Err(Problem::conflict(format!("job {job} was cancelled as a whole"))
                .remedy("submit it again: a cancelled job is not taken up")),
            Revived::Taken(other) => {
                Err(Problem::conflict(format!("job {other} is open, and has the unique key of job {job}"))
                    .remedy("wait until that one has ended"))
            }
        }
    }
}
