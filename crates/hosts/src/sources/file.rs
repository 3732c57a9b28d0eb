//! Lines that are added to a file. A file that is moved away is read to its end before the one that took its name; one that was
//! cut is read from its beginning. Half a line waits for its other half.
//!
//! The position is which file it is and how far: after a restart the file is looked for under that number, also under the
//! names that those have that were moved away.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::{Clock, Mono};
use mutirao_streams::graph::Start;
use serde::{Deserialize, Serialize};

use super::{Came, Feed, Taken};

const CHUNK_BYTES: usize = 1 << 20;
/// A longer line is given in pieces, none of which is likely to fit.
const LINE_BYTES_MAX: usize = 4 << 20;
/// How often a file is looked at that has nothing new.
const LOOK: Duration = Duration::from_millis(100);
/// A file whose name is another's is read until nothing came for so long: whoever writes to it may not have let go of it yet.
const LINGER: Duration = Duration::from_secs(1);
/// Files beside it that are looked through for one that was moved away.
const BESIDE_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    device: u64,
    inode: u64,
    offset: u64,
}

impl Place {
    fn is_of(self, meta: &Metadata) -> bool {
        (self.device, self.inode) == (meta.dev(), meta.ino())
    }
}

pub struct Tail {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    open: Option<Open>,
    /// Where to go on, once there is a file.
    from: From,
    ticket: u64,
}

enum From {
    Place(Place),
    /// Its end, of the first file that there is.
    End,
    Beginning,
}

struct Open {
    file: Arc<File>,
    place: Place,
    /// Bytes of a line that has not ended, before `place.offset + half.len()`.
    half: Vec<u8>,
    /// Since when its name is another's and nothing came.
    moved: Option<Mono>,
}

impl Tail {
    pub fn of(path: PathBuf, start: Start, position: Option<&[u8]>, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let from = match position {
            Some(position) => {
                let place: Option<Place> =
                    postcard::from_bytes(position).map_err(|error| format!("its position: {error}"))?;
                place.map_or(From::Beginning, From::Place)
            }
            None if start == Start::End => From::End,
            None => From::Beginning,
        };
        let mut tail = Self { path, clock, open: None, from, ticket: 0 };
        // What is there already when a stream begins is known now: it would be another end later.
        let there = tail.try_open().map_err(|error| tail.said(&error))?;
        if !there && matches!(tail.from, From::End) {
            tail.from = From::Beginning;
        }
        Ok(tail)
    }

    fn said(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }

    /// Whether there is a file.
    fn try_open(&mut self) -> io::Result<bool> {
        let found = match &self.from {
            From::Place(place) => match find(&self.path, *place)? {
                Some(file) => Some((file, place.offset)),
                None => match there(&self.path)? {
                    Some(file) => {
                        let path = self.path.display();
                        tracing::warn!(%path, "the file that was read is gone with what was not read of it; going on with the one there is");
                        Some((file, 0))
                    }
                    None => None,
                },
            },
            From::End => match there(&self.path)? {
                Some(file) => {
                    let end = whole_lines(&file)?;
                    Some((file, end))
                }
                None => None,
            },
            From::Beginning => there(&self.path)?.map(|file| (file, 0)),
        };
        let Some((file, offset)) = found else { return Ok(false) };
        let meta = file.metadata()?;
        let place = Place { device: meta.dev(), inode: meta.ino(), offset };
        self.open = Some(Open { file: Arc::new(file), place, half: Vec::new(), moved: None });
        Ok(true)
    }

