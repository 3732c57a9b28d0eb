//! Durable state: SQLite and files on one machine, PostgreSQL for many.
//!
//! There is no trait that knows every query. This crate gives connections, group commit, migrations and blobs; each
//! capability writes its own small trait over its own tables and implements it for each engine.
//!
//! - [`sqlite`]: one file, one writer thread, group commit: writes that arrive together share one fsync.
//! - [`postgres`]: a pool of connections to a server, which several managers share.
//! - [`database`]: whichever of the two an installation uses; capabilities open their own store from it.
//! - [`migrate`]: versioned steps, per component, under a lock.
//! - [`blobs`]: large byte strings (task logs, later snapshots and modules) as files; [`postgres::PgBlobs`] keeps them in
//!   the database.
//! - [`backup`]: an installation as one file, and back.
//! - [`installation`]: which installation a database belongs to.
//! - [`lock`]: one process to a data folder.
//! - [`refused`]: what whoever asked hears of a store that refuses.
//! - [`suite`]: what every implementation of a storage trait must do, for tests (feature `suite`).

pub mod backup;
pub mod blobs;
pub mod database;
mod folder;
pub mod installation;
pub mod lock;
pub mod migrate;
pub mod postgres;
mod refusal;
mod room;
pub mod sqlite;
#[cfg(feature = "suite")]
pub mod suite;

pub use blobs::FileBlobs;
pub use database::Database;
pub use lock::FolderLock;
pub use migrate::Migration;
pub use postgres::{PgBlobs, Postgres};
pub use refusal::refused;
pub use sqlite::{Sqlite, Stats};

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written; the same call may work later.
    #[error("the disk is full at {path}; free some space, nothing was lost")]
    DiskFull { path: String },
    #[error("the data folder {path} is in use by process {pid}; stop it or choose another with --data")]
    InUse { path: String, pid: String },
    #[error(
        "{component} in {path} is at version {found}, newer than this program's {known}; use the program that wrote it or a newer one"
    )]
    Newer { component: String, path: String, found: u32, known: u32 },
    #[error("cannot use {path}: {why}")]
    Unusable { path: String, why: String },
    /// Too many calls wait; try again.
    #[error("the store is overloaded: {waiting} calls wait")]
    Busy { waiting: usize },
    /// The database is away, or gave the call up; the same call may work later. Whether a write got through is not known.
    #[error("the database cannot be reached: {why}")]
    Unreachable { why: String },
    /// The database does not let us in, or not do that. Nothing was written; the same call may work once that is put right.
    #[error("the database refuses: {why}; {remedy}")]
    Denied { why: String, remedy: &'static str },
    /// Somebody else has it locked. Nothing was written; the same call may work later.
    #[error("somebody else has locked what this needs in the database for too long; pg_stat_activity there shows who")]
    Locked,
    #[error("the store is closed")]
    Closed,
    /// A mistake in this program: its own steps do not follow each other.
    #[error("the migrations of {component} are not in order: {why}")]
    BadMigrations { component: String, why: String },
    /// A mistake in this program: the closure panicked. What it wrote was undone; its neighbours are untouched.
    #[error("a call to the store panicked: {what}")]
    Panicked { what: String },
    #[error("sqlite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("postgresql: {0}")]
    Postgres(String),
}

impl StoreError {
    /// Whether it is what was to be written that is refused, and always will be; anything else is the store's own trouble.
    pub fn is_about_the_data(&self) -> bool {
        use rusqlite::ErrorCode;
        match self {
            Self::Panicked { .. } => true,
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
            ),
            // As the code of the refusal says, which stands at the end.
            Self::Postgres(line) => {
                let code = line.rsplit_once('(').map_or("", |(_, code)| code);
                ["22", "23", "54"].iter().any(|class| code.starts_with(class))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_refused_for_itself_is_about_the_data() {
        let postgres = |line: &str| StoreError::Postgres(line.into()).is_about_the_data();
        assert!(postgres("value too long for type character varying(3) (22001)"));
        assert!(postgres("duplicate key value violates unique constraint \"k\" (23505)"));
        assert!(!postgres("could not read block 0 in file \"base/1\" (58030)"));
        assert!(!postgres("relation \"kv_entries\" does not exist (42P01)"));
        assert!(!postgres("something without a code"));
        let sqlite = |code| StoreError::Sqlite(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None));
        assert!(sqlite(rusqlite::ffi::SQLITE_CONSTRAINT).is_about_the_data());
        assert!(!sqlite(rusqlite::ffi::SQLITE_IOERR).is_about_the_data());
        assert!(!sqlite(rusqlite::ffi::SQLITE_READONLY).is_about_the_data());
        assert!(!StoreError::Unusable { path: "p".into(), why: "w".into() }.is_about_the_data());
    }
}
