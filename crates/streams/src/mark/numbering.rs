//! The other side of a mark: how what is said is numbered.

use super::{Header, Origin};
use crate::state::{Reader, Unreadable, Writer};
use crate::window::watermark::BEGINNING;

/// Numbers what is said at an output. Part of a snapshot: after going back the same is said under the same numbers.
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

    /// So many events are said.
    pub fn count(&mut self, rows: usize) {
        self.next += rows as u64;
    }

    /// A watermark is said. Whether it says anything new.
    pub fn tell(&mut self, time: i64) -> bool {
        let moved = time > self.time;
        self.time = self.time.max(time);
        moved
    }

    /// The header of the next record: so many rows, and watermarks by how many of those come before each. It begins with the
    /// last watermark before it: whoever said that may not have got it to the log.
    pub fn header(&mut self, who: Who, rows: u32, watermarks: &[(usize, i64)]) -> Header {
        let first = self.next;
        self.count(rows as usize);
        let mut all: Vec<_> = (self.time > BEGINNING).then_some((first, self.time)).into_iter().collect();
        for (before, time) in watermarks {
            all.push((first + *before as u64, *time));
            self.tell(*time);
        }
        let Who { upstream, origin, replica } = who;
        Header { upstream, origin, replica, first, rows, watermarks: all }
    }

    pub fn store(&self, to: &mut Writer) {
        to.u64(self.next);
        to.i64(self.time);
    }

    pub fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Ok(Self { next: from.u64()?, time: from.i64()? })
    }
}

/// Who says something, and which copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    pub upstream: u32,
    pub origin: Origin,
    pub replica: u32,
}
