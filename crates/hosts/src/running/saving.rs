//! What a part remembers: written down beside the work, counted as written only once everything that was said up to it is durable,
//! and read again, the newest that reads well.

use std::time::Duration;

use bytes::Bytes;
use mutirao_core::Mono;
use mutirao_core::blobs::BlobError;
use mutirao_core::clock::ClockExt;
use mutirao_streams::wire::{SNAPSHOT_BYTES_MAX, Snapshot, snapshot_key};
use tokio::sync::oneshot;

use super::outputs::{Mark, Outputs};
use super::{Job, Means};

const CHUNK_BYTES: usize = 1 << 20;
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// Snapshots that could not be read are tried once more.
const AGAIN: Duration = Duration::from_secs(30);

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

/// Of what begins now, and must not begin again later: nothing may come of it before the manager knows how it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    Known,
    /// It was not kept, and is to be offered once more.
    Again,
    Stopped,
}

/// What became of the first snapshot, which was offered.
pub async fn first(job: &Job) -> First {
    if job.status.snapshot().is_none() {
        return tokio::select! {
            () = job.means.clock.sleep(PAUSE * 2) => First::Again,
            _ = job.stopped() => First::Stopped,
        };
    }
    let mut order = job.order.clone();
    let known = order.wait_for(|order| {
        let own = job.status.snapshot();
        order.snapshots.iter().any(|known| own.as_ref().is_some_and(|own| own.key == known.key))
    });
    tokio::select! {
        known = known => if known.is_ok() { First::Known } else { First::Stopped },
        _ = job.stopped() => First::Stopped,
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

/// What there is to begin from.
pub enum Found<T> {
    /// It never remembered anything.
    Nothing,
    One(T, Snapshot),
    /// It did, and nothing of that is of use any more: why.
    Unreadable(String),
}

/// The newest snapshot from which something can be made, and it.
pub async fn restore<T>(job: &Job, make: impl Fn(&[u8]) -> Result<T, String>) -> Found<T> {
    let mut found = Found::Nothing;
    for snapshot in job.order().snapshots {
        match read(job, &snapshot).await.and_then(|bytes| make(&bytes)) {
            Ok(made) => return Found::One(made, snapshot),
            Err(why) => {
                let key = &snapshot.key;
                tracing::warn!(key, "a snapshot of a stream is of no use: {why}; an older one is looked for");
                found = Found::Unreadable(why);
            }
        }
    }
    found
}

/// Says that none can be read, and waits until others are there to be tried, or one may read better.
pub async fn unreadable(job: &Job, why: &str) {
    job.status.trouble_is(Some(format!(
        "none of its snapshots can be read ({why}), and it does not begin anew by itself, since what it says then would be taken \
         for what it said before: put them back from a copy, or deploy the stream again with --replace"
    )));
    let tried = job.order().snapshots;
    let mut order = job.order.clone();
    let clock = &*job.means.clock;
    let others = async { order.wait_for(|order| order.snapshots != tried).await.map(drop) };
    let _ = clock.timeout(AGAIN, others).await;
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
            Err(error @ BlobError::BadKey { .. }) => return Err(error.to_string()),
            // Whatever the blobs answer, it may be quite well; another one would be older, and what is between perhaps gone.
            Err(error) => {
                job.status.trouble_is(Some(format!("its snapshot cannot be read now: {error}")));
                job.means.clock.sleep(job.means.dice.jitter(PAUSE)).await;
                if !job.order().snapshots.iter().any(|known| known.key == snapshot.key) {
                    return Err("it is not kept any more".into());
                }
            }
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
