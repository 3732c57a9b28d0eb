//! Whether there is room for more tasks: in their queue (`limits.waiting`), and in its shard (`jobs.waiting_max`). Looked at
//! when tasks come, by submitting or by trying anew; what comes in the same moment may pass a limit together.
//!
//! Jobs that wait for others are on nobody's desk, and count all the same.

use mutirao_core::Problem;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_queues::QueueSpec;
use mutirao_store::refused;

use super::Jobs;
use super::looks::LOOK_PATIENCE;
use crate::asking::Silent;
use crate::question::{Answer, Fit, Question};
use crate::store::OpenTasks;

/// Who said how much there is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Owner,
    Store,
}

/// Where tasks went that were taken in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Desk(Source),
    /// They wait for other jobs.
    Held,
}

/// What brings the tasks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Coming {
    Job,
    /// This job is tried anew.
    Again(JobKey),
}

impl Jobs {
    /// Refuses tasks for which there is no room, and says how their queue stands.
    pub(super) async fn room_for(
        &self,
        coming: Coming,
        tasks: u64,
        queue: &QueueSpec,
    ) -> Result<(Fit, Source), Problem> {
        let (fit, source) = self.fit(&queue.name).await?;
        let held = self.held_tasks(&queue.name).await?;
        let most = self.0.settings.waiting_max;
        let there = fit.open_tasks + held.of_shard;
        has_room(coming, tasks, there, most, "have not ended in its shard", "jobs.waiting_max")?;
        if let Some(most) = queue.limits.waiting {
            let doing = format!("wait in queue {}", queue.name);
            has_room(coming, tasks, fit.waiting + held.of_queue, most, &doing, "limits.waiting of the queue")?;
        }
        Ok((fit, source))
    }

    /// Tasks were taken in: what is remembered of their queue grows by them.
    pub(super) fn came(&self, queue: &QueueName, tasks: u64, place: Place) {
        match place {
            Place::Held => self.0.held_tallies.add(queue, tasks),
            Place::Desk(Source::Store) => self.0.tallies.add(queue, tasks),
            Place::Desk(Source::Owner) => {}
        }
    }

    /// What the owner says about a queue; when nobody answers, what is written of it, where tasks at work count as waiting.
    /// The job then waits until somebody looks after its queue again.
    async fn fit(&self, queue: &QueueName) -> Result<(Fit, Source), Problem> {
        let question = Question::Fit { queue: queue.clone() };
        let shard = shard_of(queue);
        let silent = match self.0.asking.ask(shard, question, LOOK_PATIENCE).await {
            Ok(Answer::Fit(fit)) => return Ok((fit, Source::Owner)),
            Ok(_) => Silent { shard },
            Err(silent) => silent,
        };
        tracing::debug!(%silent, "a job is taken in without asking the owner of its queue");
        let now = self.0.clock.monotonic();
        let open = match self.0.tallies.of(queue, now) {
            Some(open) => open,
            None => {
                let open = self.0.store.open_tasks(queue.clone()).await.map_err(refused)?;
                self.0.tallies.read(queue.clone(), open, now);
                open
            }
        };
        Ok((Fit { known: true, largest: None, open_tasks: open.of_shard, waiting: open.of_queue }, Source::Store))
    }

    async fn held_tasks(&self, queue: &QueueName) -> Result<OpenTasks, Problem> {
        let now = self.0.clock.monotonic();
        if let Some(held) = self.0.held_tallies.of(queue, now) {
            return Ok(held);
        }
        let held = self.0.store.held_tasks(queue.clone()).await.map_err(refused)?;
        self.0.held_tallies.read(queue.clone(), held, now);
        Ok(held)
    }
}

/// Of `there`, which do something, `most` may be: what is larger by itself never fits, another may later.
fn has_room(coming: Coming, tasks: u64, there: u64, most: u64, doing: &str, setting: &str) -> Result<(), Problem> {
    if tasks > most {
        let why = |what: &str| format!("{what} {tasks} tasks, the most at once is {most} ({setting})");
        return Err(match coming {
            Coming::Job => {
                Problem::invalid("spread", why("the job has")).remedy("submit it in parts, or raise the limit")
            }
            Coming::Again(job) => Problem::conflict(why(&format!("to try job {job} anew brings")))
                .remedy("raise the limit, or try its tasks anew one by one: `mutirao task retry ID.N`"),
        });
    }
    if there + tasks > most {
        return Err(Problem::busy(format!("{there} tasks {doing}, the most is {most} ({setting})"), 10));
    }
    Ok(())
}
