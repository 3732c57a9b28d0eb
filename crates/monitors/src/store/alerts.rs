//! What is kept of alerts: channels, alerts that wait or were told, and what people said about them. Alerts themselves are
//! written with the settlement that raises them ([`super::Settlement::alerts`]), in its transaction.

pub mod postgres;
pub mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Database, StoreError};
use serde::{Deserialize, Serialize};

use super::postgres::PostgresMonitors;
use super::sqlite::SqliteMonitors;
use super::{By, Settling};
use crate::alerts::channel::ChannelSpec;
use crate::alerts::fate::Told;
use crate::alerts::{Attention, Raised};
use crate::grid::MonitorKey;
use crate::spec::MonitorSpec;

pub type SharedAlerts = Arc<dyn AlertStore>;

pub fn open(database: &Database) -> SharedAlerts {
    match database {
        Database::Sqlite(sqlite) => Arc::new(SqliteMonitors(sqlite.clone())),
        Database::Postgres(postgres) => Arc::new(PostgresMonitors(postgres.clone())),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChannelRow {
    pub spec: ChannelSpec,
    pub changed_at: Timestamp,
    pub changed_by: String,
}

/// An alert whose time has come, and all that is known about it.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub key: u64,
    pub raised: Raised,
    /// Tries so far, and when the first was.
    pub tries: u32,
    pub first_at: Option<Timestamp>,
    pub uuid: String,
    pub namespace: String,
    pub spec: MonitorSpec,
    pub removed: bool,
    /// None when it is gone.
    pub channel: Option<ChannelSpec>,
    /// Of the incident: the first bad outcome, the end, the evidence.
    pub since: Option<Timestamp>,
    pub closed_at: Option<Timestamp>,
    pub evidence: Option<String>,
    pub attention: Attention,
    pub told: Told,
}

/// What came of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub key: u64,
    /// Tries so far, and when the first was.
    pub tries: u32,
    pub first_at: Option<Timestamp>,
    pub came: Came,
    /// For people; nothing secret.
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    Later(Timestamp),
    Ended(Delivery, Timestamp),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    Sent,
    /// There was a reason not to tell.
    Dropped,
    /// The channel did not take it.
    GivenUp,
}

impl Delivery {
    pub fn word(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Dropped => "dropped",
            Self::GivenUp => "given_up",
        }
    }

    pub(super) fn of_word(word: &str) -> Option<Self> {
        [Self::Sent, Self::Dropped, Self::GivenUp].into_iter().find(|delivery| delivery.word() == word)
    }
}

/// An alert as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRow {
    pub raised: Raised,
    pub tries: u32,
    /// When it is tried, if it has not ended.
    pub next_at: Timestamp,
    pub ended: Option<(Delivery, Timestamp)>,
    pub note: Option<String>,
}

#[async_trait]
pub trait AlertStore: Send + Sync + 'static {
    /// The record of changes has it as it is shown, without what is secret.
    async fn put_channel(&self, channel: ChannelSpec, by: By) -> Result<(), StoreError>;
    /// Whether it was there.
    async fn remove_channel(&self, name: String, by: By) -> Result<bool, StoreError>;
    /// How many monitors tell it.
    async fn told_by(&self, namespace: String, channel: String) -> Result<u64, StoreError>;
    /// By name.
    async fn channels(&self, namespace: String) -> Result<Vec<ChannelRow>, StoreError>;
    async fn channel(&self, namespace: String, name: String) -> Result<Option<ChannelRow>, StoreError>;
    /// What people said about a monitor, in place of what was said before; what waits is looked at again.
    async fn attend(&self, monitor: MonitorKey, attention: Attention, by: By) -> Result<(), StoreError>;
    async fn attention(&self, monitors: Vec<MonitorKey>) -> Result<Vec<(MonitorKey, Attention)>, StoreError>;
    /// Those whose time has come, of each monitor and channel only the first that waits: they are told in order.
    async fn due(&self, shard: ShardId, now: Timestamp, rows: u32) -> Result<Vec<Waiting>, StoreError>;
    async fn record(&self, fence: Fence, records: Vec<Recorded>) -> Result<Settling, StoreError>;
    /// The latest first.
    async fn alerts(&self, monitor: MonitorKey, rows: u32) -> Result<Vec<AlertRow>, StoreError>;
    /// Removes some that ended before a moment; says how many.
    async fn sweep_alerts(&self, before: Timestamp, rows: u32) -> Result<u64, StoreError>;
}

const CHANNEL_CHANGED: &str = "put channel";
const CHANNEL_REMOVED: &str = "remove channel";
const ATTENDED: &str = "attend";
/// Changes that are of no monitor.
const NO_MONITOR: MonitorKey = MonitorKey(0);

/// How a rule that names a channel stands in a definition. Names need no escapes.
fn naming(channel: &str) -> String {
    format!("\"to\":\"{channel}\"")
}
