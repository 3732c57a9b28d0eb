//! Blobs as files: the key is the path under one folder.
//!
//! What is promised: an append that was answered survives the death of this process. It may not survive a power cut, as
//! nothing is synced: a blob is a task's log, and the outcome, which is promised, is in the database. After a power cut
//! a blob may be shorter than it was, and a writer that goes on gets [`BlobError::Gap`] with the length there is.
//!
//! No file stays open between calls, so there is nothing to bound but the calls at once.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::blobs::{BlobError, Blobs, check_key, check_prefix};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{StoreError, folder};

/// Calls that touch files at the same time; the rest wait.
const CALLS_AT_ONCE: usize = 16;
/// Bytes one read returns at most.
pub const READ_BYTES_MAX: usize = 4 << 20;
/// Appends to different blobs rarely share one of these locks; appends to the same blob always do.
const LOCKS: usize = 64;
/// What removed folders are called until their files are gone. No key has a `~`.
const REMOVED: &str = "~removed-";

/// [`Blobs`] under one folder.
#[derive(Clone)]
pub struct FileBlobs {
    shelf: Arc<Shelf>,
    calls: Arc<Semaphore>,
}

impl FileBlobs {
    /// Makes the folder (0700) if it is not there.
    pub fn open(root: &Path) -> Result<FileBlobs, StoreError> {
        folder::make(root).map_err(|error| folder::name(&error, root))?;
        finish_removals(root).map_err(|error| folder::name(&error, root))?;
        let locks = std::array::from_fn(|_| Mutex::new(()));
        let shelf = Shelf { root: root.into(), locks, folders: Mutex::new(()), removals: AtomicU64::new(0) };
        Ok(FileBlobs { shelf: Arc::new(shelf), calls: Arc::new(Semaphore::new(CALLS_AT_ONCE)) })
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shelf) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        let stopping = || BlobError::Unreachable("the program is shutting down".into());
        let permit = self.calls.clone().acquire_owned().await.map_err(|_| stopping())?;
        let shelf = self.shelf.clone();
        let working = tokio::task::spawn_blocking(move || {
            let answer = work(&shelf);
            drop(permit);
            answer
        });
        working.await.map_err(|_| stopping())?
    }
}

#[async_trait]
impl Blobs for FileBlobs {
    async fn append(&self, key: &str, offset: u64, bytes: Bytes) -> Result<u64, BlobError> {
        check_key(key)?;
        let key = key.to_owned();
        self.call(move |shelf| shelf.append(&key, offset, &bytes)).await
    }

    async fn read(&self, key: &str, offset: u64, limit: usize) -> Result<Bytes, BlobError> {
        check_key(key)?;
        let key = key.to_owned();
        self.call(move |shelf| shelf.read(&key, offset, limit.min(READ_BYTES_MAX))).await
    }

    async fn len(&self, key: &str) -> Result<Option<u64>, BlobError> {
        check_key(key)?;
        let key = key.to_owned();
        self.call(move |shelf| shelf.len(&key)).await
    }

    async fn remove_all(&self, prefix: &str) -> Result<(), BlobError> {
        check_prefix(prefix)?;
        let prefix = prefix.to_owned();
        self.call(move |shelf| shelf.remove_all(&prefix)).await
    }
}

/// The files themselves. Keys have been checked.
struct Shelf {
    root: PathBuf,
    locks: [Mutex<()>; LOCKS],
    /// Held, for a moment, by whoever makes or takes away folders.
    folders: Mutex<()>,
    removals: AtomicU64,
}

impl Shelf {
    fn append(&self, key: &str, offset: u64, bytes: &[u8]) -> Result<u64, BlobError> {
        let name = |error| self.name(&error, key);
        let path = self.root.join(key);
        // Two who append to one blob must not both find the same end.
        let _alone = self.lock_of(key).lock();
        let file = match OpenOptions::new().write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && offset == 0 => self.create(&path).map_err(name)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(BlobError::Gap { key: key.into(), len: 0 });
            }
            Err(error) => return Err(name(error)),
        };
        let len = file.metadata().map_err(name)?.len();
        if offset > len {
            return Err(BlobError::Gap { key: key.into(), len });
        }
        let known = usize::try_from(len - offset).unwrap_or(usize::MAX).min(bytes.len());
        let fresh = &bytes[known..];
        // On a full disk a part may get written. It is the right part, and the repeated append goes on behind it.
        file.write_all_at(fresh, len).map_err(name)?;
        Ok(len + fresh.len() as u64)
    }

    fn read(&self, key: &str, offset: u64, limit: usize) -> Result<Bytes, BlobError> {
        let read = || {
            let file = File::open(self.root.join(key))?;
            let rest = file.metadata()?.len().saturating_sub(offset);
            let mut bytes = vec![0; usize::try_from(rest).unwrap_or(usize::MAX).min(limit)];
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(n) => filled += n,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            bytes.truncate(filled);
            Ok(Bytes::from(bytes))
        };
        match read() {
            Err(error) if is_no_blob(&error) => Ok(Bytes::new()),
            read => read.map_err(|error| self.name(&error, key)),
        }
    }

    fn len(&self, key: &str) -> Result<Option<u64>, BlobError> {
        match std::fs::metadata(self.root.join(key)) {
            Ok(found) if found.is_file() => Ok(Some(found.len())),
            Ok(_) => Ok(None),
            Err(error) if is_no_blob(&error) => Ok(None),
            Err(error) => Err(self.name(&error, key)),
        }
    }

    fn remove_all(&self, prefix: &str) -> Result<(), BlobError> {
        let name = |error| self.name(&error, prefix);
        match self.set_aside(&self.root.join(prefix.trim_end_matches('/'))) {
            Ok(Some(aside)) => std::fs::remove_dir_all(aside).map_err(name),
            Ok(None) => Ok(()),
            Err(error) => Err(name(error)),
        }
    }

    /// Moves a folder to where no key leads, so that it is gone at once and its many files can be removed at leisure.
    fn set_aside(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let _alone = self.folders.lock();
        // A blob that is called like the folder does not start with the prefix.
        if !path.is_dir() {
            return Ok(None);
        }
        let aside = self.root.join(format!("{REMOVED}{}", self.removals.fetch_add(1, Ordering::Relaxed)));
        std::fs::rename(path, &aside)?;
        // The folders above it go as well, up to the first that is still needed.
        for folder in path.ancestors().skip(1).take_while(|above| *above != self.root) {
            if std::fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(Some(aside))
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let _alone = self.folders.lock();
        folder::make_unsynced(folder::parent_of(path))?;
        folder::open_file(path)
    }

    fn lock_of(&self, key: &str) -> &Mutex<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        &self.locks[hash as usize % LOCKS]
    }

    fn name(&self, error: &io::Error, key: &str) -> BlobError {
        if folder::is_full(error) {
            let root = self.root.display();
            return BlobError::Unreachable(format!("the disk is full at {root}; free some space"));
        }
        match error.kind() {
            // The key is the folder of others, or another is its folder.
            ErrorKind::IsADirectory | ErrorKind::NotADirectory => BlobError::BadKey { key: key.into() },
            _ => BlobError::Unreachable(format!("{key}: {error}")),
        }
    }
}

fn is_no_blob(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory)
}

/// Removes what a process that died had set aside.
fn finish_removals(root: &Path) -> io::Result<()> {
    for found in std::fs::read_dir(root)? {
        let found = found?;
        if found.file_name().as_encoded_bytes().starts_with(REMOVED.as_bytes()) {
            std::fs::remove_dir_all(found.path())?;
        }
    }
    Ok(())
}
