//! Carrying spooled output to the blobs in the background, while the task runs. A failure is tried again with growing
//! waits and never stops the task; when the task has ended the rest is waited for, within bounds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::blobs::{BlobError, Blobs};
use mutirao_core::clock::ClockExt;
use mutirao_core::outcome::Output;
use mutirao_core::{Clock, Dice, Outcome};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::patience::Patience;

/// Refusals in a row after which an upload is given up.
const REFUSALS_MAX: u32 = 5;
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks in memory at once, over all tasks.
const CHUNKS_MAX: usize = 8;
/// While a task writes, its output is sent this often.
const LIVE_EVERY: Duration = Duration::from_millis(100);

/// A stream's bytes on their way: written by the thread that attends the process, read by the upload.
pub(crate) struct Spool {
    pub(super) file: File,
    written: AtomicU64,
    /// Set when the stream has ended: what follows the file's content.
    end: OnceLock<String>,
    changed: Notify,
}

impl Spool {
    pub fn new(file: File) -> Self {
        Self { file, written: AtomicU64::new(0), end: OnceLock::new(), changed: Notify::new() }
    }

    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub fn grew(&self, by: usize) {
        self.written.fetch_add(by as u64, Ordering::AcqRel);
        self.changed.notify_one();
    }

    pub fn end(&self, marker: String) {
        let _ = self.end.set(marker);
        self.changed.notify_one();
    }

    /// The bytes from `offset` on, the marker after the file's content; at most a chunk.
    fn chunk(&self, offset: u64, written: u64) -> std::io::Result<Bytes> {
        if offset >= written {
            let marker = self.end.get().map_or("", String::as_str).as_bytes();
            let sent = usize::try_from(offset - written).unwrap_or(usize::MAX).min(marker.len());
            return Ok(Bytes::copy_from_slice(&marker[sent..]));
        }
        let mut chunk = vec![0; CHUNK_BYTES.min((written - offset) as usize)];
        self.file.read_exact_at(&mut chunk, offset)?;
        Ok(chunk.into())
    }

    /// How long the blob must become, once that is known.
    fn len(&self) -> Option<u64> {
        self.end.get().map(|marker| self.written() + marker.len() as u64)
    }
}

/// Starts uploads, and bounds what they hold together.
pub(crate) struct Uploads {
    blobs: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    runtime: tokio::runtime::Handle,
    permits: Semaphore,
}

/// One under way.
pub(crate) struct Upload {
    handle: JoinHandle<()>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    sent_any: AtomicBool,
    complete: AtomicBool,
}

impl Uploads {
    /// To be called within the runtime that uploads shall run on.
    pub fn new(blobs: Arc<dyn Blobs>, clock: Arc<dyn Clock>, dice: Arc<Dice>) -> Arc<Self> {
        let runtime = tokio::runtime::Handle::current();
        Arc::new(Self { blobs, clock, dice, runtime, permits: Semaphore::new(CHUNKS_MAX) })
    }

    pub fn begin(self: &Arc<Self>, key: String, spool: Arc<Spool>) -> Upload {
        let progress = Arc::new(Progress::default());
        let handle = self.runtime.spawn(self.clone().carry(key, spool, progress.clone()));
        Upload { handle, progress }
    }

    async fn carry(self: Arc<Self>, key: String, spool: Arc<Spool>, progress: Arc<Progress>) {
        let mut patience = Patience::new();
        let mut sent = 0;
        let mut refusals = 0;
        loop {
            let len = spool.len();
            if len.is_some_and(|len| sent >= len) {
                progress.complete.store(true, Ordering::Release);
                return;
            }
            let written = spool.written();
            if len.is_none() && sent >= written {
                spool.changed.notified().await;
                continue;
            }
            match self.send(&key, &spool, sent, written).await {
                Ok(now) => {
                    patience.reset();
                    refusals = 0;
                    progress.sent_any.store(true, Ordering::Release);
                    sent = now;
                }
                Err(BlobError::Gap { len, .. }) if len < sent => sent = len,
                // The task is no longer ours: it was cancelled, or handed to another. A manager that has just come back
                // may say so too, until it has heard from us.
                Err(BlobError::Refused(_)) if refusals >= REFUSALS_MAX => return,
                Err(error) => {
                    refusals += u32::from(matches!(error, BlobError::Refused(_)));
                    tracing::debug!(%key, %error, "output not uploaded, trying again");
                    patience.wait(&*self.clock, &self.dice).await;
                }
            }
            if spool.len().is_none() && spool.written() - sent.min(spool.written()) < CHUNK_BYTES as u64 {
                self.pause(&spool).await;
            }
        }
    }

    /// Lets some output gather, unless the task ends meanwhile.
    async fn pause(&self, spool: &Spool) {
        let ended = async {
            while spool.end.get().is_none() {
                spool.changed.notified().await;
            }
        };
        let _ = self.clock.timeout(LIVE_EVERY, ended).await;
        // The bell may have been rung for what the loop has yet to look at.
        spool.changed.notify_one();
    }

    async fn send(&self, key: &str, spool: &Arc<Spool>, sent: u64, written: u64) -> Result<u64, BlobError> {
        let unreadable = |error: &dyn std::fmt::Display| BlobError::Unreachable(format!("the spool: {error}"));
        let _permit = self.permits.acquire().await.map_err(|error| unreadable(&error))?;
        let reading = spool.clone();
        let chunk = tokio::task::spawn_blocking(move || reading.chunk(sent, written)).await;
        let chunk = chunk.map_err(|error| unreadable(&error))?.map_err(|error| unreadable(&error))?;
        let end = sent + chunk.len() as u64;
        self.blobs.append(key, sent, chunk).await?;
        Ok(end)
    }
}

/// Output that an ended task's outcome waits for.
pub(crate) struct Pending {
    stdout: Option<Upload>,
    stderr: Option<Upload>,
}

impl Pending {
    pub fn of(stdout: Option<Upload>, stderr: Option<Upload>) -> Option<Self> {
        (stdout.is_some() || stderr.is_some()).then_some(Self { stdout, stderr })
    }

    /// Waits, for so long at most, and completes the outcome with what is there then.
    pub async fn settle(self, outcome: &mut Outcome, clock: &dyn Clock, wait_max: Duration) {
        let until = clock.monotonic().plus(wait_max);
        let mut all = true;
        for (upload, output) in [(self.stdout, &mut outcome.stdout), (self.stderr, &mut outcome.stderr)] {
            if let Some(upload) = upload {
                all &= upload.settle(output, clock, until.since(clock.monotonic())).await;
            }
        }
        if !all {
            let note = "its output is incomplete: the blobs could not be reached in time";
            outcome.reason = Some(outcome.reason.take().map_or(note.into(), |reason| format!("{reason}; {note}")));
        }
    }
}

impl Upload {
    async fn settle(mut self, output: &mut Output, clock: &dyn Clock, wait_max: Duration) -> bool {
        if clock.timeout(wait_max, &mut self.handle).await.is_err() {
            self.handle.abort();
        }
        let complete = self.progress.complete.load(Ordering::Acquire);
        output.in_blobs = self.progress.sent_any.load(Ordering::Acquire);
        // Where the tail is all there is, it may still be the whole.
        output.truncated |= !complete && output.bytes > output.tail.len() as u64;
        complete
    }
}
