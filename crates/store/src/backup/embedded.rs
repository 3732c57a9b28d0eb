//! SQLite and its blobs, put away while the installation goes on, and brought back.
//!
//! Blobs are held by hard links: what the installation removes meanwhile stays until it is packed, and nothing is copied
//! twice. Links are made before the database's state is taken, and once more after it for what came in between.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::archive::{Reader, Writer};
use super::exchange::Exchange;
use super::{BackupError, JUMP, Onlooker, Place, Present, entries};
use crate::sqlite::copy;
use crate::{FolderLock, Sqlite, StoreError, folder};

const DATABASE: &str = "database";
pub(super) const BLOBS: &str = "blobs";
/// What is put away meanwhile, inside the data folder: links work within one file system only.
const WORKSHOP: &str = "backup";
/// Free space that a copy of the database leaves.
const SPARE_BYTES: u64 = 64 << 20;
/// Bytes between two looks of the onlooker.
const PIECE_BYTES: usize = 1 << 20;

pub(super) fn pack(
    of: &Place,
    writer: &mut Writer,
    onlooker: &dyn Onlooker,
) -> Result<BTreeMap<String, u32>, BackupError> {
    let file = of.data.join(of.database);
    if !file.is_file() {
        return Err(BackupError::Nothing { place: of.data.display().to_string() });
    }
    let workshop = Workshop::open(of.data.join(WORKSHOP))?;
    let (blobs, links, state) = (of.data.join(of.blobs), workshop.dir.join(BLOBS), workshop.dir.join(DATABASE));
    refuse_without_room(&file)?;
    onlooker.begins("copying the database", 0);
    link(&blobs, &links)?;
    copy::to(&file, &state)?;
    link(&blobs, &links)?;
    let schema = copy::versions(&state)?;

    let mut total = std::fs::metadata(&state).map_err(BackupError::io(&state))?.len();
    each_file(&links, &mut |_, entry| {
        total += entry.metadata().map_or(0, |about| about.len());
        Ok(())
    })?;
    onlooker.begins("packing", total);
    writer.begin(DATABASE)?;
    writer.count(1);
    pour(&state, writer, onlooker)?;
    writer.end()?;
    writer.begin(BLOBS)?;
    each_file(&links, &mut |name, entry| {
        onlooker.passed(entries::put(writer, name, &entry.path())?);
        Ok(())
    })?;
    writer.end()?;
    Ok(schema)
}

pub(super) async fn unpack(
    archive: &Path,
    into: &Place,
    present: Present,
    onlooker: &dyn Onlooker,
) -> Result<(), BackupError> {
    let mut exchange = Exchange::begin(archive, into, present)?;
    let log = |end| format!("{}{end}", into.database);
    exchange.also(&[into.database, &log("-wal"), &log("-shm"), into.blobs])?;
    let (file, blobs) = (exchange.fresh().join(into.database), exchange.fresh().join(into.blobs));
    extract(archive, &file, onlooker)?;

    let mut reader = Reader::open(archive)?;
    reader.go_to(BLOBS)?;
    entries::unpack(&mut reader, &blobs, |_, bytes| onlooker.passed(bytes))?;

    // Opening brings older tables up to date.
    let database = Sqlite::open(&file, &into.tables.sqlite)?;
    let after = into.tables.after.clone();
    let jumped = database.write(move |db| {
        db.execute_batch(&after)?;
        // There is such a table only where a key must never be used twice.
        if db.table_exists(None, "sqlite_sequence")? {
            db.execute("UPDATE sqlite_sequence SET seq = seq + ?1", [JUMP])?;
        }
        Ok(())
    });
    jumped.await?;
    database.close().await;
    exchange.finish()?;
    Ok(())
}

