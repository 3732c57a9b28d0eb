//! One log: who waits to append, what is written together, which segments there are.
//!
//! Concurrent appends share one fsync: while one group is being written the next one gathers. A record is visible to
//! readers once it is durable, never before.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mutirao_core::limits::MESSAGE_BYTES_MAX;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::segment::{self, Segment};
use super::tail::Tail;
use super::{Shared, format, log_error, off_thread};
use crate::memory::{Limits, check_size};
use crate::{BrokerError, Record};

/// KiB of records that may wait to be written; appenders past it wait.
const UNWRITTEN_KIB_MAX: usize = 64 << 10;
/// Bytes of records written under one fsync, unless one batch alone is larger.
const GROUP_BYTES_MAX: usize = 16 << 20;
/// Bytes a read gathers before it stops short of its limit.
const READ_BYTES_MAX: usize = 1 << 20;

/// Bytes of a segment whatever the limits say: positions in it are kept in 32 bits.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// A log that is trimmed close behind its end begins a new segment this often, so that the old ones can go.
const TRIMMED_SEGMENT_BYTES: u64 = 4 << 20;

pub(super) struct Log {
    name: String,
    folder: PathBuf,
    limits: Limits,
    /// Oldest first; none before the first append. Only the last is written to, and only by whoever holds `intake.writing`.
    segments: Mutex<VecDeque<Arc<Segment>>>,
    intake: Mutex<Intake>,
    /// Rung when nobody writes any more.
    rests: Condvar,
    room: Arc<Semaphore>,
    end: watch::Sender<End>,
    newest: Arc<Tail>,
    shared: Arc<Shared>,
    /// Nothing before it is needed.
    trimmed: Mutex<u64>,
}

#[derive(Clone, Copy)]
struct End {
    /// The offset after the last durable record.
    next: u64,
    /// It was removed, or has to be opened anew: there is another of its name now, or there can be.
    over: bool,
}

#[derive(Default)]
struct Intake {
    waiting: VecDeque<Append>,
    writing: bool,
    /// A sync failed, so what the file holds is unknown until it is opened again; or it was removed.
    broken: Option<String>,
}

struct Append {
    batch: Vec<Bytes>,
    reply: oneshot::Sender<Result<u64, BrokerError>>,
    _room: OwnedSemaphorePermit,
}

pub(super) enum ReadError {
    Failed(BrokerError),
    /// There is another of its name now, or there can be.
    Over,
}

impl From<BrokerError> for ReadError {
    fn from(error: BrokerError) -> Self {
        Self::Failed(error)
    }
}

impl Log {
    pub fn open(name: String, folder: &Path, limits: Limits, shared: &Arc<Shared>) -> Result<Arc<Self>, BrokerError> {
        let segments = segment::open_all(folder, &shared.files).map_err(|why| log_error(&name, why))?;
        let next = segments.back().map_or(0, |last| last.next());
        Ok(Arc::new(Self {
            name,
            folder: folder.to_owned(),
            limits,
            segments: Mutex::new(segments),
            intake: Mutex::default(),
            rests: Condvar::new(),
            room: Arc::new(Semaphore::new(UNWRITTEN_KIB_MAX)),
            end: watch::Sender::new(End { next, over: false }),
            newest: Arc::default(),
            shared: shared.clone(),
            trimmed: Mutex::new(0),
        }))
    }

    pub fn extent(&self) -> (u64, u64) {
        let segments = self.segments.lock();
        (segments.front().map_or(0, |first| first.base), self.end.borrow().next)
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
        let idle = {
            let mut intake = self.intake.lock();
            if let Some(why) = &intake.broken {
                return Err(log_error(&self.name, why.clone()));
            }
            intake.waiting.push_back(Append { batch, reply, _room: room });
            !std::mem::replace(&mut intake.writing, true)
        };
        if idle {
            let turn = Turn(Some(self.clone()));
            tokio::task::spawn_blocking(move || turn.take());
        }
        answer.await.unwrap_or(Err(BrokerError::Closed))
    }

    pub fn is_over(&self) -> bool {
        self.end.borrow().over
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
        if !intake.writing {
            if intake.broken.is_some() {
                self.end.send_modify(|end| end.over = true);
            }
            self.rests.notify_all();
        }
        intake.writing.then_some(group)
    }

