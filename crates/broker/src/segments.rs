//! Logs as files: durable, with offsets, kept to a bound of bytes. A log is a folder of segments; a segment is named by
//! the offset of its first record.
//!
//! Concurrent appends share one fsync: while one group is being written the next one gathers. A record is visible to
//! readers once it is durable, never before.
//!
//! Not here: the bytes of a record ([`format`]) and the handling of one file ([`segment`]).

mod format;
mod segment;

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mutirao_core::limits::MESSAGE_BYTES_MAX;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::memory::{Limits, check_size};
use crate::{BrokerError, Name, Record};
use segment::Segment;

/// KiB of records that may wait to be written; appenders past it wait.
const UNWRITTEN_KIB_MAX: usize = 64 << 10;
/// Bytes of records written under one fsync, unless one batch alone is larger.
const GROUP_BYTES_MAX: usize = 16 << 20;
/// Bytes a read gathers before it stops short of its limit.
const READ_BYTES_MAX: usize = 4 << 20;

/// Bytes of a segment whatever the limits say: positions in it are kept in 32 bits.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Every log under one folder.
pub(crate) struct Logs {
    folder: PathBuf,
    limits: Limits,
    open: Mutex<HashMap<String, Arc<OnceCell<Arc<Log>>>>>,
}

impl Logs {
    pub fn new(folder: PathBuf, limits: Limits) -> Self {
        Self { folder, limits, open: Mutex::default() }
    }

    /// Opens or makes a log. A failure is not remembered: mended files are found at the next try.
    pub async fn open(&self, name: &Name) -> Result<Arc<Log>, BrokerError> {
        let cell = {
            let mut open = self.open.lock();
            if open.len() >= self.limits.names_max && !open.contains_key(name) {
                return Err(log_error(name, format!("there are {} logs open already", self.limits.names_max)));
            }
            open.entry(name.into()).or_default().clone()
        };
        let opened = cell.get_or_try_init(|| async {
            let (name, folder, limits) = (name.to_owned(), self.folder.join(name), self.limits);
            off_thread(move || Log::open(name, &folder, limits)).await
        });
        opened.await.cloned()
    }
}

pub(crate) struct Log {
    name: String,
    folder: PathBuf,
    limits: Limits,
    /// Oldest first, never empty. Only the last is written to, and only by whoever holds `intake.writing`.
    segments: Mutex<VecDeque<Arc<Segment>>>,
    intake: Mutex<Intake>,
    room: Arc<Semaphore>,
    /// The offset after the last durable record.
    next: watch::Sender<u64>,
}

#[derive(Default)]
struct Intake {
    waiting: VecDeque<Append>,
    writing: bool,
    /// A sync failed, so what the file holds is unknown until it is opened again.
    broken: Option<String>,
}

struct Append {
    batch: Vec<Bytes>,
    reply: oneshot::Sender<Result<u64, BrokerError>>,
    _room: OwnedSemaphorePermit,
}

impl Log {
    fn open(name: String, folder: &Path, limits: Limits) -> Result<Arc<Self>, BrokerError> {
        let segments = segment::open_all(folder).map_err(|why| log_error(&name, why))?;
        let next = segments.back().map_or(0, |last| last.next());
        Ok(Arc::new(Self {
            name,
            folder: folder.to_owned(),
            limits,
            segments: Mutex::new(segments),
            intake: Mutex::default(),
            room: Arc::new(Semaphore::new(UNWRITTEN_KIB_MAX)),
            next: watch::Sender::new(next),
        }))
    }

    pub fn extent(&self) -> (u64, u64) {
        let segments = self.segments.lock();
        (segments.front().map_or(0, |first| first.base), *self.next.borrow())
    }

    pub async fn append(self: Arc<Self>, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        batch.iter().try_for_each(check_size)?;
        let bytes = batch_bytes(&batch);
        let bound = MESSAGE_BYTES_MAX + format::HEAD_BYTES;
        if bytes > bound {
            return Err(BrokerError::TooLarge { bytes, bound });
        }
        let kib = bytes / 1024 + 1;
        let Ok(room) = self.room.clone().acquire_many_owned(kib as u32).await else { return Err(BrokerError::Closed) };
        let (reply, answer) = oneshot::channel();
        {
            let mut intake = self.intake.lock();
            if let Some(why) = &intake.broken {
                return Err(log_error(&self.name, why.clone()));
            }
            intake.waiting.push_back(Append { batch, reply, _room: room });
            if !std::mem::replace(&mut intake.writing, true) {
                let log = self.clone();
                tokio::task::spawn_blocking(move || log.write_until_idle());
            }
        }
        answer.await.unwrap_or(Err(BrokerError::Closed))
    }

