//! How much may be appended to a log: never so much that it would lose what its readers still need. A rule without I/O.
//!
//! Readers of a log are replicas of one stage, or a sink. They announce how far they are ([`Progress`]); a writer stops before more
//! than a bound lies behind the quickest of them. A slow replica holds nobody back: should it need what the log no longer has, it
//! begins again from a snapshot of the quicker one, which lies within the bound. The bound is a quarter of what the log keeps at most, since sizes of records are known on average only. A writer learns of
//! the others' records when a reader tells how far it is; while all readers stand still each writer knows its own only, so that
//! where there are many the bound is a part for each of them of half of what is kept. Readers that are all silent hold everybody
//! back at the furthest place that one of them announced, until the manager says that nobody needs that any more.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::wire::{LEASE_MS, Part, Progress};

/// Of what a log keeps, this share may lie behind its quickest reader, at most.
const SHARE: u64 = 4;
/// And that of half of it which is one writer's.
const HALF: u64 = 2;
/// How much one record of late counts for the average.
const WEIGHT: f64 = 0.05;
/// After so long without a word a reader may have vanished.
const SILENCE: Duration = Duration::from_millis(2 * LEASE_MS);

#[derive(Clone, Copy, Debug)]
struct Reader {
    needed: u64,
    heard: Option<Mono>,
}

#[derive(Debug)]
pub struct Pressure {
    bound_bytes: u64,
    readers: BTreeMap<Part, Reader>,
    /// What the manager says is needed.
    floor: u64,
    /// Before this nothing is held any more, or all is written.
    end: u64,
    own_bytes: f64,
    told_bytes: f64,
}

impl Pressure {
    /// Of a log that keeps so many bytes, with so many writers, and these readers. `needed`: what they need until they say
    /// more; `end`: where the log ends now.
    pub fn of(log_bytes: u64, writers: u64, readers: impl IntoIterator<Item = Part>, needed: u64, end: u64) -> Self {
        let readers = readers.into_iter().map(|part| (part, Reader { needed, heard: None })).collect();
        let bound_bytes = log_bytes / SHARE.max(HALF * writers);
        Self { bound_bytes, readers, floor: needed, end, own_bytes: 0.0, told_bytes: 0.0 }
    }

    pub fn heard(&mut self, progress: &Progress, now: Mono) {
        let Some(reader) = self.readers.get_mut(&progress.reader) else { return };
        // One that began again from an older snapshot needs more than before.
        (reader.needed, reader.heard) = (progress.needed, Some(now));
        self.end = self.end.max(progress.next);
        self.told_bytes = progress.record_bytes as f64;
    }

    /// The manager knows of nobody who needs anything before this.
    pub fn ordered(&mut self, needed: u64) {
        self.floor = self.floor.max(needed);
    }

    /// So many records are about to be appended: told before, so that they are not counted twice when a reader is quick.
    pub fn appends(&mut self, records: u64, bytes: u64) {
        self.end += records;
        if records > 0 {
            let each = bytes as f64 / records as f64;
            let weight = if self.own_bytes == 0.0 { 1.0 } else { WEIGHT };
            self.own_bytes += (each - self.own_bytes) * weight;
        }
    }

    /// What must stay: before it nothing is read again by the quickest of them, nor by whoever begins from its snapshot.
    pub fn needed(&self, now: Mono) -> u64 {
        let of = |reader: &Reader| match reader.heard {
            Some(heard) if now.since(heard) < SILENCE => reader.needed,
            _ => reader.needed.max(self.floor),
        };
        self.readers.values().map(of).max().unwrap_or(self.end)
    }

    /// What lies behind the quickest reader, about.
    pub fn held_bytes(&self, now: Mono) -> u64 {
        let records = self.end.saturating_sub(self.needed(now));
        (records as f64 * self.own_bytes.max(self.told_bytes)) as u64
    }

    /// Whether so many bytes may be appended now. What is larger than the bound waits until nothing is held at all.
    pub fn admits(&self, bytes: u64, now: Mono) -> bool {
        let held = self.held_bytes(now);
        held == 0 || held + bytes <= self.bound_bytes
    }

    pub fn bound_bytes(&self) -> u64 {
        self.bound_bytes
    }
}

#[cfg(test)]
mod tests;
