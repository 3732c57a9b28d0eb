//! Writing an archive: under another name until it is whole and on disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{CHUNK_BYTES_MAX, DATA, END, FORMAT, MAGIC, MANIFEST, PART, hex};
use crate::backup::{BackupError, Engine, Manifest, Part, Stamp};
use crate::folder;

/// Quick, and good enough for rows that repeat themselves.
const LEVEL: i32 = 3;

pub struct Writer {
    path: PathBuf,
    unfinished: Unfinished,
    file: BufWriter<File>,
    parts: Vec<Part>,
    part: Open,
}

/// A file that is taken away on drop, unless it has become the archive.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Renamed by now if all went well.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The part that is being written.
#[derive(Default)]
struct Open {
    name: String,
    items: u64,
    bytes: u64,
    sum: Sha256,
    chunk: Vec<u8>,
}

impl Writer {
    pub fn create(path: &Path) -> Result<Self, BackupError> {
        if path.exists() {
            return Err(BackupError::Exists { path: path.display().to_string() });
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".unfinished");
        let beside = PathBuf::from(name);
        // Secrets are inside, so nobody else may read it. One that a killed backup left is of no use to anybody.
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = BufWriter::new(options.open(&beside).map_err(BackupError::io(&beside))?);
        let unfinished = Unfinished(beside);
        file.write_all(MAGIC).map_err(BackupError::io(path))?;
        Ok(Self { path: path.into(), unfinished, file, parts: Vec::new(), part: Open::default() })
    }

    pub fn begin(&mut self, name: &str) -> Result<(), BackupError> {
        self.part = Open { name: name.into(), ..Open::default() };
        self.frame(PART, name.as_bytes())
    }

    /// So many more rows or files are in the part.
    pub fn count(&mut self, items: u64) {
        self.part.items += items;
    }

    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), BackupError> {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES_MAX - self.part.chunk.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.part.chunk.extend_from_slice(now);
            bytes = later;
            if self.part.chunk.len() == CHUNK_BYTES_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }

    pub fn end(&mut self) -> Result<(), BackupError> {
        self.flush()?;
        let Open { name, items, bytes, sum, .. } = std::mem::take(&mut self.part);
        let part = Part { name, items, bytes, sha256: hex(&sum.finalize()) };
        let told = self.json(&part)?;
        self.parts.push(part);
        self.frame(END, &told)
    }

    /// Whole, on disk, and under its name when this returns.
    pub fn finish(
        mut self,
        engine: Engine,
        schema: BTreeMap<String, u32>,
        stamp: &Stamp,
    ) -> Result<Manifest, BackupError> {
        let (program, created_at) = (stamp.program.clone(), stamp.at);
        let parts = std::mem::take(&mut self.parts);
        let manifest = Manifest { format: FORMAT, program, created_at, engine, schema, parts };
        let text = self.json(&manifest)?;
        let mut told = Sha256::digest(&text).to_vec();
        told.extend_from_slice(&text);
        self.frame(MANIFEST, &told)?;
        let named = BackupError::io(&self.path);
        self.file.flush().and_then(|()| self.file.get_ref().sync_all()).map_err(&named)?;
        std::fs::rename(&self.unfinished.0, &self.path).map_err(&named)?;
        File::open(folder::parent_of(&self.path)).and_then(|dir| dir.sync_all()).map_err(&named)?;
        Ok(manifest)
    }

    fn flush(&mut self) -> Result<(), BackupError> {
        if self.part.chunk.is_empty() {
            return Ok(());
        }
        let mut chunk = std::mem::take(&mut self.part.chunk);
        self.part.bytes += chunk.len() as u64;
        self.part.sum.update(&chunk);
        let packed = zstd::bulk::compress(&chunk, LEVEL).map_err(BackupError::io(&self.path))?;
        self.frame(DATA, &packed)?;
        chunk.clear();
        self.part.chunk = chunk;
        Ok(())
    }

    fn frame(&mut self, letter: u8, body: &[u8]) -> Result<(), BackupError> {
        let len = (body.len() as u32).to_le_bytes();
        let written = self.file.write_all(&[letter]).and_then(|()| self.file.write_all(&len));
        written.and_then(|()| self.file.write_all(body)).map_err(BackupError::io(&self.path))
    }

    fn json<T: serde::Serialize>(&self, value: &T) -> Result<Vec<u8>, BackupError> {
        serde_json::to_vec(value).map_err(|error| BackupError::io(&self.path)(error.into()))
    }
}
