//! SQLite's errors in the store's words.

use std::any::Any;
use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

use crate::{StoreError, folder};

pub(super) fn name(error: Error, file: &Path) -> StoreError {
    let path = || file.display().to_string();
    let unusable = |why: &str| StoreError::Unusable { path: path(), why: why.into() };
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::DiskFull { path: path() },
        Some(ErrorCode::SystemIoFailure) if disk_is_full(file) => StoreError::DiskFull { path: path() },
        Some(ErrorCode::NotADatabase) => {
            unusable("it is not a SQLite database; move it away or restore it from a copy")
        }
        Some(ErrorCode::DatabaseCorrupt) => unusable("the database is damaged; restore it from a copy"),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            unusable("it cannot be opened; check that it and its folder are yours to read and write")
        }
        Some(ErrorCode::ReadOnly) => unusable("it is read-only; check its mode and how its disk is mounted"),
        _ => StoreError::Sqlite(error),
    }
}

/// Not every call that finds no space says so: growing the shared index or syncing ends in a plain I/O error.
fn disk_is_full(file: &Path) -> bool {
    rustix::fs::statvfs(folder::parent_of(file)).is_ok_and(|disk| disk.f_bavail == 0)
}

/// The same error once more, for everybody who shared a transaction.
pub(super) fn copy(error: &Error) -> Error {
    match error {
        Error::SqliteFailure(code, message) => Error::SqliteFailure(*code, message.clone()),
        other => failure(ffi::SQLITE_ERROR, other.to_string()),
    }
}

pub(super) fn failure(code: i32, message: impl Into<String>) -> Error {
    Error::SqliteFailure(ffi::Error::new(code), Some(message.into()))
}

pub(super) fn panicked(payload: &(dyn Any + Send)) -> StoreError {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    StoreError::Panicked { what: text.unwrap_or_else(|| "no reason given".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_and_lack_of_space_are_told_in_plain_lines() {
        let line = |code| name(failure(code, "x"), Path::new("/d/store.db")).to_string();
        assert_eq!(line(ffi::SQLITE_FULL), "the disk is full at /d/store.db; free some space, nothing was lost");
        assert_eq!(
            line(ffi::SQLITE_CORRUPT),
            "cannot use /d/store.db: the database is damaged; restore it from a copy"
        );
        assert!(line(ffi::SQLITE_NOTADB).contains("not a SQLite database"));
        assert_eq!(line(ffi::SQLITE_CONSTRAINT), "sqlite: x");
    }
}
