//! What is kept of nodes that run actions: who registered, the devices that may come in by a password, and what was
//! received and could not be worked with.

pub mod postgres;
pub mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_store::{Database, StoreError};
use serde::{Deserialize, Serialize};

use crate::device::{Device, Digest};
use crate::keys::{Enrolling, Invitation, Key};
use crate::names::NodeId;
use crate::registry::Record;

/// How long it is kept who let a device in.
const AUDIT_KEPT_MS: i64 = 365 * 86_400_000;

/// Bounds of kept answers are looked at with each of this many: it costs a look at all of them.
const ANSWERS_LOOKED_AT: i64 = 32;
/// Clients for whom answers are kept, at one look.
pub const CLIENTS_MAX: u32 = 1_000;

/// How long it is kept that somebody was taken out: longer than any manager is cut off and still thinks that it is one.
const REMOVALS_KEPT_MS: i64 = 30 * 86_400_000;

pub type SharedNodes = Arc<dyn NodeStore>;

/// In a database that has had the engine's migrations applied.
pub fn open(database: &Database) -> SharedNodes {
    match database {
        Database::Sqlite(sqlite) => Arc::new(sqlite.clone()),
        Database::Postgres(postgres) => Arc::new(postgres.clone()),
    }
}

/// Who changes something, and when.
#[derive(Clone, Debug)]
pub struct By {
    pub who: String,
    pub at: Timestamp,
}

/// How much is kept of what nobody took yet: the newest.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub rows_max: u32,
    pub bytes_max: u64,
    pub age_max: Duration,
}

/// Something that was received and cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tossed {
    pub at: Timestamp,
    /// Over what it came, and to where.
    pub place: String,
    pub who: String,
    pub reason: String,
    /// Its beginning.
    pub body: Vec<u8>,
}

/// Somebody took a node or a device out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    #[serde(flatten)]
    pub what: Removed,
    /// What is known of it from before, or from this very moment, is void.
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum Removed {
    Node(NodeId),
    Device(String),
}

impl Removed {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Node(node) => ("node", node.as_str()),
            Self::Device(name) => ("device", name),
        }
    }

    /// None: another version's.
    fn read(kind: &str, name: String) -> Option<Self> {
        match kind {
            "node" => name.parse().ok().map(Self::Node),
            "device" => Some(Self::Device(name)),
            _ => None,
        }
    }
}

#[async_trait]
pub trait NodeStore: Send + Sync + 'static {
    /// Those heard of since then.
    async fn records(&self, since: Timestamp) -> Result<Vec<Record>, StoreError>;

    /// Each in place of the one before, unless that is newer, or its node was taken out since it first came.
    async fn keep(&self, records: Vec<Record>) -> Result<(), StoreError>;

    /// Those that were not heard of for too long.
    async fn forget(&self, nodes: Vec<NodeId>) -> Result<(), StoreError>;

    /// Takes a node out, so that every manager learns of it.
    async fn remove(&self, node: &NodeId, at: Timestamp) -> Result<(), StoreError>;

    /// Who was taken out since then.
    async fn removals(&self, since: Timestamp) -> Result<Vec<Removal>, StoreError>;

    /// Whether it is new: nobody takes another's name.
    async fn add_device(&self, device: Device, by: By) -> Result<bool, StoreError>;

    async fn device(&self, name: &str) -> Result<Option<Device>, StoreError>;

    /// By name, those after one.
    async fn devices(&self, after: &str, rows: u32) -> Result<Vec<Device>, StoreError>;

    /// Whether there was one. Every manager learns of it.
    async fn remove_device(&self, name: &str, by: By) -> Result<bool, StoreError>;

    /// Lets a node give its key, once.
    async fn invite(&self, invitation: Invitation, by: By) -> Result<(), StoreError>;

    /// Spends an invitation on a key, and makes the device of the node's name its own. Nobody else's is taken.
    async fn enrol(&self, invitation: [u8; 32], key: [u8; 32], by: By) -> Result<Enrolling, StoreError>;

    async fn node_key(&self, node: &NodeId) -> Result<Option<Key>, StoreError>;

    /// Whether this is the next change of its password, which then counts.
    async fn change_password(&self, node: &NodeId, change: u64, digest: Digest) -> Result<bool, StoreError>;

    /// Keeps what cannot be worked with, the newest `most` of all.
    async fn toss(&self, tossed: Vec<Tossed>, most: u32) -> Result<(), StoreError>;

    /// The newest first.
    async fn tossed(&self, rows: u32) -> Result<Vec<Tossed>, StoreError>;

    /// Keeps an answer that nobody heard, within bounds of all of them; for this client, or for whoever listens.
    async fn keep_answer(
        &self,
        at: Timestamp,
        client: Option<String>,
        text: String,
        bounds: Bounds,
    ) -> Result<(), StoreError>;

    /// For whom answers are kept, up to [`CLIENTS_MAX`] of them.
    async fn answered_clients(&self) -> Result<Vec<Option<String>>, StoreError>;

    /// Of those for this client, each with its number, the oldest first.
    async fn answers(&self, client: Option<String>, rows: u32) -> Result<Vec<(i64, String)>, StoreError>;

    async fn forget_answers(&self, numbers: Vec<i64>) -> Result<(), StoreError>;
}

/// A row that another version wrote and this one cannot read costs that node a registration, not the manager its start.
fn read_record(text: &str) -> Option<Record> {
    let read: Result<Record, _> = mutirao_core::tolerant::read(text.as_bytes());
    let read =
        read.inspect_err(|error| tracing::warn!(%error, "the record of a node cannot be read and is passed over"));
    read.ok().map(|record| Record { proof: record.proof.as_now(), ..record })
}

fn written(record: &Record) -> String {
    serde_json::to_string(record).unwrap_or_default()
}
