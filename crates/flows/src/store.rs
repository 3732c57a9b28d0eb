//! What flows must remember, as a trait of its own; [`sqlite`] and [`postgres`] keep it, and one suite of behaviours holds
//! them to the same promises.
//!
//! Whoever lost its shard writes nothing: every batch is fenced by the generation of its lease. What is there stays as it
//! is: a batch that is written twice changes nothing.

pub mod postgres;
pub mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::declared::Became;
use mutirao_core::id::Attempt;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Database, StoreError};
use serde_json::Value;

use crate::FlowSpec;
use crate::foreman::words::{Batch, End, Noted, Outcome, RunEnd, RunKey, StepKey, Try};
use crate::start::Fingerprint;
use crate::wire::{Reply, Secret};

pub type Shared = Arc<dyn FlowStore>;

/// The flows of a database that has had the engine's migrations applied.
pub fn open(database: &Database) -> Shared {
    match database {
        Database::Sqlite(sqlite) => Arc::new(sqlite::SqliteFlows(sqlite.clone())),
        Database::Postgres(postgres) => Arc::new(postgres::PostgresFlows(postgres.clone())),
    }
}

/// Who changes something, when.
#[derive(Clone, Debug)]
pub struct By {
    pub namespace: String,
    pub who: String,
    pub at: Timestamp,
}

/// A flow as it is defined.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    pub spec: FlowSpec,
    pub revision: u64,
    pub changed_at: Timestamp,
    pub changed_by: String,
}

/// A key, and what was asked for with it.
pub type Asked = (String, Fingerprint);

/// A run to be accepted.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub by: By,
    pub spec: FlowSpec,
    pub input: Value,
    /// By which whoever asks again gets the same run.
    pub asked: Option<Asked>,
    /// What is to be answered on the wire.
    pub reply: Option<Reply>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    New(RunKey),
    /// It was asked for before.
    Again(RunKey),
    /// That key was used for another.
    Other(RunKey),
}

/// A run, without what its steps gave.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    pub key: RunKey,
    pub namespace: String,
    pub owner: String,
    pub flow: String,
    pub started_at: Timestamp,
    pub cancelled: bool,
    pub end: Option<(RunEnd, Timestamp)>,
    pub announced: bool,
}

/// All there is of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    pub row: RunRow,
    /// As it was written; maybe by another version of this program.
    pub definition: String,
    pub input: Value,
    pub reply: Option<Reply>,
    pub outcomes: Vec<Outcome>,
    pub tries: Vec<Try>,
    pub noted: Vec<Noted>,
}

/// By which it is known whether there is more of a run than there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub outcomes: usize,
    pub ended: bool,
}

impl RunRecord {
    pub fn progress(&self) -> Progress {
        Progress { outcomes: self.outcomes.len(), ended: self.row.end.is_some() }
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Durable,
    /// The shard has another owner; nothing was written.
    Fenced,
}

/// Which runs: of a flow or of all, those before a key, newest first.
#[derive(Clone, Debug)]
pub struct RunsOf {
    pub namespace: String,
    pub flow: Option<String>,
    pub before: Option<RunKey>,
    pub rows: u32,
}

#[async_trait]
pub trait FlowStore: Send + Sync + 'static {
    /// All of them or none.
    async fn put(&self, flows: Vec<FlowSpec>, by: By) -> Result<Vec<Became>, StoreError>;
    async fn flow(&self, namespace: String, name: String) -> Result<Option<FlowRow>, StoreError>;
    /// By name, those after this one.
    async fn flows(&self, namespace: String, after: String, rows: u32) -> Result<Vec<FlowRow>, StoreError>;
    async fn remove(&self, namespace: String, name: String) -> Result<bool, StoreError>;

    /// Durable when answered.
    async fn begin(&self, run: NewRun) -> Result<Begun, StoreError>;
    /// What was begun with this key before: [`Begun::Again`] or [`Begun::Other`].
    async fn asked(&self, namespace: String, key: String, print: Fingerprint) -> Result<Option<Begun>, StoreError>;
    async fn runs(&self, which: RunsOf) -> Result<Vec<RunRow>, StoreError>;
    /// Of these, those that are there.
    async fn read(&self, runs: Vec<RunKey>) -> Result<Vec<RunRecord>, StoreError>;
    async fn row(&self, run: RunKey) -> Result<Option<RunRow>, StoreError>;
    /// How far it is: how many outcomes are durable, and whether it has ended. None: it is not there.
    async fn progress(&self, run: RunKey) -> Result<Option<Progress>, StoreError>;
    /// True: it had not ended, and will be cancelled.
    async fn cancel(&self, run: RunKey) -> Result<bool, StoreError>;
    /// Those of a shard that were not announced, oldest first; true: is to be cancelled.
    async fn open(&self, shard: ShardId, rows: u32) -> Result<Vec<(RunKey, bool)>, StoreError>;
    async fn write(&self, fence: Fence, batch: Arc<Batch>) -> Result<Fate, StoreError>;
    /// Removes runs that were announced and ended before, and says how many.
    async fn sweep(&self, before: Timestamp, rows: u32) -> Result<u64, StoreError>;
    /// What ids of requests are sealed with: the first that anybody came with.
    async fn secret(&self, candidate: [u8; 32]) -> Result<Secret, StoreError>;
}

fn became(before: Option<&str>, now: &str) -> Became {
    match before {
        None => Became::Made,
        Some(before) if before == now => Became::Unchanged,
        Some(_) => Became::Changed,
    }
}

/// Whether it went well, and what it said.
fn said(end: &End) -> (bool, String) {
    match end {
        End::Ok(value) => (true, value.to_string()),
        End::Failed(why) => (false, why.clone()),
    }
}

/// An outcome's columns as they are kept: `run, step, item, ok, said, tries, node, why, began_at, ended_at`.
struct Columns {
    key: StepKey,
    ok: bool,
    said: String,
    tries: i64,
    node: Option<String>,
    why: Option<String>,
    began_at: i64,
    ended_at: i64,
}

impl Columns {
    fn outcome(self) -> Result<Outcome, String> {
        let end = match self.ok {
            true => End::Ok(Arc::new(serde_json::from_str(&self.said).map_err(|error| error.to_string())?)),
            false => End::Failed(self.said),
        };
        Ok(Outcome {
            key: self.key,
            end,
            tries: self.tries as u32,
            node: self.node.and_then(|node| node.parse().ok()),
            why: self.why,
            began_at: Timestamp(self.began_at),
            ended_at: Timestamp(self.ended_at),
        })
    }
}

/// None: no node can be called that.
fn noted(key: StepKey, (generation, n): (i64, i64), node: &str, since: i64) -> Option<Noted> {
    let attempt = Attempt { generation: generation as u64, n: n as u32 };
    node.parse().ok().map(|node| Noted { key, attempt, node, since: Timestamp(since) })
}

fn step_key(run: i64, step: i64, item: i64) -> StepKey {
    StepKey { run: RunKey(run as u64), step: step as u32, item: item as u32 }
}

/// Numbers of flow definitions: as many as fit into one change.
pub const FLOWS_AT_ONCE: usize = 1_000;
