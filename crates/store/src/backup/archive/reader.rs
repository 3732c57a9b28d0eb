//! Reading an archive from its beginning. Every part's checksum is compared when its end is reached, also that of one
//! whose bytes nobody wanted.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{
    CHECKSUM_BYTES, CHUNK_BYTES_MAX, DATA, END, FORMAT, FRAME_BYTES_MAX, MAGIC, MAGIC_COMMON, MANIFEST, PART, hex,
};
use crate::backup::{BackupError, Manifest, Part};

pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    bytes: u64,
    /// How far we are in the file, and were when last asked.
    at: u64,
    told: u64,
    /// The part that is being read.
    name: Option<String>,
    sum: Sha256,
    length: u64,
    chunk: Vec<u8>,
    /// How much of the chunk [`Self::exact`] has used.
    used: usize,
    parts: Vec<Part>,
    manifest: Option<Manifest>,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Self, BackupError> {
        let named = BackupError::io(path);
        let file = File::open(path).map_err(&named)?;
        let about = file.metadata().map_err(&named)?;
        if !about.is_file() {
            return Err(BackupError::Foreign { path: path.display().to_string() });
        }
        let mut reader = Self {
            path: path.into(),
            file: BufReader::new(file),
            bytes: about.len(),
            at: 0,
            told: 0,
            name: None,
            sum: Sha256::new(),
            length: 0,
            chunk: Vec::new(),
            used: 0,
            parts: Vec::new(),
            manifest: None,
        };
        reader.greet()?;
        Ok(reader)
    }

    fn greet(&mut self) -> Result<(), BackupError> {
        let path = || self.path.display().to_string();
        let mut magic = [0; MAGIC.len()];
        if self.file.read_exact(&mut magic).is_err() {
            return Err(BackupError::Foreign { path: path() });
        }
        self.at = MAGIC.len() as u64;
        if magic == MAGIC {
            return Ok(());
        }
        let format = str::from_utf8(&magic[MAGIC_COMMON..]).ok().and_then(|rest| rest.trim().parse().ok());
        match format {
            Some(found) if magic[..MAGIC_COMMON] == MAGIC[..MAGIC_COMMON] => {
                Err(BackupError::NewerFormat { path: path(), found, known: FORMAT })
            }
            _ => Err(BackupError::Foreign { path: path() }),
        }
    }

    /// Of the whole file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the file read since this was asked last.
    pub fn took(&mut self) -> u64 {
        let took = self.at - self.told;
        self.told = self.at;
        took
    }

    /// Goes to the next part and tells its name; none when there is no more, and then there is a manifest.
    pub fn next_part(&mut self) -> Result<Option<String>, BackupError> {
        while self.name.is_some() {
            self.chunk()?;
        }
        if self.manifest.is_some() {
            return Ok(None);
        }
        let (letter, body) = self.frame()?;
        match letter {
            PART => {
                let name = String::from_utf8(body).map_err(|_| self.damaged("a part without a name"))?;
                self.name = Some(name.clone());
                (self.sum, self.length, self.used) = (Sha256::new(), 0, 0);
                self.chunk.clear();
                Ok(Some(name))
            }
            MANIFEST => self.close(&body).map(|()| None),
            _ => Err(self.damaged("its parts are out of order")),
        }
    }

    /// Goes to the part of this name. An archive that was found to be good and lacks it is another one by now.
    pub fn go_to(&mut self, wanted: &str) -> Result<(), BackupError> {
        while let Some(name) = self.next_part()? {
            if name == wanted {
                return Ok(());
            }
        }
        Err(self.damaged(&format!("it has no part \"{wanted}\"")))
    }

    /// The next bytes of this part; none at its end.
    pub fn chunk(&mut self) -> Result<Option<&[u8]>, BackupError> {
        let Some(name) = self.name.clone() else { return Ok(None) };
        let (letter, body) = self.frame()?;
        match letter {
            DATA => {
                let unpacked = zstd::bulk::decompress(&body, CHUNK_BYTES_MAX);
                self.chunk = unpacked.map_err(|_| self.damaged(&format!("the part \"{name}\" cannot be unpacked")))?;
                self.used = 0;
                self.sum.update(&self.chunk);
                self.length += self.chunk.len() as u64;
                Ok(Some(&self.chunk))
            }
            END => {
                self.chunk.clear();
                self.used = 0;
                self.name = None;
                let part: Part = serde_json::from_slice(&body).map_err(|_| self.damaged("a part without an end"))?;
                let sum = std::mem::take(&mut self.sum).finalize();
                if part.name != name || part.bytes != self.length || part.sha256 != hex(&sum) {
                    return Err(self.damaged(&format!("the checksum of the part \"{name}\" is another")));
                }
                self.parts.push(part);
                Ok(None)
            }
            _ => Err(self.damaged(&format!("the part \"{name}\" has no end"))),
        }
    }

    /// Fills the buffer from this part. False at its end, which must not come in the middle.
    pub fn exact(&mut self, buffer: &mut [u8]) -> Result<bool, BackupError> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.used == self.chunk.len() && self.chunk()?.is_none() {
                return if filled == 0 { Ok(false) } else { Err(self.damaged("an entry is cut")) };
            }
            let now = (buffer.len() - filled).min(self.chunk.len() - self.used);
            buffer[filled..filled + now].copy_from_slice(&self.chunk[self.used..self.used + now]);
            (filled, self.used) = (filled + now, self.used + now);
        }
        Ok(true)
    }

    /// What [`Self::exact`] has left of the last chunk.
    pub fn rest(&mut self) -> &[u8] {
        let from = std::mem::replace(&mut self.used, self.chunk.len());
        &self.chunk[from..]
    }

    /// Of an archive that was read to its end.
    pub fn manifest(&self) -> Result<Manifest, BackupError> {
        self.manifest.clone().ok_or_else(|| self.damaged("it has no manifest"))
    }

    fn close(&mut self, body: &[u8]) -> Result<(), BackupError> {
        let (sum, text) = body.split_at_checked(CHECKSUM_BYTES).ok_or_else(|| self.damaged("its manifest is cut"))?;
        if Sha256::digest(text).as_slice() != sum {
            return Err(self.damaged("the checksum of its manifest is another"));
        }
        let manifest: Manifest =
            serde_json::from_slice(text).map_err(|error| self.damaged(&format!("its manifest: {error}")))?;
        if manifest.parts != self.parts {
            return Err(self.damaged("its parts are not those of its manifest"));
        }
        if self.at != self.bytes {
            return Err(self.damaged("something follows its end"));
        }
        self.manifest = Some(manifest);
        Ok(())
    }

    fn frame(&mut self) -> Result<(u8, Vec<u8>), BackupError> {
        let mut head = [0; 5];
        self.fill(&mut head)?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(self.damaged("a frame is too long"));
        }
        let mut body = vec![0; len];
        self.fill(&mut body)?;
        Ok((head[0], body))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), BackupError> {
        self.file.read_exact(buffer).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => BackupError::Cut { path: self.path.display().to_string(), at: self.bytes },
            _ => BackupError::io(&self.path)(error),
        })?;
        self.at += buffer.len() as u64;
        Ok(())
    }

    pub fn damaged(&self, what: &str) -> BackupError {
        BackupError::Damaged { path: self.path.display().to_string(), what: what.into() }
    }
}
