//! What jobs must remember, as a trait of its own; [`sqlite`] and [`postgres`] keep it, and one suite of behaviours holds
//! them to the same promises.
//!
//! The store arbitrates: a task's row becomes final once, and counters move only with rows that did. Even two owners
//! who both believed in themselves could not count a task twice; and whoever lost its shard writes nothing, since every
//! settlement is fenced by the generation of its lease.

mod damaged;
pub mod dead;
pub mod held;
pub mod postgres;
pub mod queues;
pub mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::blobs::LogStream;
use mutirao_core::id::{Attempt, JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::job::{JobState, JobView, TaskView};
use mutirao_core::outcome::Output;
use mutirao_core::task::{Needs, Retry, TaskSpec};
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Database, StoreError};

use crate::desk::ledger::Trace;
use crate::desk::order::Rank;
use crate::desk::{Again, Ended, SessionChange};
use crate::entries::{Kind, Segment};
use dead::DeadStore;
use held::{HeldStore, Until};
use queues::QueueStore;

pub type Shared = Arc<dyn JobStore>;

/// The jobs of a database that has had the engine's migrations applied.
pub fn open(database: &Database) -> Shared {
    match database {
        Database::Sqlite(sqlite) => Arc::new(sqlite::SqliteJobs(sqlite.clone())),
        Database::Postgres(postgres) => Arc::new(postgres::PostgresJobs(postgres.clone())),
    }
}

/// A job that was checked and may be written.
pub struct NewJob {
    pub namespace: String,
    pub owner: String,
    pub name: Option<String>,
    pub queue: QueueName,
    pub labels: String,
    pub priority: i32,
    pub spec: String,
    pub kind: Kind,
    pub first: u32,
    pub total: u32,
    pub segments: Vec<(u32, Vec<u8>)>,
    pub trace: String,
    pub created_at: Timestamp,
    /// The client's idempotency key, and a digest of what it asked.
    pub idempotency: Option<(String, Vec<u8>)>,
    /// A key that no other open job of the namespace has.
    pub unique: Option<String>,
    /// Jobs that must end first. With any, it is held back until they have.
    pub waits: Vec<(JobKey, Until)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Created {
    New(JobKey),
    /// The same request came before.
    Before(JobKey),
    /// The key was used for another request.
    Clash(JobKey),
    /// There is no such queue.
    NoQueue,
    /// This open job has the unique key.
    Taken(JobKey),
    /// There is no such job to wait for.
    NoJob(JobKey),
    /// So many are held back already.
    TooManyHeld(u64),
}

/// What a client asked under an idempotency key before.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedBefore {
    pub job: JobKey,
    pub digest: Vec<u8>,
}

impl AskedBefore {
    /// What becomes of another request under the same key.
    pub fn meets(&self, digest: &[u8]) -> Created {
        if self.digest == digest { Created::Before(self.job) } else { Created::Clash(self.job) }
    }
}

/// An unfinished job, as a new owner of its shard finds it.
pub struct OpenJob {
    pub key: JobKey,
    pub queue: QueueName,
    pub first: u32,
    pub total: u32,
    pub retry: Retry,
    pub needs: Needs,
    /// Some of its tasks may say themselves what they need.
    pub varied: bool,
    pub rank: Rank,
    pub traces: Vec<Trace>,
    /// Tasks that were tried anew so far.
    pub revived: u64,
}

/// Unfinished jobs, as far as this program can read them.
#[derive(Default)]
pub struct OpenJobs {
    pub jobs: Vec<OpenJob>,
    /// A newer program's, or damaged. They stay as they are, for whoever can read them.
    pub unreadable: Vec<Unreadable>,
}

/// A job that this program cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub job: JobKey,
    pub why: String,
}

/// What a parcel needs to know of a job.
pub struct Card {
    pub spec: Arc<TaskSpec>,
    pub trace: String,
    pub kind: Kind,
    pub first: u32,
}

/// What is written together: ends, retries, sessions.
#[derive(Debug, Default, Clone)]
pub struct Settlement {
    pub ended: Vec<Ended>,
    /// What cancelled tasks still said. Completes their rows; changes no state and no count.
    pub late: Vec<Ended>,
    pub again: Vec<Again>,
    pub sessions: Vec<SessionChange>,
    pub at: Timestamp,
}

impl Settlement {
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.late.is_empty() && self.again.is_empty() && self.sessions.is_empty()
    }
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    Written,
    /// The shard has had another owner since. Nothing was written.
    Fenced,
}

