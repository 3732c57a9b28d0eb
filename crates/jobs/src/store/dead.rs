//! Tasks that ended badly: found over all jobs, and tried anew.
//!
//! Trying anew goes against "final states absorb", on purpose and by hand: the row is open again, counted as such, and keeps
//! how often the task was tried, so that whatever an earlier attempt still says is known for old.

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_core::id::{JobKey, QueueName, TaskKey};
use mutirao_core::job::DeadTask;
use mutirao_store::StoreError;

/// Tasks tried anew in one step: bounds how long other writers wait.
pub const REVIVE_TASKS_MAX: u32 = 5_000;

/// Failed, timed out, lost and dead, as [`mutirao_core::life::Final::code`] has them.
pub(super) const DEAD_STATES: &str = "(2, 3, 5, 6)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    One(u32),
}

/// A task that may be tried again, and how often it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tried {
    pub index: u32,
    pub tries: u32,
}

/// What one step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revived {
    Missing,
    /// The whole job was cancelled.
    Cancelled,
    /// This open job has its unique key now.
    Taken(JobKey),
    /// None when there was nothing left.
    Tasks(Vec<Tried>),
}

/// Which tasks to list: the newest job's first, in it by index.
#[derive(Clone, Debug, Default)]
pub struct DeadFilter {
    pub namespace: String,
    pub queue: Option<QueueName>,
    pub job: Option<JobKey>,
    pub after: Option<TaskKey>,
    pub limit: u32,
}

#[async_trait]
pub trait DeadStore: Send + Sync {
    async fn dead(&self, filter: DeadFilter) -> Result<Vec<DeadTask>, StoreError>;
    /// Has some tasks of a job that ended badly by `until` tried again.
    async fn revive(&self, job: JobKey, which: Which, until: Timestamp) -> Result<Revived, StoreError>;
}
