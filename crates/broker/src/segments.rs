//! Logs as files: durable, with offsets, kept to a bound of bytes. A log is a folder of segments; a segment is named by
//! the offset of its first record. A log that was never appended to has no folder.
//!
//! Not here: one log ([`log`]), the bytes of a record ([`format`]) and the handling of one file ([`segment`]).

mod files;
mod format;
mod log;
mod segment;
mod tail;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::memory::Limits;
use crate::{BrokerError, Name, Record};
use files::Files;
use log::{Log, ReadError};
use tail::Tails;

/// What a folder is called while it is removed. No log has this in its name.
const GOING: &str = "~";

/// Every log under one folder.
pub(crate) struct Logs {
    folder: PathBuf,
    limits: Limits,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    shared: Arc<Shared>,
}

/// What all logs have together.
#[derive(Default)]
struct Shared {
    files: Arc<Files>,
    tails: Tails,
}

/// A log's place, also while it is opened or removed.
#[derive(Default)]
struct Slot {
    log: Mutex<Option<Arc<Log>>>,
    /// Held by whoever opens or removes the files, to the end of it, also when nobody waits for that any more.
    changing: Arc<tokio::sync::Mutex<()>>,
}

impl Slot {
    fn log(&self) -> Option<Arc<Log>> {
        self.log.lock().clone().filter(|log| !log.is_over())
    }
}

impl Logs {
    pub fn new(folder: PathBuf, limits: Limits) -> Self {
        Self { folder, limits, slots: Mutex::default(), shared: Arc::default() }
    }

    fn slot(&self, name: &Name) -> Result<Arc<Slot>, BrokerError> {
        let mut slots = self.slots.lock();
        if slots.len() >= self.limits.names_max && !slots.contains_key(name) {
            // Whoever holds a second reference is about to use it.
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.log.lock().as_ref().is_some_and(is_in_use));
        }
        if slots.len() >= self.limits.names_max && !slots.contains_key(name) {
            return Err(log_error(name, format!("there are {} logs already", self.limits.names_max)));
        }
        Ok(slots.entry(name.into()).or_default().clone())
    }

    /// Opens a log. A failure is not remembered: mended files are found at the next try.
    async fn open(&self, name: &Name) -> Result<Arc<Log>, BrokerError> {
        let slot = self.slot(name)?;
        if let Some(log) = slot.log() {
            return Ok(log);
        }
        let changing = slot.changing.clone().lock_owned().await;
        if let Some(log) = slot.log() {
            return Ok(log);
        }
        let (name, folder, limits) = (name.to_owned(), self.folder.join(name), self.limits);
        let shared = self.shared.clone();
        off_thread(move || {
            let _changing: OwnedMutexGuard<()> = changing;
            let log = Log::open(name, &folder, limits, &shared)?;
            *slot.log.lock() = Some(log.clone());
            Ok(log)
        })
        .await
    }

    pub async fn append(&self, name: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        self.open(name).await?.append(batch).await
    }

    pub async fn read(&self, name: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        loop {
            match self.open(name).await?.read(offset, limit).await {
                Ok(records) => return Ok(records),
                // What is of that name now has it, or has not.
                Err(ReadError::Over) => {}
                Err(ReadError::Failed(error)) => return Err(error),
            }
        }
    }

    pub async fn extent(&self, name: &Name) -> Result<(u64, u64), BrokerError> {
        Ok(self.open(name).await?.extent())
    }

    pub async fn trim(&self, name: &Name, before: u64) -> Result<(), BrokerError> {
        self.open(name).await?.trim(before).await
    }

    /// Whatever is under way on it ends with an error, or begins anew.
    pub async fn forget(&self, name: &Name) -> Result<(), BrokerError> {
        let slot = self.slot(name)?;
        let changing = slot.changing.clone().lock_owned().await;
        let (name, folder) = (name.to_owned(), self.folder.clone());
        let removed = off_thread(move || {
            let _changing: OwnedMutexGuard<()> = changing;
            let log = slot.log.lock().take();
            if let Some(log) = log {
                log.remove();
            }
            remove(&folder, &name).map_err(|error| log_error(&name, format!("it cannot be removed: {error}")))
        });
        removed.await
    }
}

fn is_in_use(log: &Arc<Log>) -> bool {
    Arc::strong_count(log) > 1
}

/// First it is no log any more, all at once; then the files go. What a crash leaves of it goes with the next one.
fn remove(folder: &Path, name: &str) -> io::Result<()> {
    let (log, going) = (folder.join(name), folder.join(format!("{name}{GOING}")));
    gone(fs::remove_dir_all(&going))?;
    gone(fs::rename(&log, &going))?;
    match fs::File::open(folder) {
        Ok(folder) => folder.sync_all()?,
        Err(error) => return gone(Err(error)),
    }
    gone(fs::remove_dir_all(&going))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
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
