//! How much may be appended to a log: never so much that it would lose what its readers still need. A rule without I/O.
//!
//! Readers of a log are replicas of one stage, or a sink. They announce how far they are ([`Progress`]); nobody appends while
//! more than a bound lies behind the quickest of them. A slow replica holds nobody back: should it need what the log no longer has,
//! it begins again from a snapshot of the quicker one, which lies within the bound. The bound is a quarter of what the log keeps at
//! most, since sizes of records are known on average only, and since what is granted comes on top of it.
//!
//! A writer does not hear what others append, so it goes by the end of the log where it saw it itself: each look at the log grants
//! it its share of the room that there is, and for more it must look again. So all writers together append no more than the
//! bound beyond the last look that found room. A reader's word alone would grant the same room to each of them.
//!
//! Readers that are all silent hold everybody back at the furthest place that one of them announced, until the manager says that
//! nobody needs that any more.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::wire::{LEASE_MS, Part, Progress};

/// Of what a log keeps, this share may lie behind its quickest reader when somebody is granted more.
const SHARE: u64 = 4;
/// Of a writer's own share of that, this goes in one append, so that nobody waits for all of it to be free.
const APPENDS: u64 = 4;
/// How much one record of late counts for the average.
const WEIGHT: f64 = 0.05;
/// After so long without a word a reader may have vanished.
const SILENCE: Duration = Duration::from_millis(2 * LEASE_MS);

#[derive(Clone, Copy, Debug)]
struct Reader {
    needed: u64,
    heard: Option<Mono>,
}

/// What a writer may do that has something to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    Append,
    /// Look where the log ends: there may be room.
    Look,
    /// Its readers must go on first.
    Wait,
}

#[derive(Debug)]
pub struct Pressure {
    bound_bytes: u64,
    writers: u64,
    readers: BTreeMap<Part, Reader>,
    /// What the manager says is needed.
    floor: u64,
    /// Where the log ended when it was looked at.
    end: u64,
    /// Since then: what may be appended, and what was.
    granted: Grant,
    spent_records: u64,
    spent_bytes: u64,
    own_bytes: f64,
    told_bytes: f64,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    bytes: u64,
    /// Nothing lies behind the reader, or it is not known how much: a first append, however large.
    one: bool,
}

impl Grant {
    fn admits(self, spent: u64, bytes: u64) -> bool {
        spent + bytes <= self.bytes || (self.one && spent == 0)
    }
}

impl Pressure {
    /// Of a log that keeps so many bytes, with so many writers, and these readers. `needed`: what they need until they say
    /// more; `end`: where the log ends now.
    pub fn of(log_bytes: u64, writers: u64, readers: impl IntoIterator<Item = Part>, needed: u64, end: u64) -> Self {
        let readers = readers.into_iter().map(|part| (part, Reader { needed, heard: None })).collect();
        Self {
            bound_bytes: log_bytes / SHARE,
            writers: writers.max(1),
            readers,
            floor: needed,
            end,
            granted: Grant { bytes: 0, one: true },
            spent_records: 0,
            spent_bytes: 0,
            own_bytes: 0.0,
            told_bytes: 0.0,
        }
    }

    pub fn heard(&mut self, progress: &Progress, now: Mono) {
        let Some(reader) = self.readers.get_mut(&progress.reader) else { return };
        // One that began again from an older snapshot needs more than before.
        (reader.needed, reader.heard) = (progress.needed, Some(now));
        self.told_bytes = progress.record_bytes as f64;
    }

    /// The manager knows of nobody who needs anything before this.
    pub fn ordered(&mut self, needed: u64) {
        self.floor = self.floor.max(needed);
    }

    /// The log ends here.
    pub fn looked(&mut self, end: u64, now: Mono) {
        (self.end, self.spent_records, self.spent_bytes) = (end, 0, 0);
        self.granted = self.grants(now);
    }

    /// So many records are appended.
    pub fn appends(&mut self, records: u64, bytes: u64) {
        self.spent_records += records;
        self.spent_bytes += bytes;
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

    /// What is granted if the log ends with what we appended ourselves.
    fn grants(&self, now: Mono) -> Grant {
        let records = (self.end + self.spent_records).saturating_sub(self.needed(now));
        let each = self.own_bytes.max(self.told_bytes);
        if records > 0 && each == 0.0 {
            return Grant { bytes: 0, one: true };
        }
        let room = self.bound_bytes.saturating_sub((records as f64 * each) as u64);
        Grant { bytes: room / self.writers, one: records == 0 }
    }

    /// Whether so many bytes may be appended now. What is larger than a share waits until nothing is held at all.
    pub fn may(&self, bytes: u64, now: Mono) -> May {
        if self.granted.admits(self.spent_bytes, bytes) {
            return May::Append;
        }
        // Others may have appended too: there is no more room than this, and maybe less.
        if self.grants(now).admits(0, bytes) { May::Look } else { May::Wait }
    }

    /// What may lie behind the quickest reader while somebody is granted more.
    pub fn bound_bytes(&self) -> u64 {
        self.bound_bytes
    }

    /// More than this should not go in one append.
    pub fn append_bytes(&self) -> usize {
        usize::try_from(self.bound_bytes / self.writers / APPENDS).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests;
