//! Whichever engine an installation keeps its state in. Nothing is asked through this: each capability matches on it
//! once, when it opens its own store, and speaks its engine's SQL from then on.

use crate::{Postgres, Sqlite};

/// A handle on the installation's database; clones share it.
#[derive(Clone, Debug)]
pub enum Database {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Database {
    /// Finishes what waits and closes it. Later calls, by any clone, get [`StoreError::Closed`](crate::StoreError::Closed).
    pub async fn close(&self) {
        match self {
            Database::Sqlite(sqlite) => sqlite.close().await,
            Database::Postgres(postgres) => postgres.close().await,
        }
    }
}

impl From<Sqlite> for Database {
    fn from(sqlite: Sqlite) -> Self {
        Database::Sqlite(sqlite)
    }
}

impl From<Postgres> for Database {
    fn from(postgres: Postgres) -> Self {
        Database::Postgres(postgres)
    }
}
