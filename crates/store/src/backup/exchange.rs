//! What is in a data folder for what was in the archive. New things are gathered in a folder beside the old ones, then
//! each takes its place; what was there is kept under another name, for a person to throw away.
//!
//! Several files cannot change places at once. While they do, [`RESTORING`] is in the folder, and a manager does not start
//! there; a restore that was killed is simply run again.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::archive::Reader;
use super::{BackupError, FILES, Place, Present, RESTORING, entries};
use crate::{FolderLock, folder};

const FRESH: &str = "restore";
const ASIDE: &str = "replaced";

pub(super) struct Exchange {
    data: PathBuf,
    present: Present,
    /// What takes the place of its namesake in the data folder.
    names: Vec<String>,
    _lock: FolderLock,
}

impl Exchange {
    /// The data folder is ours from here on, and the archive's files wait in the fresh one.
    pub fn begin(archive: &Path, into: &Place, present: Present) -> Result<Self, BackupError> {
        let lock = FolderLock::take(&into.data)?;
        // A restore that did not end has left neither the old nor the new.
        let present = if into.data.join(RESTORING).exists() { Present::Replace } else { present };
        let mut exchange = Self { data: into.data.clone(), present, names: Vec::new(), _lock: lock };
        let fresh = exchange.fresh();
        clear(&fresh)?;
        folder::make(&fresh).map_err(BackupError::io(&fresh))?;
        let mut reader = Reader::open(archive)?;
        reader.go_to(FILES)?;
        let names = &mut exchange.names;
        entries::unpack(&mut reader, &fresh, |name, _| names.push(name))?;
        exchange.refuse_present()?;
        Ok(exchange)
    }

    pub fn fresh(&self) -> PathBuf {
        self.data.join(FRESH)
    }

    /// These will be in the fresh folder too. Refused now when they are in the data folder already.
    pub fn also(&mut self, names: &[&str]) -> Result<(), BackupError> {
        self.names.extend(names.iter().map(|name| (*name).to_owned()));
        self.refuse_present()
    }

    fn refuse_present(&self) -> Result<(), BackupError> {
        let present = self.names.iter().find(|name| self.data.join(name).exists());
        match present {
            Some(what) if self.present == Present::Refuse => {
                Err(BackupError::NotEmpty { place: self.data.display().to_string(), what: what.clone() })
            }
            _ => Ok(()),
        }
    }

    /// All of it changes places, and is on disk. Tells where the old things are, if there were any.
    pub fn finish(self) -> Result<Option<PathBuf>, BackupError> {
        let (fresh, aside, marker) = (self.fresh(), self.aside(), self.data.join(RESTORING));
        let named = BackupError::io(&self.data);
        sync(&self.data)?;
        File::create(&marker).map_err(&named)?;
        sync(&self.data)?;
        for name in &self.names {
            let (old, new) = (self.data.join(name), fresh.join(name));
            if old.exists() {
                carry(&old, &aside.join(name))?;
            }
            // The log of an old database has no successor.
            if new.exists() {
                carry(&new, &old)?;
            }
        }
        sync(&self.data)?;
        std::fs::remove_file(&marker).map_err(&named)?;
        sync(&self.data)?;
        Ok(Some(aside).filter(|aside| aside.exists()))
    }

    /// A name that is free.
    fn aside(&self) -> PathBuf {
        let mut numbered = (1u64..).map(|n| self.data.join(format!("{ASIDE}-{n}")));
        numbered.find(|path| !path.exists()).unwrap_or_else(|| self.data.join(ASIDE))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Secrets of an archive that could not be restored must not lie about; what is left is cleared by the next.
        let _ = clear(&self.fresh());
    }
}

fn carry(from: &Path, to: &Path) -> Result<(), BackupError> {
    folder::make_unsynced(folder::parent_of(to)).map_err(BackupError::io(to))?;
    std::fs::rename(from, to).map_err(BackupError::io(from))
}

/// Everything written to this file system so far.
fn sync(dir: &Path) -> Result<(), BackupError> {
    let synced = File::open(dir).and_then(|dir| rustix::fs::syncfs(dir).map_err(Into::into));
    synced.map_err(BackupError::io(dir))
}

fn clear(dir: &Path) -> Result<(), BackupError> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BackupError::io(dir)(error)),
        _ => Ok(()),
    }
}