/// Which jobs to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub namespace: String,
    pub state: Option<JobState>,
    pub queue: Option<QueueName>,
    pub name: Option<String>,
    /// A label that the job has, and its value.
    pub label: Option<(String, String)>,
    pub before: Option<JobKey>,
    pub limit: u32,
}

/// What one step of removing did. A large job takes many.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forgotten {
    /// Jobs of which nothing is left.
    pub jobs: Vec<JobKey>,
    pub done: bool,
}

/// One stream of a task's output as an outcome brought it, and the attempt it is of.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptOutput {
    pub attempt: Attempt,
    pub output: Output,
}

/// How many tasks have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenTasks {
    /// In all queues of the same shard.
    pub of_shard: u64,
    pub of_queue: u64,
}

#[async_trait]
pub trait JobStore: QueueStore + DeadStore + HeldStore {
    /// Gives every open job its shard that was written before there were shards.
    async fn place(&self) -> Result<(), StoreError>;
    async fn create(&self, job: NewJob) -> Result<Created, StoreError>;
    /// What this owner's client asked under this key, if it did and it is not forgotten.
    async fn asked_before(
        &self,
        namespace: String,
        owner: String,
        key: String,
    ) -> Result<Option<AskedBefore>, StoreError>;
    /// The unfinished jobs of a shard, in order.
    async fn open_keys(&self, shard: ShardId) -> Result<Vec<JobKey>, StoreError>;
    /// Those of them of which tasks were tried anew, with how many.
    async fn revived(&self, shard: ShardId) -> Result<Vec<(JobKey, u64)>, StoreError>;
    /// Tasks that have not ended, as far as is written.
    async fn open_tasks(&self, queue: QueueName) -> Result<OpenTasks, StoreError>;
    /// Those of these jobs that are unfinished, in order; they and their tasks as of one moment. One that cannot be read
    /// keeps no other from being found.
    async fn open_jobs(&self, keys: Vec<JobKey>) -> Result<OpenJobs, StoreError>;
    /// Why nobody of this version can take up an unfinished job, if so.
    async fn unreadable(&self, job: JobKey) -> Result<Option<Unreadable>, StoreError> {
        Ok(self.open_jobs(vec![job]).await?.unreadable.pop())
    }
    /// The sessions of a shard's queues.
    async fn sessions(&self, shard: ShardId) -> Result<Vec<(SessionId, WorkerId, QueueName)>, StoreError>;
    async fn queue_of(&self, session: SessionId) -> Result<Option<QueueName>, StoreError>;
    async fn card(&self, job: JobKey) -> Result<Option<Card>, StoreError>;
    /// The segment whose first task has offset `first`.
    async fn segment(&self, job: JobKey, kind: Kind, first: u32) -> Result<Option<Segment>, StoreError>;
    /// Writes it all, or nothing: not if the fence's generation is not current.
    async fn settle(&self, settlement: Arc<Settlement>, fence: Fence) -> Result<Settling, StoreError>;
    /// Ends all tasks of a job that have not ended. False when the job was over already.
    async fn cancel(&self, job: JobKey, at: Timestamp) -> Result<bool, StoreError>;
    /// The job as written: its counts know of ends only.
    async fn job(&self, job: JobKey) -> Result<Option<(JobView, String)>, StoreError>;
    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobView>, StoreError>;
    /// Those of these that are there and in the namespace.
    async fn jobs_of(&self, namespace: String, keys: Vec<JobKey>) -> Result<Vec<JobView>, StoreError>;
    /// The index of a job's first task, and how many it has.
    async fn extent(&self, job: JobKey) -> Result<Option<(u32, u64)>, StoreError>;
    /// Tasks of a job that have a row, with indexes in [`from`, `from + size`).
    async fn tasks(&self, job: JobKey, from: u32, size: u32) -> Result<Vec<TaskView>, StoreError>;
    async fn output(&self, task: TaskKey, stream: LogStream) -> Result<Option<KeptOutput>, StoreError>;
    /// All that is kept of tasks with indexes in [`from`, `from + size`).
    async fn outputs(&self, job: JobKey, from: u32, size: u32)
    -> Result<Vec<(u32, LogStream, KeptOutput)>, StoreError>;
    /// Removes a bounded number of rows of jobs that finished before `before`, and what is remembered of changes to queues
    /// before then.
    async fn forget(&self, before: Timestamp) -> Result<Forgotten, StoreError>;
}
