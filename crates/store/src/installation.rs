//! Which installation a database belongs to. What is outside the database and must be its alone (a vhost of RabbitMQ) is
//! marked with this id, and here it is written how often that was done.
//!
//! The id is made when it is first needed. A restore forgets it ([`FORGET`]): what comes of a backup is another
//! installation than the one it was made of, which may well go on. Not here: marking, and what a mark is.

use std::path::Path;

use mutirao_core::InstallationId;
use rusqlite::OptionalExtension;

use crate::postgres::Ask;
use crate::sqlite::copy;
use crate::{Database, Migration, Postgres, Sqlite, StoreError};

pub const MIGRATIONS: &[Migration] = &[Migration {
    component: "installation",
    version: 1,
    sql: include_str!("installation/001_installation_sqlite.sql"),
}];

pub const POSTGRES_MIGRATIONS: &[Migration] = &[Migration {
    component: "installation",
    version: 1,
    sql: include_str!("installation/001_installation_postgres.sql"),
}];

/// Said to a database that was restored, on either engine.
pub const FORGET: &str = "DELETE FROM installation;";

/// How PostgreSQL's words for a table that is not there end.
const NO_TABLE: &str = "(42P01)";
const SELECT: &str = "SELECT id, markings FROM installation";

/// An installation, as its database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub id: InstallationId,
    /// How often it has marked something as its own: 0 is never.
    pub markings: u64,
}

impl Installation {
    fn new(id: String, markings: i64) -> Self {
        Self { id: InstallationId(id), markings: markings as u64 }
    }
}

/// The installation of a database, which gets this id if it has none.
pub async fn of(database: &Database, fresh: InstallationId) -> Result<Installation, StoreError> {
    match database {
        Database::Sqlite(db) => {
            let make = move |sql: &rusqlite::Connection| {
                sql.execute("INSERT INTO installation (one, id) VALUES (1, ?1) ON CONFLICT DO NOTHING", [&fresh.0])
            };
            db.write(make).await?;
        }
        Database::Postgres(db) => {
            let make = "INSERT INTO installation (id) VALUES ($1) ON CONFLICT DO NOTHING";
            db.connection().await?.run(make, &[&fresh.0]).await?;
        }
    }
    let gone = || StoreError::Unusable {
        path: "the table installation".into(),
        why: "its row has just been removed; start again".into(),
    };
    known(database).await?.ok_or_else(gone)
}

/// The installation of a database, if it has an id.
pub async fn known(database: &Database) -> Result<Option<Installation>, StoreError> {
    match database {
        Database::Sqlite(db) => known_in_sqlite(db).await,
        Database::Postgres(db) => known_in_postgres(db).await,
    }
}

async fn known_in_sqlite(db: &Sqlite) -> Result<Option<Installation>, StoreError> {
    db.read(|sql| sql.query_row(SELECT, [], row).optional()).await
}

async fn known_in_postgres(db: &Postgres) -> Result<Option<Installation>, StoreError> {
    let found = db.connection().await?.row(SELECT, &[]).await?;
    found.map(|row| Ok(Installation::new(row.try_get(0)?, row.try_get(1)?))).transpose()
}

/// The same, of a database that may never have been used: none where there is no such table yet.
pub async fn known_if_any(database: &Database) -> Result<Option<Installation>, StoreError> {
    match known(database).await {
        // As the code of the refusal says, which stands at the end.
        Err(StoreError::Postgres(line)) if line.ends_with(NO_TABLE) => Ok(None),
        found => found,
    }
}

/// The same, of a file of SQLite that somebody else may have open, and that may not be there. Blocks.
pub fn known_in_file(file: &Path) -> Result<Option<Installation>, StoreError> {
    // Whoever may not look into the folder must not take it for empty.
    if !file.try_exists().map_err(|error| unreadable(file, &error))? {
        return Ok(None);
    }
    let sql = copy::reader(file)?;
    let tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'installation'";
    match sql.query_row(tables, [], |row| row.get(0))? {
        0i64 => Ok(None),
        _ => Ok(sql.query_row(SELECT, [], row).optional()?),
    }
}

fn unreadable(file: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unusable { path: file.display().to_string(), why: error.to_string() }
}

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Installation> {
    Ok(Installation::new(row.get(0)?, row.get(1)?))
}

/// Whose turn it is to mark something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Ours,
    /// Somebody else took it since `seen` was read.
    Anothers,
}

/// Of those who have seen the same and want to mark something, one may.
pub async fn take_turn(database: &Database, seen: &Installation) -> Result<Turn, StoreError> {
    let (id, markings) = (seen.id.0.clone(), seen.markings as i64);
    let changed = match database {
        Database::Sqlite(db) => {
            let take = "UPDATE installation SET markings = markings + 1 WHERE id = ?1 AND markings = ?2";
            db.write(move |sql| sql.execute(take, (&id, markings))).await? as u64
        }
        Database::Postgres(db) => {
            let take = "UPDATE installation SET markings = markings + 1 WHERE id = $1 AND markings = $2";
            db.connection().await?.run(take, &[&id, &markings]).await?
        }
    };
    Ok(if changed == 1 { Turn::Ours } else { Turn::Anothers })
}