    /// The lines of what comes next. Nothing at the end of what there is.
    async fn read(&mut self) -> io::Result<Option<Vec<Bytes>>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let (file, at) = (open.file.clone(), open.place.offset + open.half.len() as u64);
        let read = tokio::task::spawn_blocking(move || {
            let length = file.metadata()?.len();
            if length < at {
                return Ok(Err(length));
            }
            let mut chunk = vec![0; CHUNK_BYTES.min((length - at) as usize)];
            let count = file.read_at(&mut chunk, at)?;
            chunk.truncate(count);
            io::Result::Ok(Ok(chunk))
        });
        match read.await.map_err(io::Error::other)?? {
            Ok(chunk) if chunk.is_empty() => Ok(None),
            Ok(chunk) => {
                open.moved = None;
                Ok(Some(open.split(chunk)))
            }
            Err(length) => {
                tracing::info!(path = %self.path.display(), length, "the file was cut; reading it from its beginning");
                (open.place.offset, open.half) = (0, Vec::new());
                Ok(Some(Vec::new()))
            }
        }
    }

    /// At the end of a file: whether another one took its name, and nothing comes any more. Then the rest of this one is a line,
    /// ended or not.
    fn turn(&mut self) -> io::Result<Option<Bytes>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let moved = match std::fs::metadata(&self.path) {
            Ok(meta) => !open.place.is_of(&meta),
            // The next one is not there yet, and until then this one may still be written to.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !moved {
            open.moved = None;
            return Ok(None);
        }
        let now = self.clock.monotonic();
        if now.since(*open.moved.get_or_insert(now)) < LINGER {
            return Ok(None);
        }
        let rest = std::mem::take(&mut open.half);
        (self.open, self.from) = (None, From::Beginning);
        Ok(Some(rest.into()))
    }
}

impl Open {
    fn split(&mut self, chunk: Vec<u8>) -> Vec<Bytes> {
        let before = std::mem::take(&mut self.half);
        let whole = if before.is_empty() { chunk } else { [before, chunk].concat() };
        let end = match whole.iter().rposition(|b| *b == b'\n') {
            Some(last) => last + 1,
            None if whole.len() >= LINE_BYTES_MAX => whole.len(),
            None => {
                self.half = whole;
                return Vec::new();
            }
        };
        self.half = whole[end..].to_vec();
        self.place.offset += end as u64;
        let whole = Bytes::from(whole);
        let mut lines = Vec::new();
        let mut from = 0;
        for at in whole[..end].iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at).chain([end]) {
            if at > from {
                lines.push(whole.slice(from..at));
            }
            from = at + 1;
        }
        lines
    }
}

fn there(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file of this number, under its name or another in the same folder.
fn find(path: &Path, place: Place) -> io::Result<Option<File>> {
    if let Some(file) = there(path)?
        && place.is_of(&file.metadata()?)
    {
        return Ok(Some(file));
    }
    let Some(folder) = path.parent() else { return Ok(None) };
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(None) };
    for entry in entries.flatten().take(BESIDE_MAX) {
        if entry.metadata().is_ok_and(|meta| meta.is_file() && place.is_of(&meta)) {
            return there(&entry.path());
        }
    }
    Ok(None)
}

/// Where the last whole line ends.
fn whole_lines(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut chunk = vec![0; 64 << 10];
    while end > 0 {
        let from = end.saturating_sub(chunk.len() as u64);
        let part = &mut chunk[..(end - from) as usize];
        file.read_exact_at(part, from)?;
        if let Some(last) = part.iter().rposition(|b| *b == b'\n') {
            return Ok(from + last as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

#[async_trait]
impl Feed for Tail {
    async fn next(&mut self) -> Result<Taken, String> {
        loop {
            if self.open.is_none() && !self.try_open().map_err(|error| self.said(&error))? {
                return Err(format!("{} is not there", self.path.display()));
            }
            let lines = match self.read().await.map_err(|error| self.said(&error))? {
                Some(lines) => lines,
                None => match self.turn().map_err(|error| self.said(&error))? {
                    Some(rest) if rest.is_empty() => continue,
                    Some(rest) => vec![rest],
                    None => {
                        self.clock.sleep(LOOK).await;
                        continue;
                    }
                },
            };
            if !lines.is_empty() {
                self.ticket += 1;
                return Ok(Taken { came: Came::Lines(lines), ticket: self.ticket, at_us: self.clock.now().0 * 1_000 });
            }
        }
    }

    fn settle(&mut self, _: u64) {}

    fn is_settled(&self) -> bool {
        false
    }

    fn position(&self) -> Option<Vec<u8>> {
        let place = match (&self.open, &self.from) {
            (Some(open), _) => Some(open.place),
            (None, From::Place(place)) => Some(*place),
            (None, _) => None,
        };
        postcard::to_stdvec(&place).ok()
    }
}

#[cfg(test)]
mod tests;
