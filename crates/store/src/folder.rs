//! Folders and files that only their owner may read, and what the system says when they cannot be had.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::StoreError;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Makes a folder and its parents, each 0700, and makes sure a power cut does not take them away again. Folders that
/// are there already stay as they are: they may be somebody else's.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    let made: Vec<&Path> = path.ancestors().take_while(|folder| !is_here(folder) && !folder.exists()).collect();
    make_unsynced(path)?;
    for folder in made {
        File::open(parent_of(folder))?.sync_all()?;
    }
    Ok(())
}

/// As [`make`], for folders that may be lost to a power cut.
pub(crate) fn make_unsynced(path: &Path) -> io::Result<()> {
    if is_here(path) { Ok(()) } else { DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path) }
}

/// Opens a file to read and write, making it 0600 if it is not there.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)
}

/// The folder a path is in; `.` for a bare name.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !is_here(parent) => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

fn is_here(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// An error of the file system, in the store's words.
pub(crate) fn name(error: &io::Error, path: &Path) -> StoreError {
    let path = path.display().to_string();
    match error.kind() {
        _ if is_full(error) => StoreError::DiskFull { path },
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            StoreError::Unusable { path, why: "a file is where a folder should be; choose another".into() }
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreError::Unusable {
            path,
            why: format!("{error}; choose another folder, or let the user that runs this write to it"),
        },
        _ => StoreError::Unusable { path, why: error.to_string() },
    }
}
