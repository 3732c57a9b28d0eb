//! What monitors must remember, as a trait of its own; [`sqlite`] and [`postgres`] keep it, and one suite of behaviours holds
//! them to the same promises.
//!
//! The store arbitrates: the outcome of an instant is written once, whoever tells it. And whoever lost its shard writes
//! nothing, since every settlement is fenced by the generation of its lease.

pub mod alerts;
pub mod postgres;
pub mod pushes;
pub mod rolls;
pub mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Database, StoreError};

use crate::alerts::Raised;
use crate::grid::MonitorKey;
use crate::health::{Health, Verdict};
use crate::spec::MonitorSpec;

pub type Shared = Arc<dyn MonitorStore>;

/// The monitors of a database that has had the engine's migrations applied.
pub fn open(database: &Database) -> Shared {
    match database {
        Database::Sqlite(sqlite) => Arc::new(sqlite::SqliteMonitors(sqlite.clone())),
        Database::Postgres(postgres) => Arc::new(postgres::PostgresMonitors(postgres.clone())),
    }
}

/// A monitor as written.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorRow {
    pub key: MonitorKey,
    /// What its phase is taken from.
    pub uuid: String,
    pub shard: ShardId,
    pub spec: MonitorSpec,
    pub revision: u64,
    pub namespace: String,
    pub owner: String,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    pub changed_by: String,
    pub removed_at: Option<Timestamp>,
}

/// Who changes something, where and when.
#[derive(Clone, Debug)]
pub struct By {
    pub namespace: String,
    pub who: String,
    pub at: Timestamp,
}

/// What must be there for a definition to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Absent,
    /// This revision, and no later one.
    Revision(u64),
    Anything,
}

impl Expected {
    fn fits(self, there: Option<u64>) -> bool {
        match self {
            Expected::Anything => true,
            Expected::Absent => there.is_none(),
            Expected::Revision(revision) => there == Some(revision),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Put {
    Created(MonitorRow),
    Changed(MonitorRow),
    /// Something else is there than was expected; nothing was written.
    Unexpected(Option<MonitorRow>),
}

/// One that is not there yet.
#[derive(Clone, Debug)]
pub struct Newcomer {
    pub uuid: String,
    pub shard: ShardId,
    pub spec: MonitorSpec,
}

/// The outcome of an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub monitor: MonitorKey,
    pub at: Timestamp,
    pub verdict: Verdict,
    /// Microseconds; none when there was no answer.
    pub took_us: Option<u64>,
    /// Why it is bad, or what is worth knowing.
    pub detail: Option<String>,
    /// Bad within a maintenance window: it counts neither way.
    pub excused: bool,
}

/// A time during which a monitor was down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    pub monitor: MonitorKey,
    pub opened_at: Timestamp,
    /// The first of the bad outcomes.
    pub since: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub evidence: String,
}

/// What to write of one round over a shard: all of it or nothing.
#[derive(Clone, Debug, Default)]
pub struct Settlement {
    pub fired_until: Option<Timestamp>,
    pub outcomes: Vec<Outcome>,
    pub health: Vec<(MonitorKey, Health)>,
    pub opened: Vec<Incident>,
    /// Open incidents of these end now.
    pub closed: Vec<(MonitorKey, Timestamp)>,
    /// Those that were raised before are left as they are.
    pub alerts: Vec<Raised>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// So many of its outcomes were new.
    Written { new: u64 },
    /// The shard has another owner; nothing was written.
    Fenced,
}

/// What an owner begins with.
#[derive(Clone, Debug, Default)]
pub struct Recalled {
    pub monitors: Vec<MonitorRow>,
    pub health: Vec<(MonitorKey, Health)>,
    pub fired_until: Option<Timestamp>,
}

#[async_trait]
pub trait MonitorStore: Send + Sync + 'static {
    async fn put(&self, monitor: Newcomer, expected: Expected, by: By) -> Result<Put, StoreError>;
    /// All of them or none: where something else is there than was expected, that alone is the answer. Each name once.
    async fn put_all(&self, all: Vec<(Newcomer, Expected)>, by: By) -> Result<Vec<Put>, StoreError>;
    /// Whether it was there.
    async fn remove(&self, name: String, by: By) -> Result<bool, StoreError>;
    async fn monitor(&self, namespace: String, name: String) -> Result<Option<MonitorRow>, StoreError>;
    /// Those of these names that are there, in any order.
    async fn named(&self, namespace: String, names: Vec<String>) -> Result<Vec<MonitorRow>, StoreError>;
    /// By name, those after this one.
    async fn page(&self, namespace: String, after: String, rows: u32) -> Result<Vec<MonitorRow>, StoreError>;
    /// Those changed after this revision, also those removed, in the order of their revisions.
    async fn changed(&self, after: u64, rows: u32) -> Result<Vec<MonitorRow>, StoreError>;
    async fn recall(&self, shard: ShardId) -> Result<Recalled, StoreError>;
    async fn settle(&self, fence: Fence, settlement: Settlement) -> Result<Settling, StoreError>;
    async fn health(&self, monitors: Vec<MonitorKey>) -> Result<Vec<(MonitorKey, Health)>, StoreError>;
    /// The latest first, those before a moment.
    async fn outcomes(&self, monitor: MonitorKey, before: Timestamp, rows: u32) -> Result<Vec<Outcome>, StoreError>;
    /// Good and bad ones since a moment.
    async fn counts(&self, monitor: MonitorKey, since: Timestamp) -> Result<(u64, u64), StoreError>;
    /// The latest first.
    async fn incidents(&self, monitor: MonitorKey, rows: u32) -> Result<Vec<Incident>, StoreError>;
    /// Removes some outcomes older than a moment, and what is left of monitors removed before it; says how many.
    async fn sweep(&self, before: Timestamp, rows: u32) -> Result<u64, StoreError>;
}

const GOOD: i64 = 0;
const BAD: i64 = 1;
/// Bad within a maintenance window.
const EXCUSED: i64 = 2;

fn verdict_of(number: i64) -> Verdict {
    if number == GOOD { Verdict::Good } else { Verdict::Bad }
}

fn number_of(verdict: Verdict) -> i64 {
    match verdict {
        Verdict::Good => GOOD,
        Verdict::Bad => BAD,
    }
}

fn is_excused(number: i64) -> bool {
    number == EXCUSED
}

impl Outcome {
    /// What stands for its verdict.
    fn number(&self) -> i64 {
        if self.verdict == Verdict::Bad && self.excused { EXCUSED } else { number_of(self.verdict) }
    }
}
