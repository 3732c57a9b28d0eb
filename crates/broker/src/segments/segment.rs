//! One segment file: made, opened and checked, appended to, read.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::files::Files;
use super::format::{self, End, Fault, HEAD_BYTES, Mark};
use super::tail::Group;
use crate::Record;

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 << 10;
const SUFFIX: &str = ".log";

pub(super) struct Segment {
    pub base: u64,
    path: PathBuf,
    number: u64,
    files: Arc<Files>,
    gone: AtomicBool,
    durable: Mutex<Durable>,
}

/// What may be read.
struct Durable {
    bytes: usize,
    next: u64,
    marks: Vec<Mark>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum AppendError {
    /// Nothing was added; the next append may work.
    #[error("{0}")]
    Clean(String),
    /// What the file holds is unknown until it is read again.
    #[error("{0}")]
    Unknown(String),
}

/// Every segment of a folder, oldest first, checked from the first byte to the last. None where there is no folder.
pub(super) fn open_all(folder: &Path, files: &Arc<Files>) -> Result<VecDeque<Arc<Segment>>, String> {
    let mut bases = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(VecDeque::new()),
        Err(error) => return Err(at(folder, &error)),
    };
    for entry in entries {
        let name = entry.map_err(|error| at(folder, &error))?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        bases.extend(digits.and_then(|digits| digits.parse::<u64>().ok()));
    }
    bases.sort_unstable();
    let mut segments = VecDeque::new();
    for (n, base) in bases.iter().enumerate() {
        let segment = Segment::open(folder, *base, bases.get(n + 1).copied(), files)?;
        segments.push_back(Arc::new(segment));
    }
    Ok(segments)
}

fn path_of(folder: &Path, base: u64) -> PathBuf {
    folder.join(format!("{base:020}{SUFFIX}"))
}