/// Writes the database's part to a file of its own.
pub(super) fn extract(archive: &Path, file: &Path, onlooker: &dyn Onlooker) -> Result<(), BackupError> {
    let named = BackupError::io(file);
    let mut reader = Reader::open(archive)?;
    onlooker.begins("unpacking", reader.bytes());
    reader.go_to(DATABASE)?;
    let mut out = folder::open_file(file).map_err(&named)?;
    while let Some(chunk) = reader.chunk()? {
        std::io::Write::write_all(&mut out, chunk).map_err(&named)?;
        onlooker.passed(reader.took());
    }
    Ok(())
}

/// A folder for what is on its way into an archive. One at a time; emptied at both ends.
struct Workshop {
    dir: PathBuf,
    _lock: FolderLock,
}

impl Workshop {
    fn open(dir: PathBuf) -> Result<Self, BackupError> {
        let lock = FolderLock::take(&dir).map_err(|error| match error {
            StoreError::InUse { path, pid } => {
                StoreError::Unusable { path, why: format!("process {pid} makes a backup at this moment; wait for it") }
            }
            error => error,
        })?;
        let workshop = Self { dir, _lock: lock };
        workshop.clear().map_err(BackupError::io(&workshop.dir))?;
        Ok(workshop)
    }

    fn clear(&self) -> std::io::Result<()> {
        for left in [self.dir.join(BLOBS), self.dir.join(DATABASE)] {
            let removed = if left.is_dir() { std::fs::remove_dir_all(&left) } else { std::fs::remove_file(&left) };
            match removed {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next backup.
        let _ = self.clear();
    }
}

fn refuse_without_room(file: &Path) -> Result<(), BackupError> {
    let dir = folder::parent_of(file);
    let about = std::fs::metadata(file).map_err(BackupError::io(file))?;
    let disk = rustix::fs::statvfs(dir).map_err(|error| BackupError::io(dir)(error.into()))?;
    let bytes = about.len() + SPARE_BYTES;
    match disk.f_bavail.saturating_mul(disk.f_frsize) {
        free if free < bytes => Err(BackupError::NoRoom { path: dir.display().to_string(), bytes }),
        _ => Ok(()),
    }
}

fn pour(file: &Path, writer: &mut Writer, onlooker: &dyn Onlooker) -> Result<(), BackupError> {
    let named = BackupError::io(file);
    let (mut from, mut piece) = (std::fs::File::open(file).map_err(&named)?, vec![0; PIECE_BYTES]);
    loop {
        match std::io::Read::read(&mut from, &mut piece).map_err(&named)? {
            0 => return Ok(()),
            n => {
                writer.write(&piece[..n])?;
                onlooker.passed(n as u64);
            }
        }
    }
}

/// Links every blob that is there. Those that go away meanwhile belong to nothing any more.
fn link(blobs: &Path, links: &Path) -> Result<(), BackupError> {
    each_file(blobs, &mut |name, entry| {
        let to = links.join(name);
        folder::make_unsynced(folder::parent_of(&to)).map_err(BackupError::io(&to))?;
        match std::fs::hard_link(entry.path(), &to) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {
                Err(BackupError::io(&to)(error))
            }
            _ => Ok(()),
        }
    })
}

/// Every file under the folder, by its name from there. What is set aside for removal (`~…`) is passed over.
fn each_file(root: &Path, take: &mut dyn FnMut(&str, &DirEntry) -> Result<(), BackupError>) -> Result<(), BackupError> {
    let mut folders = vec![String::new()];
    while let Some(inside) = folders.pop() {
        let dir = root.join(&inside);
        let named = BackupError::io(&dir);
        let listed = match std::fs::read_dir(&dir) {
            Ok(listed) => listed,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(named(error)),
        };
        for entry in listed {
            let entry = entry.map_err(&named)?;
            let own = entry.file_name();
            let Some(own) = own.to_str().filter(|own| !own.starts_with('~')) else { continue };
            let name = if inside.is_empty() { own.to_owned() } else { format!("{inside}/{own}") };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(name),
                Ok(kind) if kind.is_file() => take(&name, &entry)?,
                _ => {}
            }
        }
    }
    Ok(())
}
