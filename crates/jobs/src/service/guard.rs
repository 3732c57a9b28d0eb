//! Who may write the log of a task.

use async_trait::async_trait;
use mutirao_core::auth::Principal;
use mutirao_core::id::{Attempt, TaskKey, WorkerId};
use mutirao_core::{Problem, limits};
use mutirao_surface::BlobGuard;

use super::Jobs;
use super::looks::ACT_PATIENCE;
use crate::asking::Silent;
use crate::question::{Answer, Question};

/// A worker writes the logs of what it holds, and of nothing else.
#[async_trait]
impl BlobGuard for Jobs {
    /// What a worker keeps of a stream, and the line that says where it was cut.
    fn bytes_max(&self) -> u64 {
        limits::OUTPUT_BYTES_MAX + 1_024
    }

    async fn may_append(&self, caller: &Principal, key: &str) -> Result<(), Problem> {
        let bad = || Problem::forbidden(format!("\"{key}\" is not the log of a task"));
        let mut parts = key.split('/');
        let (Some("logs"), Some(job), Some(index), Some(attempt)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        if !matches!((parts.next(), parts.next()), (Some("stdout" | "stderr"), None)) {
            return Err(bad());
        }
        let (generation, n) = attempt.split_once('-').ok_or_else(bad)?;
        let task = TaskKey { job: job.parse().map_err(|_| bad())?, index: index.parse().map_err(|_| bad())? };
        let attempt = Attempt { generation: generation.parse().map_err(|_| bad())?, n: n.parse().map_err(|_| bad())? };
        let worker = WorkerId(caller.id.clone());
        let denied = || Problem::forbidden(format!("task {task} attempt {attempt} is not with this worker"));
        let shard = self.home_of(task.job).await?.ok_or_else(denied)?;
        match self.0.asking.ask(shard, Question::Holds { worker, task, attempt }, ACT_PATIENCE).await? {
            Answer::Holds(true) => Ok(()),
            Answer::Holds(false) => Err(denied()),
            _ => Err(Silent { shard }.into()),
        }
    }
}