fn at(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

impl Segment {
    pub fn create(folder: &Path, base: u64, files: &Arc<Files>) -> Result<Self, String> {
        let path = path_of(folder, base);
        let made = || -> io::Result<File> {
            if !folder.exists() {
                fs::create_dir_all(folder)?;
                if let Some(above) = folder.parent() {
                    File::open(above)?.sync_all()?;
                }
            }
            let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path)?;
            // Without this the records could be durable in a file that no folder names.
            File::open(folder)?.sync_all()?;
            Ok(file)
        };
        let file = made().map_err(|error| at(&path, &error))?;
        let made = Self::of(base, path, files, Durable { bytes: 0, next: base, marks: Vec::new() });
        made.files.keep(made.number, Arc::new(file));
        Ok(made)
    }

    fn of(base: u64, path: PathBuf, files: &Arc<Files>, durable: Durable) -> Self {
        let (files, number) = (files.clone(), files.number());
        Self { base, path, number, files, gone: AtomicBool::new(false), durable: Mutex::new(durable) }
    }

    fn file(&self) -> Result<Arc<File>, String> {
        let file = self.files.get(self.number, &self.path).map_err(|error| at(&self.path, &error))?;
        if self.gone.load(Ordering::SeqCst) {
            self.files.forget(self.number);
        }
        Ok(file)
    }

    /// Removes the file, or says in the log why it cannot: it is still there at the next open then, and counted again.
    pub fn unlink(&self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(file = %self.path.display(), %error, "an old log segment cannot be removed");
        }
        self.let_go();
    }

    /// The file is gone, or is somebody else's.
    pub fn let_go(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.files.forget(self.number);
    }

    /// `next_base` is where the following segment begins; only the last segment, which has none, may have a torn tail.
    fn open(folder: &Path, base: u64, next_base: Option<u64>, files: &Arc<Files>) -> Result<Self, String> {
        let path = path_of(folder, base);
        let bytes = fs::read(&path).map_err(|error| at(&path, &error))?;
        let scan = format::scan(&bytes, base);
        let next = base + scan.records;
        let whole = match next_base {
            Some(following) => scan.end == End::Clean && following == next,
            None => scan.end != End::Damaged,
        };
        if !whole {
            return Err(damaged(&path, scan.sound_bytes));
        }
        let cut_off = || -> io::Result<()> {
            let file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(scan.sound_bytes as u64)?;
            file.sync_all()
        };
        if scan.end == End::Torn {
            tracing::warn!(file = %path.display(), from = scan.sound_bytes, to = bytes.len(), "cutting off a torn tail");
            cut_off().map_err(|error| at(&path, &error))?;
        }
        Ok(Self::of(base, path, files, Durable { bytes: scan.sound_bytes, next, marks: scan.marks }))
    }

    pub fn next(&self) -> u64 {
        self.durable.lock().next
    }

    pub fn bytes(&self) -> u64 {
        self.durable.lock().bytes as u64
    }

    pub fn is_empty(&self) -> bool {
        self.next() == self.base
    }

    /// Writes and syncs one group, and answers with what it wrote. One caller at a time.
    pub fn append<'a>(&self, bodies: impl Iterator<Item = &'a Bytes>) -> Result<Group, AppendError> {
        let file = self.file().map_err(AppendError::Clean)?;
        let (start, first) = {
            let durable = self.durable.lock();
            (durable.bytes, durable.next)
        };
        let mut group = Vec::new();
        let mut places = Vec::new();
        for (offset, body) in (first..).zip(bodies) {
            format::encode(&mut group, offset, start as u32, body);
            places.push(((group.len() - body.len()) as u32, body.len() as u32));
        }
        if let Err(error) = file.write_all_at(&group, start as u64) {
            // A full disk: take back the half that was written, so that it cannot be taken for records.
            return Err(match file.set_len(start as u64) {
                Ok(()) => AppendError::Clean(at(&self.path, &error)),
                Err(_) => AppendError::Unknown(at(&self.path, &error)),
            });
        }
        // After a failed sync the kernel may have dropped the pages and would call the next sync a success.
        file.sync_data().map_err(|error| AppendError::Unknown(at(&self.path, &error)))?;
        let mut durable = self.durable.lock();
        for (offset, (body, _)) in (first..).zip(&places) {
            format::mark(&mut durable.marks, offset, start + *body as usize - HEAD_BYTES);
        }
        durable.bytes = start + group.len();
        durable.next = first + places.len() as u64;
        Ok(Group { first, bytes: group.into(), bodies: places })
    }

    /// Records from `from` on, which this segment must hold: at least one, at most `limit`, about `bytes_max` bytes.
    pub fn read(&self, from: u64, limit: usize, bytes_max: usize) -> Result<Vec<Record>, String> {
        let file = self.file()?;
        let (end, mut position) = {
            let durable = self.durable.lock();
            let after = durable.marks.partition_point(|mark| mark.offset <= from);
            (durable.bytes, after.checked_sub(1).map_or(0, |at| durable.marks[at].position))
        };
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut want = CHUNK_BYTES;
        while position < end && records.len() < limit && bytes < bytes_max {
            let mut chunk = vec![0; want.min(end - position)];
            file.read_exact_at(&mut chunk, position as u64).map_err(|error| at(&self.path, &error))?;
            let chunk = Bytes::from(chunk);
            let mut done = 0;
            want = CHUNK_BYTES;
            while records.len() < limit && bytes < bytes_max {
                match format::parse(&chunk, done) {
                    Ok(found) => {
                        done = found.body.end;
                        if found.offset >= from {
                            bytes += found.body.len() + HEAD_BYTES;
                            records.push(Record { offset: found.offset, body: chunk.slice(found.body) });
                        }
                    }
                    // The record goes on behind the chunk: come back for all of it.
                    Err(Fault::Short { needed }) if position + done + needed <= end => {
                        want = needed.max(CHUNK_BYTES);
                        break;
                    }
                    Err(Fault::Short { .. }) if position + done == end => break,
                    Err(_) => return Err(damaged(&self.path, position + done)),
                }
            }
            position += done;
        }
        Ok(records)
    }
}

fn damaged(path: &Path, position: usize) -> String {
    format!(
        "{} is damaged at byte {position}; restore it from a copy, or move this log's folder away to begin it afresh",
        path.display()
    )
}
