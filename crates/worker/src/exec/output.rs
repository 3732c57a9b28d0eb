//! What a process writes, from the pipe on. A short output of a short task stays in memory and travels in the outcome.
//! Past that it goes to a spool file, from which [`super::upload`] carries it to the blobs, and only its end is kept in
//! memory. Past a bound it is cut, and read on only so that the process is not stopped by a full pipe.
//!
//! When a stream was cut, what is in the blobs is its beginning and a marker, while the outcome's tail is its true end:
//! that is where a failed command says why.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use mutirao_core::limits::TAIL_BYTES_MAX;
use mutirao_core::outcome::Output;
use mutirao_core::quantity::Bytes;

use super::upload::{Spool, Upload, Uploads};

/// Where a stream goes when it does not stay in memory.
pub(crate) struct Place {
    /// In the blobs.
    pub key: String,
    pub dir: PathBuf,
    pub uploads: Arc<Uploads>,
}

#[derive(Default)]
enum Whereabouts {
    /// All of it is in `kept`.
    #[default]
    Memory,
    Spooled {
        spool: Arc<Spool>,
        upload: Upload,
    },
    /// It could not be spooled: only its end is there.
    Nowhere,
}

/// One stream of one process.
#[derive(Default)]
pub(crate) struct Capture {
    place: Option<Place>,
    bytes_max: u64,
    /// All of it, or once it is elsewhere the last of it and possibly some more.
    kept: Vec<u8>,
    bytes: u64,
    whereabouts: Whereabouts,
    /// Written after what was spooled, when the stream was cut.
    marker: Option<String>,
    live: bool,
}

impl Capture {
    pub fn new(place: Place, bytes_max: u64) -> Self {
        Self { place: Some(place), bytes_max, ..Self::default() }
    }

    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let stays = matches!(self.whereabouts, Whereabouts::Memory)
            && !self.live
            && self.bytes <= self.bytes_max.min(TAIL_BYTES_MAX as u64);
        if stays {
            self.kept.extend_from_slice(bytes);
            return;
        }
        if matches!(self.whereabouts, Whereabouts::Memory) {
            self.leave_memory();
        }
        self.spool(bytes);
        self.keep_end(bytes);
    }

    /// From now on whatever is written is sent on at once.
    pub fn go_live(&mut self) {
        self.live = true;
        if !self.kept.is_empty() && matches!(self.whereabouts, Whereabouts::Memory) {
            self.leave_memory();
        }
    }

    /// What the outcome says of it, and what must arrive before it is said.
    pub fn finish(self) -> (Output, Option<Upload>) {
        let mut tail = self.kept;
        tail.drain(..tail.len().saturating_sub(TAIL_BYTES_MAX));
        let truncated = self.marker.is_some() || matches!(self.whereabouts, Whereabouts::Nowhere);
        let output = Output { tail, bytes: self.bytes, truncated, in_blobs: false };
        match self.whereabouts {
            Whereabouts::Spooled { spool, upload } => {
                spool.end(self.marker.unwrap_or_default());
                (output, Some(upload))
            }
            Whereabouts::Memory | Whereabouts::Nowhere => (output, None),
        }
    }

    fn leave_memory(&mut self) {
        let Some(place) = self.place.take() else { return };
        match open_unnamed(&place) {
            Ok(file) => {
                let spool = Arc::new(Spool::new(file));
                let upload = place.uploads.begin(place.key, spool.clone());
                self.whereabouts = Whereabouts::Spooled { spool, upload };
                let kept = std::mem::take(&mut self.kept);
                self.spool(&kept);
                self.kept = kept;
            }
            Err(error) => {
                tracing::warn!(dir = %place.dir.display(), %error, "cannot spool a task's output: only its end is kept");
                self.whereabouts = Whereabouts::Nowhere;
            }
        }
    }

    fn spool(&mut self, bytes: &[u8]) {
        let Whereabouts::Spooled { spool, .. } = &self.whereabouts else { return };
        if self.marker.is_some() {
            return;
        }
        let room = self.bytes_max.saturating_sub(spool.written());
        let fits = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if let Err(error) = spool.write(fits) {
            tracing::warn!(%error, "a task's output is cut: it cannot be spooled");
            self.marker = Some(format!("\n[mutirao: output cut after {}: {error}]\n", Bytes(spool.written())));
        } else if fits.len() < bytes.len() {
            self.marker = Some(format!("\n[mutirao: output cut after {}]\n", Bytes(self.bytes_max)));
        }
    }

    /// Keeps the last of the stream; lets twice as much gather before it moves any, so that each byte moves once.
    fn keep_end(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..]);
        if self.kept.len() > 2 * TAIL_BYTES_MAX {
            self.kept.drain(..self.kept.len() - TAIL_BYTES_MAX);
        }
    }
}

/// A file that has lost its name already, so that it goes when the worker does, however that goes.
fn open_unnamed(place: &Place) -> std::io::Result<File> {
    let path = place.dir.join(place.key.replace('/', "."));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

impl Spool {
    fn write(&self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            match (&self.file).write(bytes) {
                Ok(n) => {
                    self.grew(n);
                    bytes = &bytes[n..];
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutirao_core::blobs::{BlobError, Blobs};
    use mutirao_core::{Dice, Outcome, SystemClock, Timestamp, Verdict};
    use std::sync::Mutex;
    use std::time::Duration;

    #[derive(Default)]
    struct Shelf(Mutex<Vec<u8>>);

    #[async_trait::async_trait]
    impl Blobs for Shelf {
        async fn append(&self, _: &str, _: u64, bytes: bytes::Bytes) -> Result<u64, BlobError> {
            let mut all = self.0.lock().unwrap();
            all.extend_from_slice(&bytes);
            Ok(all.len() as u64)
        }
        async fn read(&self, _: &str, _: u64, _: usize) -> Result<bytes::Bytes, BlobError> {
            Ok(bytes::Bytes::new())
        }
        async fn len(&self, _: &str) -> Result<Option<u64>, BlobError> {
            Ok(None)
        }
        async fn remove_all(&self, _: &str) -> Result<(), BlobError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_disk_without_room_cuts_the_stream_and_says_so() {
        let shelf = Arc::new(Shelf::default());
        let clock = SystemClock::shared();
        let uploads = Uploads::new(shelf.clone(), clock.clone(), Arc::new(Dice::seeded(1)));
        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        let spool = Arc::new(Spool::new(full));
        let upload = uploads.begin("logs/x".into(), spool.clone());
        let mut capture =
            Capture { bytes_max: 1 << 20, whereabouts: Whereabouts::Spooled { spool, upload }, ..Capture::default() };
        capture.take(b"lost");
        capture.take(b"the end");
        let (output, upload) = capture.finish();
        let mut outcome = Outcome::new(Verdict::Ok, Timestamp(0));
        outcome.stdout = output;
        let pending = crate::exec::Pending::of(upload, None).unwrap();
        pending.settle(&mut outcome, &*clock, Duration::from_secs(30)).await;
        assert!(outcome.stdout.truncated && outcome.stdout.in_blobs && outcome.reason.is_none());
        assert!(outcome.stdout.tail.ends_with(b"the end"));
        let said = String::from_utf8(shelf.0.lock().unwrap().clone()).unwrap();
        assert!(said.starts_with("\n[mutirao: output cut after 0B: No space left"), "{said}");
    }
}
