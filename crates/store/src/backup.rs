//! Backup and restore: an installation as one file, whatever engine it keeps its state in.
//!
//! - [`archive`]: the file itself: parts in compressed frames, a checksum for each, the manifest last.
//! - `entries`: a folder (blobs, secrets) as a part. `embedded`: SQLite and its blobs. `server`: PostgreSQL. `across`: an
//!   embedded backup into PostgreSQL, for whoever has outgrown one machine. `exchange`: what is in a data folder for what
//!   was in the archive.
//!
//! **Consistent.** The database part is one state of the database, taken while the installation goes on. Blobs are
//! written before the row that refers to them and removed after it, so those that were there before that state was taken,
//! and those that came until it was, are all that it can refer to; both are in the archive.
//!
//! **A restored installation is a new line of history.** Numbers that the old one gave out after the backup must not be
//! given out again: counters jump ahead ([`JUMP`]), so that a late report, a blob or an id of then meets nothing of now.
//!
//! Everything here blocks its thread: it is for commands, not for a manager.

mod across;
pub mod archive;
mod embedded;
mod entries;
mod exchange;
mod server;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Migration, StoreError, folder};
use archive::{Reader, Writer};

/// How far counters jump at a restore. More than any installation gives out between a backup and its loss.
pub const JUMP: i64 = 1 << 28;
/// What an archive is called when only its folder was given ends in this.
pub const SUFFIX: &str = "mutirao-backup";
/// Present in a data folder while a restore exchanges what is in it.
pub const RESTORING: &str = "restoring";

const FILES: &str = "files";

/// Why a backup could not be made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{path}: {error}")]
    Io { path: String, error: io::Error },
    #[error("{path} is there already; choose another name, or a folder to have one chosen")]
    Exists { path: String },
    #[error("{path} is not a backup of Mutirão")]
    Foreign { path: String },
    #[error("{path} ends too early, after {at} bytes; copy it again, or use another")]
    Cut { path: String, at: u64 },
    #[error("{path} is damaged: {what}; copy it again, or use another")]
    Damaged { path: String, what: String },
    #[error(
        "{path} is of format {found}, newer than this program's {known}; use the program that wrote it or a newer one"
    )]
    NewerFormat { path: String, found: u32, known: u32 },
    #[error(
        "{path} has {component} at version {found}, newer than this program's {known}; use the program that wrote it or a newer one"
    )]
    NewerSchema { path: String, component: String, found: u32, known: u32 },
    #[error("{place} is not empty ({what}); choose another, or replace what is there with --replace")]
    NotEmpty { place: String, what: String },
    #[error("{path} was made from PostgreSQL and goes back into one; say which with --database")]
    NeedsServer { path: String },
    #[error(
        "{path} is of an older version, which cannot go into PostgreSQL; restore it without --database, make a backup of that, and restore the new one"
    )]
    OlderAcross { path: String },
    #[error(
        "there is no database in {place} to make a backup of; name another folder with --data, or its PostgreSQL with --database"
    )]
    Nothing { place: String },
    #[error("{path} needs {bytes} bytes of free space for a moment; free some, or move other things away")]
    NoRoom { path: String, bytes: u64 },
    #[error("{place} has tables of another version than the backup; restore into an empty database")]
    OtherVersion { place: String },
    #[error("{place} is in use by another Mutirão; stop its managers first")]
    InUse { place: String },
}

impl BackupError {
    fn io(path: &Path) -> impl Fn(io::Error) -> BackupError + '_ {
        |error| match folder::is_full(&error) {
            true => StoreError::DiskFull { path: path.display().to_string() }.into(),
            false => BackupError::Io { path: path.display().to_string(), error },
        }
    }
}

/// Which engine a backup was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    Sqlite,
    Postgres,
}

/// What an archive says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The version of the program that wrote it.
    pub program: String,
    pub created_at: Timestamp,
    pub engine: Engine,
    /// The version of each component's tables.
    pub schema: BTreeMap<String, u32>,
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    /// Rows or files; one for a part that is a whole.
    pub items: u64,
    /// Uncompressed.
    pub bytes: u64,
    pub sha256: String,
}