    fn write_until_idle(&self) {
        while let Some(group) = self.next_group() {
            match self.write(&group) {
                Ok(first) => {
                    let mut offset = first;
                    for append in group {
                        let count = append.batch.len() as u64;
                        let _ = append.reply.send(Ok(offset));
                        offset += count;
                    }
                }
                Err(why) => {
                    let error = log_error(&self.name, why);
                    for append in group {
                        let _ = append.reply.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// What is written together; `None` when nothing waits, and then this writer is done.
    fn next_group(&self) -> Option<Vec<Append>> {
        let mut intake = self.intake.lock();
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(append) = intake.waiting.front() {
            bytes += batch_bytes(&append.batch);
            if bytes > GROUP_BYTES_MAX && !group.is_empty() {
                break;
            }
            group.extend(intake.waiting.pop_front());
        }
        intake.writing = !group.is_empty();
        intake.writing.then_some(group)
    }

    fn write(&self, group: &[Append]) -> Result<u64, String> {
        if let Some(why) = &self.intake.lock().broken {
            return Err(why.clone());
        }
        let first = *self.next.borrow();
        let segment = self.segment_to_write(first)?;
        let written = segment.append(group.iter().flat_map(|append| &append.batch));
        match written {
            Ok(next) => {
                self.next.send_replace(next);
                self.retain();
                Ok(first)
            }
            Err(failure) => {
                if let segment::AppendError::Unknown(why) = &failure {
                    self.intake.lock().broken = Some(why.clone());
                }
                Err(failure.to_string())
            }
        }
    }

    fn segment_to_write(&self, next: u64) -> Result<Arc<Segment>, String> {
        let last = self.segments.lock().back().cloned();
        match last {
            Some(last) if last.bytes() < self.limits.segment_bytes.min(SEGMENT_BYTES_MAX) || last.is_empty() => {
                Ok(last)
            }
            _ => {
                let fresh = Arc::new(Segment::create(&self.folder, next)?);
                self.segments.lock().push_back(fresh.clone());
                Ok(fresh)
            }
        }
    }

    /// Lets whole segments go, oldest first, while the rest alone fills the bound.
    fn retain(&self) {
        let mut gone = Vec::new();
        {
            let mut segments = self.segments.lock();
            let mut total: u64 = segments.iter().map(|segment| segment.bytes()).sum();
            while segments.len() > 1 && total > self.limits.log_bytes_max {
                let Some(oldest) = segments.pop_front() else { break };
                total -= oldest.bytes();
                gone.push(oldest);
            }
        }
        for segment in gone {
            // A file that cannot be removed now is still there at the next open, and counted again.
            if let Err(error) = std::fs::remove_file(&segment.path) {
                tracing::warn!(file = %segment.path.display(), %error, "an old log segment cannot be removed");
            }
        }
    }

    pub async fn read(&self, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut ends = self.next.subscribe();
        loop {
            let (first, next) = self.extent();
            if offset < first || offset > next {
                return Err(BrokerError::NoSuchOffset { name: self.name.clone(), offset, first, next });
            }
            if offset < next {
                let found = {
                    let segments = self.segments.lock();
                    let after = segments.partition_point(|segment| segment.base <= offset);
                    after.checked_sub(1).and_then(|at| segments.get(at).cloned())
                };
                // Retention may have come between the two looks; the next round says so.
                let Some(segment) = found else { continue };
                let name = self.name.clone();
                return off_thread(move || {
                    segment.read(offset, limit as usize, READ_BYTES_MAX).map_err(|why| log_error(&name, why))
                })
                .await;
            }
            if ends.wait_for(|end| *end > offset).await.is_err() {
                return Err(BrokerError::Closed);
            }
        }
    }
}

fn batch_bytes(batch: &[Bytes]) -> usize {
    batch.iter().map(|body| body.len() + format::HEAD_BYTES).sum()
}

fn log_error(name: &Name, why: impl Into<String>) -> BrokerError {
    BrokerError::Log { name: name.into(), why: why.into() }
}

/// Files block; the runtime's threads must not.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BrokerError> + Send + 'static,
) -> Result<T, BrokerError> {
    // The only other ending is that the runtime is shutting down, or a panic, which is already in the log.
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(BrokerError::Closed))
}
