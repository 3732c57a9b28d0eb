//! Which events have been read, so that none counts twice.
//!
//! What an operator says is numbered from nought, and a replica of it, or the same one after it went back to a snapshot, says
//! the same under the same numbers; only how many go into a record differs, because that is a matter of when somebody flushed.
//! So a record carries the number of its first event, and a reader keeps for each upstream how far it has read. Of a record it
//! takes what is new, which may be the rest of it, and nothing, where another copy was quicker.
//!
//! Within a log an event's place is the record's offset and its row there ([`Place`]). All readers of one log see the same
//! places, so replicas agree about the order of events of different upstreams too.
//!
//! Watermarks stand between events: one at number n comes after event n − 1 and before event n, in whichever record it is.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::state::{Reader, Unreadable, Writer};
use crate::window::watermark::BEGINNING;

/// Where an event is in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub offset: u64,
    pub row: u32,
}

/// What a record says about its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose events they are: an operator's output, not a replica of it.
    pub upstream: u32,
    /// The number of the first event.
    pub first: u64,
    pub rows: u32,
    /// By number of the event that they come before, then by time.
    pub watermarks: Vec<(u64, i64)>,
}

/// What of a record is new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fresh {
    pub rows: Range<usize>,
    /// Each with how many of the new rows come before it.
    pub watermarks: Vec<(usize, i64)>,
}

impl Fresh {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.watermarks.is_empty()
    }
}

/// Events that ought to have come before these did not. The log no longer holds what this reader has not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events {wanted} to {found} of upstream {upstream} are missing: begin from a newer snapshot")]
pub struct Missing {
    pub upstream: u32,
    pub wanted: u64,
    pub found: u64,
}

/// How far a reader is with each upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    upstreams: BTreeMap<u32, Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// The number of the event that comes next.
    next: u64,
    /// The last watermark.
    time: i64,
}

impl Marks {
    /// Takes what is new of a record, and moves the mark past it.
    pub fn take(&mut self, header: &Header) -> Result<Fresh, Missing> {
        let Header { upstream, first, rows, watermarks } = header;
        let mark = self.upstreams.entry(*upstream).or_insert(Mark { next: 0, time: BEGINNING });
        if *first > mark.next {
            return Err(Missing { upstream: *upstream, wanted: mark.next, found: *first });
        }
        let rows = *rows as usize;
        let known = usize::try_from(mark.next - first).unwrap_or(usize::MAX).min(rows);
        let mut fresh = Fresh { rows: known..rows, watermarks: Vec::new() };
        for (before, time) in watermarks {
            if *time > mark.time {
                mark.time = *time;
                let at = usize::try_from(before.saturating_sub(*first)).unwrap_or(usize::MAX).clamp(known, rows);
                fresh.watermarks.push((at - known, *time));
            }
        }
        mark.next = mark.next.max(first + rows as u64);
        Ok(fresh)
    }

    /// The number of the event of this upstream that comes next.
    pub fn next(&self, upstream: u32) -> u64 {
        self.upstreams.get(&upstream).map_or(0, |mark| mark.next)
    }

    pub fn store(&self, to: &mut Writer) {
        to.count(self.upstreams.len());
        for (upstream, Mark { next, time }) in &self.upstreams {
            to.u32(*upstream);
            to.u64(*next);
            to.i64(*time);
        }
    }

    pub fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let count = from.count()?;
        let one = |_| Ok((from.u32()?, Mark { next: from.u64()?, time: from.i64()? }));
        Ok(Self { upstreams: (0..count).map(one).collect::<Result<_, Unreadable>>()? })
    }
}

/// Numbers what an operator says. Part of its snapshot: after going back it says the same under the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbering {
    next: u64,
    time: i64,
}

impl Default for Numbering {
    fn default() -> Self {
        Self::starting_at(0, BEGINNING)
    }
}

impl Numbering {
    /// The number of the event that is said next, and the last watermark before it.
    pub fn starting_at(next: u64, time: i64) -> Self {
        Self { next, time }
    }

    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn time(&self) -> i64 {
        self.time
    }

    /// The header of the next record: so many rows, and watermarks by how many of those come before each. It begins with the
    /// last watermark before it: whoever said that may not have got it to the log.
    pub fn header(&mut self, upstream: u32, rows: u32, watermarks: &[(usize, i64)]) -> Header {
        let first = self.next;
        self.next += u64::from(rows);
        let mut all: Vec<_> = (self.time > BEGINNING).then_some((first, self.time)).into_iter().collect();
        for (before, time) in watermarks {
            all.push((first + *before as u64, *time));
            self.time = self.time.max(*time);
        }
        Header { upstream, first, rows, watermarks: all }
    }
}

#[cfg(test)]
mod tests;
