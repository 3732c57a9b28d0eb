//! One process to a data folder. The kernel holds the lock and lets go of it when the process dies, however it dies, so
//! there is no stale lock to clean up. The process id inside the file is for people only; nothing decides by it.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::{StoreError, folder};

/// The lock's name inside the folder.
const LOCK_FILE: &str = "lock";
/// As much of the file as can be a process id.
const PID_BYTES_MAX: u64 = 20;

/// A data folder that is ours until this is dropped.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Makes the folder if it is not there and takes it, or says who has it. Does not wait.
    pub fn take(dir: &Path) -> Result<FolderLock, StoreError> {
        let path = dir.join(LOCK_FILE);
        folder::make(dir).map_err(|error| folder::name(&error, dir))?;
        let mut file = folder::open_file(&path).map_err(|error| folder::name(&error, &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { path: dir.display().to_string(), pid: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(folder::name(&error, &path)),
        }
        sign(&mut file).map_err(|error| folder::name(&error, &path))?;
        Ok(FolderLock { file })
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // The file stays: removing it could take away one that another process has just locked. A signature that
        // cannot be wiped misleads nobody, as the lock itself decides.
        let _ = self.file.set_len(0);
    }
}

fn sign(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> String {
    let mut pid = String::new();
    // The holder may be between locking and signing.
    match file.take(PID_BYTES_MAX).read_to_string(&mut pid) {
        Ok(_) if !pid.trim().is_empty() => pid.trim().to_owned(),
        _ => "(id not known)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_use_names_itself_and_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let held = FolderLock::take(dir.path()).unwrap();
        let refused = FolderLock::take(dir.path()).unwrap_err();
        let StoreError::InUse { path, pid } = &refused else { panic!("{refused}") };
        assert_eq!((path.as_str(), pid.as_str()), (dir.path().to_str().unwrap(), &*std::process::id().to_string()));
        drop(held);
        FolderLock::take(dir.path()).unwrap();
    }

    #[test]
    fn a_signature_left_by_the_dead_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(LOCK_FILE), "4194304999\n").unwrap();
        let _held = FolderLock::take(dir.path()).unwrap();
        let StoreError::InUse { pid, .. } = FolderLock::take(dir.path()).unwrap_err() else { panic!() };
        assert_eq!(pid, std::process::id().to_string());
    }

    #[test]
    fn a_file_where_the_folder_should_be_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "").unwrap();
        let refused = FolderLock::take(&path).unwrap_err();
        assert!(
            matches!(&refused, StoreError::Unusable { path: named, .. } if named.starts_with(path.to_str().unwrap()))
        );
    }
}
