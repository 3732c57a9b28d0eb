//! Jobs that wait for others to end. Such a job is on nobody's desk: whoever owns its shard looks, for all of them at once,
//! which may go.
//!
//! A job can only wait for jobs that were there before it, so there are no cycles.

use async_trait::async_trait;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::{ShardId, Timestamp};
use mutirao_store::StoreError;

use super::OpenTasks;

/// Jobs of an installation that may be held back at one time.
pub const HELD_JOBS_MAX: u64 = 100_000;
/// Jobs let go in one step: bounds how long other writers wait.
pub const RELEASE_JOBS_MAX: u32 = 1_000;

/// Whether a row of `jobs` is waited for by one that is still held back: how it ended is then to be judged by.
pub(super) const WAITED_FOR: &str = "EXISTS (SELECT 1 FROM job_waits w JOIN jobs h ON h.key = w.job
    WHERE w.waited = jobs.key AND h.held IS NOT NULL AND h.finished_at IS NULL)";

/// Until when a job waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It has ended, however.
    Ended,
    /// It has ended ok. When it ends otherwise, whoever waits is cancelled.
    Ok,
}

impl Until {
    /// The number it has in the store. Never reused.
    pub fn code(self) -> i16 {
        match self {
            Until::Ended => 1,
            Until::Ok => 2,
        }
    }
}

/// What one look came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// They wait for nobody any more, and are for their owners to take in.
    pub free: Vec<(JobKey, QueueName)>,
    /// What they waited for did not end ok: with how many tasks each was cancelled.
    pub cancelled: Vec<(JobKey, u64)>,
    /// Whether others are still held back.
    pub rest: Rest,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    #[default]
    None,
    Some,
}

impl Released {
    pub fn is_empty(&self) -> bool {
        self.free.is_empty() && self.cancelled.is_empty()
    }
}

/// Said of a job whose wait came to nothing.
pub(super) fn in_vain(waited: JobKey) -> String {
    format!("it was to begin after job {waited} had ended ok, which did not")
}

#[async_trait]
pub trait HeldStore: Send + Sync {
    /// Lets some jobs of these shards go that wait for nobody any more, and cancels some that wait in vain.
    async fn release(&self, shards: Vec<ShardId>, at: Timestamp) -> Result<Released, StoreError>;
    /// Tasks of jobs that are held back, which no owner knows of.
    async fn held_tasks(&self, queue: QueueName) -> Result<OpenTasks, StoreError>;
}
