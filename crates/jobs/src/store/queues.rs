//! What is remembered of queues: their definitions, and who changed them. Part of the store of jobs, because a job must
//! not slip into a queue that is being deleted.

use async_trait::async_trait;
use mutirao_core::id::QueueName;
use mutirao_core::{JobKey, Problem, ShardId, Timestamp};
use mutirao_queues::QueueSpec;
use mutirao_queues::explain::unreadable;
use mutirao_store::StoreError;
use serde::{Deserialize, Serialize};

/// A queue as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueRow {
    pub spec: QueueSpec,
    pub revision: u64,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    pub changed_by: String,
    /// Why this program cannot read the definition, if so: then it holds the queue, and `spec` says no more than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl QueueRow {
    /// A refusal for whatever needs the definition, when it cannot be read.
    pub(crate) fn readable(self) -> Result<QueueRow, Problem> {
        let Some(why) = &self.unreadable else { return Ok(self) };
        let name = &self.spec.name;
        Err(Problem::conflict(unreadable::sentence(name, why)).remedy(unreadable::remedy(name)))
    }
}

/// A definition as it lies in the store.
pub(crate) struct Written {
    pub name: QueueName,
    pub definition: String,
    pub revision: u64,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    pub changed_by: String,
}

impl Written {
    /// One that cannot be read (a newer program's, or damaged) is a paused queue: its tasks wait, and no other queue minds.
    pub fn or_held(self) -> QueueRow {
        let Self { name, definition, revision, created_at, changed_at, changed_by } = self;
        // A manager of the next version, on the same database, may know more fields.
        let (spec, unreadable) = match mutirao_core::tolerant::read(definition.as_bytes()) {
            Ok(spec) => (spec, None),
            Err(error) => (QueueSpec { paused: true, ..QueueSpec::new(name) }, Some(error.to_string())),
        };
        QueueRow { spec, revision, created_at, changed_at, changed_by, unreadable }
    }
}

/// A queue that is no more, and the revision that its deletion has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    pub queue: QueueName,
    pub revision: u64,
}

/// Who changes something, and when.
#[derive(Clone, Debug)]
pub struct By {
    /// The id, for the audit.
    pub who: String,
    /// What people call them, for people.
    pub name: String,
    pub at: Timestamp,
}

/// What must be there for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Absent,
    /// This revision, and no later one.
    Revision(u64),
    Anything,
}

impl Expected {
    /// Whether a change may be made to what is there.
    pub fn fits(self, there: Option<u64>) -> bool {
        match (self, there) {
            (Expected::Anything, _) | (Expected::Absent, None) => true,
            (Expected::Revision(revision), there) => there == Some(revision),
            _ => false,
        }
    }
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Put {
    Created(QueueRow),
    Changed(QueueRow),
    /// Something else is there than was expected; nothing was written.
    Unexpected(Option<QueueRow>),
}

/// What becomes of the unfinished jobs of a queue that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// There must not be any.
    Refuse,
    Cancel,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Deleted {
    /// Under this revision; these jobs were cancelled, and so many tasks of them.
    Gone {
        revision: u64,
        cancelled: Vec<JobKey>,
        tasks: u64,
    },
    /// So many jobs are unfinished, with so many tasks that have not ended. Nothing was written.
    Busy {
        jobs: u64,
        tasks: u64,
    },
    Missing,
}

#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// Those changed after this revision, by name. Changes become visible in the order of their revisions. One whose
    /// definition cannot be read is there, paused.
    async fn queues(&self, after: u64) -> Result<Vec<QueueRow>, StoreError>;
    /// Those of a shard, in the same way.
    async fn queues_of(&self, shard: ShardId) -> Result<Vec<QueueRow>, StoreError>;
    /// Those deleted after this revision, as far as that is still remembered.
    async fn removed_queues(&self, after: u64) -> Result<Vec<Removed>, StoreError>;
    /// One, in the same way.
    async fn queue(&self, name: QueueName) -> Result<Option<QueueRow>, StoreError>;
    /// Replaces also what cannot be read.
    async fn put_queue(&self, spec: QueueSpec, expected: Expected, by: By) -> Result<Put, StoreError>;
    /// It and, if that is wanted, its unfinished jobs: all or nothing.
    async fn delete_queue(&self, name: QueueName, unfinished: Unfinished, by: By) -> Result<Deleted, StoreError>;
}
