//! The installation's database: the one that the settings name, opened with the tables of every capability, and where
//! blobs are kept beside it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mutirao_core::blobs::Blobs;
use mutirao_store::postgres::BLOBS_MIGRATIONS;
use mutirao_store::{Database, FileBlobs, Migration, PgBlobs, Postgres, Sqlite, StoreError};

use crate::config::Settings;

/// Where SQLite keeps it all, inside the data folder.
pub fn file_in(data: &Path) -> PathBuf {
    data.join("mutirao.db")
}

/// Every table in PostgreSQL.
pub fn postgres_steps() -> Vec<Migration> {
    [mutirao_api::POSTGRES_MIGRATIONS, mutirao_jobs::POSTGRES_MIGRATIONS, BLOBS_MIGRATIONS].concat()
}

fn sqlite_steps() -> Vec<Migration> {
    [mutirao_api::MIGRATIONS, mutirao_jobs::MIGRATIONS].concat()
}

pub async fn open(settings: &Settings, data: &Path) -> Result<Database, StoreError> {
    if let Some(url) = settings.database.set() {
        return Ok(Postgres::open(&url.0, &postgres_steps()).await?.into());
    }
    let file = file_in(data);
    let opened = tokio::task::spawn_blocking(move || Sqlite::open(&file, &sqlite_steps())).await;
    Ok(opened.map_err(|error| StoreError::Panicked { what: error.to_string() })??.into())
}

/// Files beside SQLite; in PostgreSQL itself, where every manager sees them.
pub fn blobs(database: &Database, data: &Path) -> Result<Arc<dyn Blobs>, StoreError> {
    Ok(match database {
        Database::Sqlite(_) => Arc::new(FileBlobs::open(&data.join("blobs"))?),
        Database::Postgres(postgres) => Arc::new(PgBlobs(postgres.clone())),
    })
}
