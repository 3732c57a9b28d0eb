//! Opening connections, and every setting they have with its reason.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::errors;
use crate::{StoreError, folder};

/// How long to wait for a lock that another process holds (a backup, a person with a shell).
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// Prepared statements kept by each connection.
const STATEMENTS_MAX: usize = 256;

/// - WAL: readers and the writer never wait for each other.
/// - synchronous FULL: an fsync in each COMMIT. NORMAL could lose answered writes in a power cut.
/// - A log of 16 MB before it is folded into the file: pages that change often are then written once and not many
///   times; and the log's file shrinks to 64 MB after a burst.
/// - No mapped reads: an error of the disk would kill the process by a signal instead of failing one call.
/// - Savepoints keep their undo pages in memory (temp_store).
const WRITER: &str = "
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;
    PRAGMA cache_size = -32768;
    PRAGMA mmap_size = 0;
    PRAGMA temp_store = MEMORY;
    PRAGMA wal_autocheckpoint = 4096;
    PRAGMA journal_size_limit = 67108864;
    PRAGMA trusted_schema = OFF;
";

const READER: &str = "
    PRAGMA query_only = ON;
    PRAGMA cache_size = -8192;
    PRAGMA mmap_size = 0;
    PRAGMA temp_store = MEMORY;
    PRAGMA trusted_schema = OFF;
";

pub(super) fn writer(file: &Path) -> Result<Connection, StoreError> {
    // Made here and not by SQLite, so that it is never readable by others; its log takes over the mode.
    let made = folder::open_file(file).and_then(|made| made.set_permissions(PermissionsExt::from_mode(0o600)));
    made.map_err(|error| folder::name(&error, file))?;

    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = configured(file, flags, WRITER)?;
    let mode: String =
        conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(|error| errors::name(error, file))?;
    if mode != "wal" {
        let why = "its file system cannot share memory between processes; use a local disk".into();
        return Err(StoreError::Unusable { path: file.display().to_string(), why });
    }
    Ok(conn)
}

pub(super) fn reader(file: &Path) -> Result<Connection, StoreError> {
    configured(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX, READER)
}

pub(super) fn configured(file: &Path, flags: OpenFlags, settings: &str) -> Result<Connection, StoreError> {
    let open = || {
        let conn = Connection::open_with_flags(file, flags)?;
        conn.busy_timeout(LOCK_WAIT_MAX)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        conn.execute_batch(settings)?;
        Ok(conn)
    };
    open().map_err(|error| errors::name(error, file))
}
