//! What is kept of outcomes once they are added up, and up to where that has been done.

pub mod postgres;
pub mod sqlite;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_shards::Fence;
use mutirao_store::{Database, StoreError};

use super::Settling;
use super::postgres::PostgresMonitors;
use super::sqlite::SqliteMonitors;
use crate::grid::MonitorKey;
use crate::rollup::{Ended, Roll, Step};

pub type SharedRolls = Arc<dyn RollStore>;

pub fn open(database: &Database) -> SharedRolls {
    match database {
        Database::Sqlite(sqlite) => Arc::new(SqliteMonitors(sqlite.clone())),
        Database::Postgres(postgres) => Arc::new(PostgresMonitors(postgres.clone())),
    }
}

/// Up to where each step has been added up; nothing before the first time.
pub type Marks = BTreeMap<Step, Timestamp>;

/// The sum of a stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rolled {
    pub monitor: MonitorKey,
    pub at: Timestamp,
    pub roll: Roll,
}

/// A time, its end not included, of the monitors after one.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub from: Timestamp,
    pub until: Timestamp,
    pub after: MonitorKey,
    pub rows: u32,
}

#[async_trait]
pub trait RollStore: Send + Sync + 'static {
    async fn marks(&self) -> Result<Marks, StoreError>;
    /// The first instant of which there is an outcome.
    async fn oldest(&self) -> Result<Option<Timestamp>, StoreError>;
    /// Outcomes of a time, by monitor and instant.
    async fn ended(&self, stretch: Stretch) -> Result<Vec<(MonitorKey, Timestamp, Ended)>, StoreError>;
    /// Sums of a time, by monitor and beginning.
    async fn rolled(&self, step: Step, stretch: Stretch) -> Result<Vec<Rolled>, StoreError>;
    /// Writes sums in place of what was there, and how far that goes, if it is certain now.
    async fn roll(
        &self,
        fence: Fence,
        step: Step,
        rolled: Vec<Rolled>,
        until: Option<Timestamp>,
    ) -> Result<Settling, StoreError>;
    /// Of one monitor, in order.
    async fn rolls(
        &self,
        monitor: MonitorKey,
        step: Step,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<Rolled>, StoreError>;
    /// Outcomes of one monitor from a moment on, the latest first.
    async fn raw(
        &self,
        monitor: MonitorKey,
        from: Timestamp,
        rows: u32,
    ) -> Result<Vec<(MonitorKey, Timestamp, Ended)>, StoreError>;
    /// Removes some that begin before a moment; says how many.
    async fn sweep_rolls(&self, step: Step, before: Timestamp, rows: u32) -> Result<u64, StoreError>;
}
