//! A folder for a task that asked for none. A task that left it as it was leaves it to the next one, because making and
//! removing a folder costs a journalling file system more than all else the worker does for a short task; a folder that
//! was touched in any way is removed with all that is in it.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, fstat, open};

#[derive(Debug)]
pub(crate) struct Nook {
    path: PathBuf,
    made: Nature,
}

/// What must not have changed: which folder it is, whose, and who may use it.
type Nature = (u64, u64, u32, u32, u32);

impl Nook {
    pub fn make(path: PathBuf) -> io::Result<Self> {
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let found = std::fs::symlink_metadata(&path)?;
        let made = (found.dev(), found.ino(), found.mode(), found.uid(), found.gid());
        Ok(Self { path, made })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Still the folder that was made, and empty.
    pub fn is_untouched(&self) -> bool {
        // The task may have put a link in its place: that is not followed.
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(folder) = open(&self.path, flags, Mode::empty()) else { return false };
        let same = fstat(&folder)
            .is_ok_and(|found| (found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid) == self.made);
        same && Dir::new(folder).is_ok_and(|entries| {
            entries
                .into_iter()
                .all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
        })
    }
}

impl Drop for Nook {
    fn drop(&mut self) {
        if std::fs::remove_dir(&self.path).is_ok() {
            return;
        }
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(dir = %self.path.display(), %error, "cannot remove a task's folder");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn touched(by: impl FnOnce(&Path)) -> bool {
        let parent = tempfile::tempdir().unwrap();
        std::fs::create_dir(parent.path().join("else")).unwrap();
        let nook = Nook::make(parent.path().join("nook")).unwrap();
        assert!(nook.is_untouched());
        by(nook.path());
        let touched = !nook.is_untouched();
        drop(nook);
        assert!(!parent.path().join("nook").is_symlink() && !parent.path().join("nook").exists());
        assert!(parent.path().join("else").exists());
        touched
    }

    #[test]
    fn only_an_untouched_folder_is_used_again() {
        assert!(!touched(|_| {}));
        assert!(!touched(|nook| {
            std::fs::write(nook.join("file"), "x").unwrap();
            std::fs::remove_file(nook.join("file")).unwrap();
        }));
        assert!(touched(|nook| std::fs::write(nook.join(".hidden"), "x").unwrap()));
        assert!(touched(|nook| std::fs::create_dir_all(nook.join("a/b")).unwrap()));
        assert!(touched(|nook| std::fs::set_permissions(nook, PermissionsExt::from_mode(0o777)).unwrap()));
        assert!(touched(|nook| std::fs::remove_dir(nook).unwrap()));
        assert!(touched(|nook| {
            std::fs::remove_dir(nook).unwrap();
            symlink(nook.with_file_name("else"), nook).unwrap();
        }));
    }
}
