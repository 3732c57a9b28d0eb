//! What is kept for the resource manager, as a trait: one implementation for each engine. What a resource manager changes is
//! fenced in the transaction that changes it; what people change is not. Each change writes its audit line with it.

pub mod ledger;
pub mod postgres;
pub mod sqlite;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{QueueName, ShardId, Timestamp, WorkerId};
use mutirao_elastic::fleet::{Member, Trouble};
use mutirao_elastic::packing::{Amounts, Kind, NodeName};
use mutirao_elastic::protocol::{GROUP, NodeRecord, Offer, OfferedNode, Record, Wish};
use mutirao_elastic::view::HistoryLine;
use mutirao_elastic::{Decision, State};
use mutirao_shards::Fence;
use mutirao_store::{Database, StoreError};

use ledger::Ledger;

pub type Shared = Arc<dyn FleetStore>;

/// The store in a database that has had the engine's migrations applied, after those of `shards`.
pub fn open(database: &Database) -> Shared {
    match database {
        Database::Sqlite(sqlite) => Arc::new(sqlite.clone()),
        Database::Postgres(postgres) => Arc::new(postgres.clone()),
    }
}

/// Requests are kept this long: nobody asks again after so much time.
pub(crate) const REQUEST_KEPT_MS: i64 = 3_600_000;

/// The one shard of the group.
pub const SHARD: ShardId = ShardId(0);

/// What a write of the resource manager of this generation claims to speak for.
pub fn fence(generation: u64) -> Fence {
    Fence { group: GROUP, shard: SHARD, generation }
}

/// What became of a fenced write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written<T> {
    Done(T),
    /// Another has taken over since; nothing was written.
    Fenced,
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

/// What was last decided about a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    pub queue: QueueName,
    pub state: State,
    pub decision: Decision,
    pub trouble: Option<Trouble>,
    pub at: Timestamp,
}

/// The record of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberRow {
    pub worker: WorkerId,
    pub queue: QueueName,
    pub member: Member,
}

/// A worker to whom nothing is handed any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    pub worker: WorkerId,
    pub queue: QueueName,
    pub since: Timestamp,
    /// Who asked for it.
    pub who: String,
}

/// A node, and whether the last offer still had it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRow {
    pub node: OfferedNode,
    pub wish: Wish,
    /// None when it is gone, and kept only because of the wish.
    pub offered_at: Option<Timestamp>,
}

impl NodeRow {
    pub fn record(&self) -> NodeRecord {
        NodeRecord { node: self.node.clone(), wish: self.wish }
    }
}

/// Everything that a pass over all queues begins with. On PostgreSQL read piece by piece: the one who would change it in
/// between is the one who asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    pub decided: Vec<Decided>,
    pub members: Vec<MemberRow>,
    pub draining: Vec<Draining>,
    pub nodes: Vec<NodeRow>,
}

/// Who asked for which workers under which name.
#[derive(Clone, Debug)]
pub struct Request {
    pub queue: QueueName,
    pub name: String,
    /// Used if nobody has asked under this name before.
    pub workers: Vec<(WorkerId, NodeName)>,
    /// What each of them is given of its node.
    pub need: Option<Amounts>,
}

#[async_trait]
pub trait FleetStore: Ledger {
    async fn kept(&self) -> Result<Kept, StoreError>;

    async fn decided(&self, queue: &QueueName) -> Result<Option<Decided>, StoreError>;

    async fn member(&self, worker: &WorkerId) -> Result<Option<MemberRow>, StoreError>;

    /// Writes the records of workers that were asked for, and gives their ids; those of the first time, when this was asked
    /// before in the same generation.
    async fn create(&self, fence: Fence, request: Request, by: By) -> Result<Written<Vec<WorkerId>>, StoreError>;

    /// Keeps what was decided and done, of workers that have a record in this queue; the identities of those who are gone or
    /// dismissed are noted down to be revoked. Given back are members that have no record: nothing is written of them. What
    /// happened before `keep_from` is forgotten.
    async fn record(
        &self,
        fence: Fence,
        queue: QueueName,
        record: Record,
        keep_from: Timestamp,
        by: By,
    ) -> Result<Written<Vec<WorkerId>>, StoreError>;

    /// Writes records of workers that had none.
    async fn adopt(
        &self,
        fence: Fence,
        queue: QueueName,
        members: BTreeMap<WorkerId, Member>,
        by: By,
    ) -> Result<Written<()>, StoreError>;

    /// From here on nothing is handed to the worker. Again changes nothing. Unfenced for people.
    async fn drain(
        &self,
        fence: Option<Fence>,
        worker: WorkerId,
        queue: QueueName,
        by: By,
    ) -> Result<Written<()>, StoreError>;

    /// All that are drained, by id.
    async fn draining(&self) -> Result<Vec<Draining>, StoreError>;

    /// Lets workers be handed tasks again. Those that it did are returned.
    async fn undrain(&self, workers: Vec<WorkerId>, by: By) -> Result<Vec<WorkerId>, StoreError>;

    /// Forgets what was decided about queues that are not elastic any more and have no workers left.
    async fn forget_queues(&self, elastic: Vec<QueueName>) -> Result<(), StoreError>;

    async fn offer(&self, fence: Fence, offer: Offer, by: By) -> Result<Written<()>, StoreError>;

    /// The nodes that are offered or wanted something of, by name, and the sorts that could be had; no sorts when nobody
    /// has ever offered anything.
    async fn nodes(&self) -> Result<(Vec<NodeRow>, Option<Vec<Kind>>), StoreError>;

    /// False when there is no such node.
    async fn wish(&self, node: &NodeName, wish: Wish, by: By) -> Result<bool, StoreError>;

    /// The latest first, of one queue or all, before this number.
    async fn history(
        &self,
        queue: Option<QueueName>,
        before: i64,
        rows: u32,
    ) -> Result<Vec<(i64, HistoryLine)>, StoreError>;
}

/// JSON that this program writes itself.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("what is kept is plain data")
}

/// The word under which an enum without fields is kept.
pub(crate) fn word<T: serde::Serialize>(value: &T) -> String {
    json(value).trim_matches('"').to_owned()
}

pub(crate) fn from_word<T: serde::de::DeserializeOwned>(word: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(serde_json::Value::String(word.to_owned()))
}