/// An installation to be put away or brought back.
#[derive(Clone, Debug)]
pub struct Place {
    pub data: PathBuf,
    /// The PostgreSQL; none for SQLite in the data folder.
    pub server: Option<String>,
    /// SQLite's file and the folder of blobs, inside the data folder.
    pub database: &'static str,
    pub blobs: &'static str,
    /// Further files inside the data folder: settings, tokens, keys.
    pub files: Vec<String>,
    pub tables: Tables,
}

/// The tables of this program, for each engine.
#[derive(Clone, Debug)]
pub struct Tables {
    pub sqlite: Vec<Migration>,
    pub postgres: Vec<Migration>,
    /// What is said to the database once the rows are back, in the same transaction: counters that jump.
    pub after: String,
}

/// Who makes a backup, and when.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub program: String,
    pub at: Timestamp,
}

/// What a restore does with what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    Refuse,
    Replace,
}

/// Somebody who watches it going.
pub trait Onlooker {
    /// A step begins that will pass about so many bytes.
    fn begins(&self, what: &'static str, bytes: u64);
    fn passed(&self, bytes: u64);
}

/// Writes a backup to `to`, which must not be there yet. Until it is whole it has another name.
pub async fn create(of: &Place, to: &Path, stamp: &Stamp, onlooker: &dyn Onlooker) -> Result<Manifest, BackupError> {
    let mut writer = Writer::create(to)?;
    writer.begin(FILES)?;
    for name in &of.files {
        entries::put(&mut writer, name, &of.data.join(name))?;
    }
    writer.end()?;
    let (engine, schema) = match &of.server {
        None => (Engine::Sqlite, embedded::pack(of, &mut writer, onlooker)?),
        Some(url) => (Engine::Postgres, server::pack(url, &of.tables.postgres, &mut writer, onlooker).await?),
    };
    writer.finish(engine, schema, stamp)
}

/// Reads all of an archive and says what is in it, or what is wrong with it.
pub fn verify(archive: &Path, onlooker: &dyn Onlooker) -> Result<Manifest, BackupError> {
    let mut reader = Reader::open(archive)?;
    onlooker.begins("checking", reader.bytes());
    while reader.next_part()?.is_some() {
        while reader.chunk()?.is_some() {
            onlooker.passed(reader.took());
        }
    }
    reader.manifest()
}

/// Brings an archive back, after all of it was found to be good. What is there is not touched before.
pub async fn restore(
    archive: &Path,
    into: &Place,
    present: Present,
    onlooker: &dyn Onlooker,
) -> Result<Manifest, BackupError> {
    let manifest = verify(archive, onlooker)?;
    refuse_newer(archive, &manifest, &into.tables)?;
    let path = || archive.display().to_string();
    match (manifest.engine, &into.server) {
        (Engine::Sqlite, None) => embedded::unpack(archive, into, present, onlooker).await?,
        (Engine::Postgres, None) => return Err(BackupError::NeedsServer { path: path() }),
        (Engine::Postgres, Some(url)) => server::unpack(archive, &manifest, url, into, present, onlooker).await?,
        (Engine::Sqlite, Some(url)) => across::unpack(archive, &manifest, url, into, present, onlooker).await?,
    }
    Ok(manifest)
}

fn refuse_newer(archive: &Path, manifest: &Manifest, tables: &Tables) -> Result<(), BackupError> {
    let steps = match manifest.engine {
        Engine::Sqlite => &tables.sqlite,
        Engine::Postgres => &tables.postgres,
    };
    let known = crate::migrate::known(steps)?;
    let of = |component: &str| known.get(component).copied().unwrap_or(0);
    let newer = manifest.schema.iter().find(|(component, found)| **found > of(component));
    newer.map_or(Ok(()), |(component, found)| {
        let (path, component) = (archive.display().to_string(), component.clone());
        Err(BackupError::NewerSchema { known: of(&component), path, component, found: *found })
    })
}
