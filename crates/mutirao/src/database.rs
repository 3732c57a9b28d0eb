//! The installation's database: the one that the settings name, opened with the tables of every capability, and where
//! blobs are kept beside it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mutirao_core::blobs::Blobs;
use mutirao_shards::Shared;
use mutirao_shards::store::postgres::CONNECTIONS_MAX as LEASES_CONNECTIONS_MAX;
use mutirao_store::backup::{JUMP, Place, RESTORING, Tables};
use mutirao_store::installation::{self, FORGET};
use mutirao_store::postgres::{BLOBS_MIGRATIONS, CONNECTIONS_MAX as STORE_CONNECTIONS_MAX};
use mutirao_store::{Database, FileBlobs, FolderLock, Migration, PgBlobs, Postgres, Sqlite, StoreError};

use crate::config::Settings;

/// Where SQLite keeps it all, inside the data folder.
const FILE: &str = "mutirao.db";
const BLOBS: &str = "blobs";
/// Says, in the data folder of a manager whose state is in a server, where it is.
const ELSEWHERE: &str = "database";

/// Connections to PostgreSQL that one manager holds at most.
pub const CONNECTIONS_MAX: usize = STORE_CONNECTIONS_MAX + LEASES_CONNECTIONS_MAX;

pub fn file_in(data: &Path) -> PathBuf {
    data.join(FILE)
}

/// What a backup is made of, and a restore fills.
pub fn place(settings: &Settings) -> Place {
    let data = settings.data.0.clone();
    Place {
        server: settings.database.set().map(|url| url.0.clone()),
        database: FILE,
        blobs: BLOBS,
        files: files_beside(&data),
        tables: Tables { sqlite: sqlite_steps(), postgres: postgres_steps(), after: jumps() },
        data,
    }
}

/// Whoever hands out attempts, or owns a shard, does so in generations; those of after a backup must not come again. And
/// whoever owned queues then does not now. Nor is it the installation any more that the backup was made of. Logs of streams are in
/// no backup, so these begin anew: no snapshot speaks of what is in a log now, and no row was handed over.
fn jumps() -> String {
    format!(
        "UPDATE generations SET n = n + {JUMP};
         UPDATE shard_leases SET owner = NULL, beats = 0, generation = generation + {JUMP};
         DELETE FROM shard_members;
         DELETE FROM stream_snapshots;
         DELETE FROM stream_handed_over;
         {FORGET}"
    )
}

/// Settings, the admin token, and the keys of the workers that `up` keeps here.
fn files_beside(data: &Path) -> Vec<String> {
    let mut files = vec!["mutirao.toml".to_owned(), "admin.token".to_owned()];
    let listed = std::fs::read_dir(data.join("workers")).into_iter().flatten().flatten();
    let names = listed.filter_map(|entry| entry.file_name().into_string().ok());
    files.extend(names.map(|name| format!("workers/{name}/identity")));
    files.retain(|name| data.join(name).is_file());
    files
}

/// Every table in PostgreSQL.
pub fn postgres_steps() -> Vec<Migration> {
    let shards = mutirao_shards::store::postgres::MIGRATIONS;
    let fleet = mutirao_fleet::POSTGRES_MIGRATIONS;
    let monitors = mutirao_monitors::POSTGRES_MIGRATIONS;
    let (kv, nodes) = (mutirao_kv::POSTGRES_MIGRATIONS, mutirao_nodes::POSTGRES_MIGRATIONS);
    let (jobs, flows) = (mutirao_jobs::POSTGRES_MIGRATIONS, mutirao_flows::POSTGRES_MIGRATIONS);
    let (streams, own) = (mutirao_conductor::POSTGRES_MIGRATIONS, installation::POSTGRES_MIGRATIONS);
    let first = [mutirao_api::POSTGRES_MIGRATIONS, shards, jobs, fleet, monitors, kv, nodes, flows].concat();
    [&first, streams, BLOBS_MIGRATIONS, own].concat()
}

fn sqlite_steps() -> Vec<Migration> {
    let shards = mutirao_shards::store::sqlite::MIGRATIONS;
    let (monitors, kv, flows) = (mutirao_monitors::MIGRATIONS, mutirao_kv::MIGRATIONS, mutirao_flows::MIGRATIONS);
    let (fleet, own) = (mutirao_fleet::MIGRATIONS, installation::MIGRATIONS);
    let (nodes, streams) = (mutirao_nodes::MIGRATIONS, mutirao_conductor::MIGRATIONS);
    [mutirao_api::MIGRATIONS, shards, mutirao_jobs::MIGRATIONS, fleet, monitors, kv, nodes, flows, streams, own]
        .concat()
}

/// Whoever forgets to name the server must not get an empty installation in its place, nor a backup of one.
pub fn refuse_elsewhere(settings: &Settings) -> Result<(), StoreError> {
    let data = &settings.data.0;
    let Ok(address) = std::fs::read_to_string(data.join(ELSEWHERE)) else { return Ok(()) };
    if settings.database.set().is_some() {
        return Ok(());
    }
    let why = format!(
        "what belongs to it is kept in {}; set MUTIRAO_DATABASE (or --database), or use another --data for SQLite",
        address.trim()
    );
    Err(StoreError::Unusable { path: data.display().to_string(), why })
}

/// So that a folder whose state is in a server is never taken for an empty one.
fn note_elsewhere(data: &Path, postgres: &Postgres) -> Result<(), StoreError> {
    let noted = std::fs::write(data.join(ELSEWHERE), format!("{}\n", postgres.address()));
    noted.map_err(|error| StoreError::Unusable { path: data.display().to_string(), why: error.to_string() })
}

/// What was restored is in the server, if one was named.
pub async fn restored(settings: &Settings) -> Result<(), StoreError> {
    match settings.database.set() {
        Some(url) => note_elsewhere(&settings.data.0, &Postgres::apart(&url.0, 1).await?),
        None => Ok(()),
    }
}

pub async fn open(settings: &Settings, data: &Path) -> Result<Database, StoreError> {
    if data.join(RESTORING).exists() {
        let why = "a restore did not get to its end here; run `mutirao backup restore` again".into();
        return Err(StoreError::Unusable { path: data.display().to_string(), why });
    }
    if let Some(url) = settings.database.set() {
        let postgres = Postgres::open(&url.0, &postgres_steps()).await?;
        note_elsewhere(data, &postgres)?;
        return Ok(postgres.into());
    }
    refuse_elsewhere(settings)?;
    let file = file_in(data);
    let opened = tokio::task::spawn_blocking(move || Sqlite::open(&file, &sqlite_steps())).await;
    Ok(opened.map_err(|error| StoreError::Panicked { what: error.to_string() })??.into())
}

/// Where it is kept who owns which queues. In PostgreSQL over connections of its own: where renewals wait behind long
/// transactions, a busy manager loses its queues.
pub async fn leases(settings: &Settings, database: &Database, held: &FolderLock) -> Result<Shared, StoreError> {
    let apart = match settings.database.set() {
        Some(url) => Postgres::apart(&url.0, LEASES_CONNECTIONS_MAX).await?.into(),
        None => database.clone(),
    };
    mutirao_shards::store::open(&apart, Some(held)).await
}

/// Files beside SQLite; in PostgreSQL itself, where every manager sees them.
pub fn blobs(database: &Database, data: &Path) -> Result<Arc<dyn Blobs>, StoreError> {
    Ok(match database {
        Database::Sqlite(_) => Arc::new(FileBlobs::open(&data.join(BLOBS))?),
        Database::Postgres(postgres) => Arc::new(PgBlobs(postgres.clone())),
    })
}
