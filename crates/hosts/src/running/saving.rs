//! What a part remembers: written down beside the work, counted as written only once everything that was said up to it is durable,
//! and read again, the newest that reads well.

use std::time::Duration;

use bytes::Bytes;
use mutirao_core::Mono;
use mutirao_core::blobs::BlobError;
use mutirao_streams::wire::{SNAPSHOT_BYTES_MAX, Snapshot, snapshot_key};
use tokio::sync::oneshot;

use super::outputs::{Mark, Outputs};
use super::{Job, Means};

const CHUNK_BYTES: usize = 1 << 20;
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// When the next snapshot is due. A rule without I/O.
#[derive(Debug)]
pub struct Due {
    period: Duration,
    /// Of what is read since the last: past it one is taken before its time, since writers wait for it.
    bytes_max: u64,
    last: Mono,
    bytes: u64,
}

impl Due {
    pub fn every(period: Duration, bytes_max: u64, now: Mono) -> Self {
        Self { period, bytes_max, last: now, bytes: 0 }
    }

    pub fn read(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub fn is_due(&self, now: Mono) -> bool {
        now.since(self.last) >= self.period || self.bytes >= self.bytes_max
    }

    pub fn begun(&mut self, now: Mono) {
        (self.last, self.bytes) = (now, 0);
    }
}

/// At most one is on its way.
#[derive(Default)]
pub struct Saving {
    waiting: Option<(Mark, u64, Bytes)>,
    uploading: Option<oneshot::Receiver<Option<Snapshot>>>,
    /// Of the one that is there.
    pub offset: Option<u64>,
}

impl Saving {
    /// With one that is there already, at this offset.
    pub fn of(offset: Option<u64>) -> Self {
        Self { offset, ..Self::default() }
    }

    pub fn is_free(&self) -> bool {
        self.waiting.is_none() && self.uploading.is_none()
    }

    /// What was remembered at this offset, to be kept once everything up to the mark is durable.
    pub fn offer(&mut self, offset: u64, bytes: Vec<u8>, mark: Mark) {
        self.waiting = Some((mark, offset, bytes.into()));
    }

    /// Goes on with it; whether a new one is there.
    pub fn go_on(&mut self, outputs: Option<&Outputs>, job: &Job) -> bool {
        if let Some((mark, ..)) = &self.waiting
            && outputs.is_none_or(|outputs| outputs.is_durable(mark))
            && let Some((_, offset, bytes)) = self.waiting.take()
        {
            self.uploading = Some(upload(offset, bytes, job));
        }
        let Some(uploading) = &mut self.uploading else { return false };
        let uploaded = match uploading.try_recv() {
            Ok(uploaded) => uploaded,
            Err(oneshot::error::TryRecvError::Empty) => return false,
            Err(oneshot::error::TryRecvError::Closed) => None,
        };
        self.uploading = None;
        let Some(snapshot) = uploaded else { return false };
        self.offset = Some(snapshot.offset);
        job.status.snapshot_is(snapshot);
        true
    }

    /// Waits until what is on its way is there, or cannot be.
    pub async fn finish(&mut self, outputs: Option<&Outputs>, job: &Job) {
        if let (Some((mark, ..)), Some(outputs)) = (&self.waiting, outputs) {
            outputs.durable(mark).await;
        }
        self.go_on(outputs, job);
        if let Some(uploading) = &mut self.uploading
            && let Ok(Some(snapshot)) = uploading.await
        {
            self.offset = Some(snapshot.offset);
            job.status.snapshot_is(snapshot);
        }
        self.uploading = None;
    }
}

fn upload(offset: u64, bytes: Bytes, job: &Job) -> oneshot::Receiver<Option<Snapshot>> {
    let (done, told) = oneshot::channel();
    let means = job.means.clone();
    let key = snapshot_key(&job.part, job.order.borrow().epoch, offset, means.boot);
    let meter = job.status.meter.clone();
    let size = bytes.len() as u64;
    tokio::spawn(async move {
        let taken_at = means.clock.now();
        let kept = match size <= SNAPSHOT_BYTES_MAX {
            true => keep(&means, &key, &bytes).await,
            false => Err(BlobError::Refused(format!("it has {size} bytes, the most is {SNAPSHOT_BYTES_MAX}"))),
        };
        if let Err(error) = &kept {
            tracing::warn!(key, "a snapshot of a stream was not kept: {error}");
        }
        meter.network(size);
        let _ = done.send(kept.ok().map(|()| Snapshot { offset, key, bytes: size, taken_at }));
    });
    told
}

async fn keep(means: &Means, key: &str, bytes: &Bytes) -> Result<(), BlobError> {
    let mut at = 0;
    let mut tries = 0;
    while at < bytes.len() {
        let chunk = bytes.slice(at..bytes.len().min(at + CHUNK_BYTES));
        let end = at + chunk.len();
        match means.blobs.append(key, at as u64, chunk).await {
            Ok(_) => (at, tries) = (end, 0),
            Err(BlobError::Unreachable(_)) if tries < TRIES => {
                tries += 1;
                means.clock.sleep(means.dice.jitter(PAUSE * tries)).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The newest of these from which something can be made, and it.
pub async fn restore<T>(
    job: &Job,
    snapshots: &[Snapshot],
    make: impl Fn(&[u8]) -> Result<T, String>,
) -> Option<(T, Snapshot)> {
    for snapshot in snapshots {
        match read(job, snapshot).await.and_then(|bytes| make(&bytes)) {
            Ok(made) => return Some((made, snapshot.clone())),
            Err(why) => {
                tracing::warn!(
                    key = snapshot.key,
                    "a snapshot of a stream is of no use: {why}; an older one is looked for"
                );
            }
        }
    }
    None
}

async fn read(job: &Job, snapshot: &Snapshot) -> Result<Vec<u8>, String> {
    if snapshot.bytes > SNAPSHOT_BYTES_MAX {
        return Err("it is too long".into());
    }
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < snapshot.bytes {
        let limit = CHUNK_BYTES.min((snapshot.bytes - bytes.len() as u64) as usize);
        match job.means.blobs.read(&snapshot.key, bytes.len() as u64, limit).await {
            Ok(chunk) if chunk.is_empty() => return Err(format!("it ends at {} of {}", bytes.len(), snapshot.bytes)),
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            // It may be quite well; another one would be older, and what is between perhaps gone.
            Err(BlobError::Unreachable(why)) => {
                job.status.trouble_is(Some(format!("its snapshot cannot be read now: {why}")));
                job.means.clock.sleep(job.means.dice.jitter(PAUSE)).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    job.status.trouble_is(None);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_due_in_its_time_or_when_much_was_read() {
        let at = |s| Mono(Duration::from_secs(s));
        let mut due = Due::every(Duration::from_secs(30), 1_000, at(0));
        due.read(999);
        assert!(!due.is_due(at(29)) && due.is_due(at(30)));
        due.read(1);
        assert!(due.is_due(at(1)));
        due.begun(at(1));
        assert!(!due.is_due(at(30)) && due.is_due(at(31)));
    }
}