    fn write(&self, group: &[Append]) -> Result<u64, String> {
        if let Some(why) = &self.intake.lock().broken {
            return Err(why.clone());
        }
        let first = self.end.borrow().next;
        let segment = self.segment_to_write(first)?;
        let written = segment.append(group.iter().flat_map(|append| &append.batch));
        match written {
            Ok(written) => {
                let next = first + written.bodies.len() as u64;
                self.shared.tails.push(&self.newest, written);
                self.end.send_modify(|end| end.next = next);
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
        let goes_on = |last: &Arc<Segment>| last.bytes() < self.segment_bytes(last) || last.is_empty();
        if let Some(last) = last.filter(goes_on) {
            return Ok(last);
        }
        let fresh = Arc::new(Segment::create(&self.folder, next, &self.shared.files)?);
        self.segments.lock().push_back(fresh.clone());
        Ok(fresh)
    }

    fn segment_bytes(&self, last: &Segment) -> u64 {
        let most = self.limits.segment_bytes.min(SEGMENT_BYTES_MAX);
        if *self.trimmed.lock() > last.base { most.min(TRIMMED_SEGMENT_BYTES) } else { most }
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
        gone.iter().for_each(|segment| segment.unlink());
    }

    /// Lets segments go of which nothing is needed. The last stays: it says where the log goes on.
    pub async fn trim(self: Arc<Self>, before: u64) -> Result<(), BrokerError> {
        {
            let mut trimmed = self.trimmed.lock();
            *trimmed = before.max(*trimmed);
        }
        let mut gone = Vec::new();
        {
            let mut segments = self.segments.lock();
            while segments.get(1).is_some_and(|second| second.base <= before) {
                gone.extend(segments.pop_front());
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        off_thread(move || {
            gone.iter().for_each(|segment| segment.unlink());
            Ok(())
        })
        .await
    }

    /// Nobody appends from now on, and whoever waits for a record hears of it. Blocks until what was being written is.
    pub fn remove(&self) {
        {
            let mut intake = self.intake.lock();
            intake.broken = Some("it was removed".into());
            while intake.writing {
                self.rests.wait(&mut intake);
            }
        }
        self.end.send_modify(|end| end.over = true);
        self.segments.lock().iter().for_each(|segment| segment.let_go());
    }

    pub async fn read(&self, offset: u64, limit: u32) -> Result<Vec<Record>, ReadError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut ends = self.end.subscribe();
        loop {
            if self.is_over() {
                return Err(ReadError::Over);
            }
            let (first, next) = self.extent();
            if offset < first || offset > next {
                return Err(BrokerError::NoSuchOffset { name: self.name.clone(), offset, first, next }.into());
            }
            if offset < next {
                let newest = self.newest.read(offset, limit as usize, READ_BYTES_MAX);
                if !newest.is_empty() {
                    return Ok(newest);
                }
                let found = {
                    let segments = self.segments.lock();
                    let after = segments.partition_point(|segment| segment.base <= offset);
                    after.checked_sub(1).and_then(|at| segments.get(at).cloned())
                };
                // Retention may have come between the two looks; the next round says so.
                let Some(segment) = found else { continue };
                let name = self.name.clone();
                let read =
                    move || segment.read(offset, limit as usize, READ_BYTES_MAX).map_err(|why| log_error(&name, why));
                match off_thread(read).await {
                    // It went while it was read: the next round says so.
                    Err(BrokerError::Log { .. }) if self.is_over() || offset < self.extent().0 => continue,
                    read => return Ok(read?),
                }
            }
            if ends.wait_for(|end| end.next > offset || end.over).await.is_err() {
                return Err(BrokerError::Closed.into());
            }
        }
    }
}

/// Whoever writes. A runtime that ends forgets what it has not begun: then others may write, and those who waited for this one
/// are told that it did not.
struct Turn(Option<Arc<Log>>);

impl Turn {
    fn take(mut self) {
        if let Some(log) = self.0.take() {
            log.write_until_idle();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(log) = self.0.take() else { return };
        let mut intake = log.intake.lock();
        intake.writing = false;
        let unwritten = std::mem::take(&mut intake.waiting);
        drop(intake);
        drop(unwritten);
    }
}

fn batch_bytes(batch: &[Bytes]) -> usize {
    batch.iter().map(|body| body.len() + format::HEAD_BYTES).sum()
}
