//! What is kept of monitors that wait to be called: the token of each, as a digest, and its last call. One row each, however
//! often they are called.

pub mod postgres;
pub mod sqlite;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_store::{Database, StoreError};

use super::By;
use super::postgres::PostgresMonitors;
use super::sqlite::SqliteMonitors;
use crate::grid::MonitorKey;
use crate::push::{Call, TokenDigest};

pub type SharedPushes = Arc<dyn PushStore>;

pub fn open(database: &Database) -> SharedPushes {
    match database {
        Database::Sqlite(sqlite) => Arc::new(SqliteMonitors(sqlite.clone())),
        Database::Postgres(postgres) => Arc::new(PostgresMonitors(postgres.clone())),
    }
}

/// Whether a token was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    Taken,
    /// It has one already.
    HasOne,
}

/// Whether a token is somebody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Yes,
    No,
}

#[async_trait]
pub trait PushStore: Send + Sync + 'static {
    /// Gives a monitor a token, unless it has one.
    async fn give_token(&self, monitor: MonitorKey, token: TokenDigest) -> Result<Given, StoreError>;
    /// Gives it another one. The former is nobody's from then on.
    async fn renew_token(&self, monitor: MonitorKey, token: TokenDigest, by: By) -> Result<(), StoreError>;
    /// It does not wait to be called any more.
    async fn drop_token(&self, monitor: MonitorKey) -> Result<(), StoreError>;
    async fn knows_token(&self, token: TokenDigest) -> Result<Known, StoreError>;
    /// Writes a call in place of the last one. Nothing, when the token is nobody's.
    async fn call(&self, token: TokenDigest, call: Call) -> Result<Known, StoreError>;
    /// The last calls of these, of those that were called.
    async fn calls(&self, monitors: Vec<MonitorKey>) -> Result<HashMap<MonitorKey, Call>, StoreError>;
}
