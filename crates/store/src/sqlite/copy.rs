//! A copy of a file that is in use: one state of it, compact, made through SQLite itself. The writer, in this process or
//! another, goes on meanwhile; only its write-ahead log cannot shrink.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::{connect, errors};
use crate::{StoreError, folder};

/// Writes one state of `file` to `copy`, which is made 0600.
pub(crate) fn to(file: &Path, copy: &Path) -> Result<(), StoreError> {
    // SQLite takes an empty file, and would make one that others can read.
    folder::open_file(copy).map_err(|error| folder::name(&error, copy))?;
    let conn = plain(file)?;
    let copied = conn.execute("VACUUM INTO ?1", [copy.to_string_lossy()]);
    copied.map(drop).map_err(|error| errors::name(error, file))
}

/// The newest version of each component in a file that nobody writes to.
pub(crate) fn versions(file: &Path) -> Result<BTreeMap<String, u32>, StoreError> {
    let conn = plain(file)?;
    let read = || {
        let mut asked = conn.prepare("SELECT component, max(version) FROM migrations GROUP BY component")?;
        asked.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()
    };
    read().map_err(|error| errors::name(error, file))
}

/// A connection that reads.
pub(crate) fn reader(file: &Path) -> Result<Connection, StoreError> {
    connect::reader(file)
}

/// Without `query_only`, which would keep SQLite from writing the copy as well.
fn plain(file: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    connect::configured(file, flags, "PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;")
}
