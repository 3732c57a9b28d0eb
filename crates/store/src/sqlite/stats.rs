//! What the writer has done, counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts since the file was opened. Taken one by one while the writer works, so they may be a group apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions committed: one fsync each.
    pub groups: u64,
    /// Writes in them, those that failed by themselves included.
    pub writes: u64,
    /// Groups of which nothing was written: the disk was full, or another process held the file.
    pub groups_failed: u64,
    /// Writes in the last group.
    pub group_last_writes: u64,
    /// Writes in the largest group.
    pub group_max_writes: u64,
    /// How long the last group took, its commit included.
    pub group_last_us: u64,
    /// How long the slowest group took.
    pub group_max_us: u64,
}

#[derive(Default)]
pub(super) struct Tally {
    groups: AtomicU64,
    writes: AtomicU64,
    groups_failed: AtomicU64,
    group_last_writes: AtomicU64,
    group_max_writes: AtomicU64,
    group_last_us: AtomicU64,
    group_max_us: AtomicU64,
}

impl Tally {
    pub fn committed(&self, writes: usize, took: Duration) {
        let (writes, us) = (writes as u64, took.as_micros() as u64);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes, Ordering::Relaxed);
        self.group_last_writes.store(writes, Ordering::Relaxed);
        self.group_max_writes.fetch_max(writes, Ordering::Relaxed);
        self.group_last_us.store(us, Ordering::Relaxed);
        self.group_max_us.fetch_max(us, Ordering::Relaxed);
    }

    pub fn failed(&self) {
        self.groups_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn stats(&self) -> Stats {
        Stats {
            groups: self.groups.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            groups_failed: self.groups_failed.load(Ordering::Relaxed),
            group_last_writes: self.group_last_writes.load(Ordering::Relaxed),
            group_max_writes: self.group_max_writes.load(Ordering::Relaxed),
            group_last_us: self.group_last_us.load(Ordering::Relaxed),
            group_max_us: self.group_max_us.load(Ordering::Relaxed),
        }
    }
}
