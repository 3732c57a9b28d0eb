//! Events as lines of a file, each exactly once: a snapshot says how long the file was, and what stands behind that is cut off
//! before it goes on from there. A file has one writer: of two, each would write over what the other wrote.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_streams::part::SinkRow;
use parking_lot::Mutex;

use super::{Away, Given, Outlet};

pub struct Lines {
    path: PathBuf,
    open: Option<Arc<Mutex<Open>>>,
    length: Option<u64>,
}

struct Open {
    file: File,
    length: u64,
    /// Something is to be made durable.
    written: bool,
}

impl Lines {
    /// `memory`: how long it is to be.
    pub fn open(path: PathBuf, memory: Option<&[u8]>) -> Result<Self, String> {
        let length = match memory {
            None => None,
            Some(memory) => Some(postcard::from_bytes(memory).map_err(|error| format!("the file's length: {error}"))?),
        };
        Ok(Self { path, open: None, length })
    }

    async fn file(&mut self) -> Result<Arc<Mutex<Open>>, String> {
        if let Some(open) = &self.open {
            return Ok(open.clone());
        }
        let (path, length) = (self.path.clone(), self.length);
        let opened =
            tokio::task::spawn_blocking(move || Open::at(&path, length)).await.map_err(|error| error.to_string())?;
        let open = Arc::new(Mutex::new(opened.map_err(|error| self.said(&error))?));
        self.length = Some(open.lock().length);
        self.open = Some(open.clone());
        Ok(open)
    }

    fn said(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }
}

impl Open {
    fn at(path: &std::path::Path, length: Option<u64>) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        // Where a file system knows no locks, it goes without.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(io::Error::other("another sink writes to it; give each a file of its own"));
        }
        let there = file.metadata()?.len();
        let length = length.unwrap_or(there);
        if there < length {
            let path = path.display();
            tracing::warn!(%path, there, length, "the file is shorter than what was written to it: somebody cut it, or it was on another host; going on at its end");
        } else if there > length {
            file.set_len(length)?;
        }
        let length = length.min(there);
        file.seek(SeekFrom::Start(length))?;
        file.sync_all()?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { file, length, written: false })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.written = true;
        match self.file.write_all(lines) {
            Ok(()) => {
                self.length += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A full disk: half a line is taken back.
                self.file.set_len(self.length)?;
                self.file.seek(SeekFrom::Start(self.length))?;
                Err(error)
            }
        }
    }

    fn settle(&mut self) -> io::Result<u64> {
        if self.written {
            self.file.sync_data()?;
            self.written = false;
        }
        Ok(self.length)
    }
}

#[async_trait]
impl Outlet for Lines {
    async fn give(&mut self, rows: &[SinkRow]) -> Result<Given, Away> {
        let open = self.file().await.map_err(Away::before)?;
        let lines = super::lines(rows);
        let written = tokio::task::spawn_blocking(move || open.lock().write(&lines)).await;
        match written {
            Ok(Ok(())) => Ok(Given::default()),
            Ok(Err(error)) => Err(Away::before(self.said(&error))),
            Err(error) => Err(Away::before(error.to_string())),
        }
    }

    async fn settle(&mut self) -> Result<Vec<u8>, String> {
        let open = self.file().await?;
        let settled = tokio::task::spawn_blocking(move || open.lock().settle()).await;
        let length = settled.map_err(|error| error.to_string())?.map_err(|error| self.said(&error))?;
        postcard::to_stdvec(&length).map_err(|error| error.to_string())
    }

    fn begins_with_a_mark(&self) -> bool {
        self.length.is_none()
    }
}

#[cfg(test)]
mod tests {
    use mutirao_streams::mark::Place;

    use super::*;

    fn rows(numbers: &[i64]) -> Vec<SinkRow> {
        let row = |n: &i64| SinkRow {
            place: Place { offset: 0, row: 0 },
            name: None,
            value: n.to_string().into_bytes(),
            arrived_us: 0,
        };
        numbers.iter().map(row).collect()
    }

    #[tokio::test]
    async fn what_was_written_after_a_snapshot_is_cut_off_and_said_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/out.jsonl");
        std::fs::create_dir(dir.path().join("deep")).unwrap();
        std::fs::write(&path, "before\n").unwrap();
        let mut lines = Lines::open(path.clone(), None).unwrap();
        assert!(lines.begins_with_a_mark());
        let begin = lines.settle().await.unwrap();
        lines.give(&rows(&[1, 2])).await.unwrap();
        let memory = lines.settle().await.unwrap();
        lines.give(&rows(&[4])).await.unwrap();
        drop(lines);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\n1\n2\n4\n");
        let mut again = Lines::open(path.clone(), Some(&memory)).unwrap();
        again.give(&rows(&[3])).await.unwrap();
        drop(again);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\n1\n2\n3\n");
        let mut first = Lines::open(path.clone(), Some(&begin)).unwrap();
        first.settle().await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\n");
    }
    #[tokio::test]
    async fn a_second_writer_of_a_file_waits_until_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.jsonl");
        let mut first = Lines::open(path.clone(), None).unwrap();
        first.settle().await.unwrap();
        let mut second = Lines::open(path.clone(), None).unwrap();
        let refused = second.settle().await.unwrap_err();
        assert!(refused.contains("out.jsonl: another sink writes to it"), "{refused}");
        assert!(second.give(&rows(&[2])).await.unwrap_err().why.contains("another sink"));
        first.give(&rows(&[1])).await.unwrap();
        drop(first);
        second.give(&rows(&[2])).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n");
    }
}
