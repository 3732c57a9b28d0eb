//! The newest records of all logs, in memory: a reader at the end of a log does not ask the disk for what was written a
//! moment ago. Bounded over all logs together; what was written first goes first, so that a log that rests keeps nothing
//! while others are written to.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use super::format::HEAD_BYTES;
use crate::Record;

/// Bytes of all tails together.
const BYTES_MAX: usize = 32 << 20;
/// What a group is reckoned at beside its bytes, and each record in it.
const GROUP_COST: usize = 160;
const RECORD_COST: usize = 16;

/// Records that were written together, as they are in the file.
pub(super) struct Group {
    pub first: u64,
    pub bytes: Bytes,
    /// Where each record's body begins, and how long it is.
    pub bodies: Vec<(u32, u32)>,
}

impl Group {
    fn next(&self) -> u64 {
        self.first + self.bodies.len() as u64
    }

    fn cost(&self) -> usize {
        self.bytes.len() + GROUP_COST + RECORD_COST * self.bodies.len()
    }
}

/// The newest groups of one log, without a hole between them.
#[derive(Default)]
pub(super) struct Tail(Mutex<VecDeque<Arc<Group>>>);

impl Tail {
    /// Records from an offset on, at least one and at most `limit`, about `bytes_max` bytes; none when it is not here.
    pub fn read(&self, from: u64, limit: usize, bytes_max: usize) -> Vec<Record> {
        let groups = self.0.lock();
        let begin = groups.partition_point(|group| group.next() <= from);
        let (mut records, mut bytes) = (Vec::new(), 0);
        for group in groups.range(begin..) {
            if group.first > from && records.is_empty() {
                return records;
            }
            let skip = from.saturating_sub(group.first) as usize;
            for (offset, (at, len)) in (group.first..).zip(&group.bodies).skip(skip) {
                if records.len() >= limit || bytes >= bytes_max {
                    return records;
                }
                let (at, len) = (*at as usize, *len as usize);
                bytes += len + HEAD_BYTES;
                records.push(Record { offset, body: group.bytes.slice(at..at + len) });
            }
        }
        records
    }
}

/// What is kept of all logs, in the order in which it was written.
#[derive(Default)]
pub(super) struct Tails(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    groups: VecDeque<(Weak<Tail>, usize)>,
    bytes: usize,
}

impl Tails {
    pub fn push(&self, tail: &Arc<Tail>, group: Group) {
        let cost = group.cost();
        tail.0.lock().push_back(Arc::new(group));
        let mut kept = self.0.lock();
        kept.groups.push_back((Arc::downgrade(tail), cost));
        kept.bytes += cost;
        while kept.bytes > BYTES_MAX
            && let Some((oldest, cost)) = kept.groups.pop_front()
        {
            kept.bytes -= cost;
            if let Some(tail) = oldest.upgrade() {
                tail.0.lock().pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(first: u64, bodies: &[&str]) -> Group {
        let mut bytes = Vec::new();
        let place = |body: &&str| {
            let at = bytes.len() as u32;
            bytes.extend_from_slice(body.as_bytes());
            (at, body.len() as u32)
        };
        let bodies = bodies.iter().map(place).collect();
        Group { first, bodies, bytes: bytes.into() }
    }

    fn offsets(tail: &Tail, from: u64, limit: usize, bytes_max: usize) -> Vec<u64> {
        tail.read(from, limit, bytes_max).iter().map(|record| record.offset).collect()
    }

    #[test]
    fn what_is_here_is_read_from_any_offset_and_nothing_is_invented() {
        let (tails, tail) = (Tails::default(), Arc::new(Tail::default()));
        assert!(tail.read(0, 9, 999).is_empty());
        tails.push(&tail, group(5, &["five", "", "seven"]));
        tails.push(&tail, group(8, &["eight"]));
        assert_eq!(offsets(&tail, 5, 9, 999), [5, 6, 7, 8]);
        assert_eq!(tail.read(7, 9, 999)[0].body, "seven");
        assert_eq!(offsets(&tail, 6, 2, 999), [6, 7]);
        assert_eq!(offsets(&tail, 6, 9, 1), [6], "at least one");
        assert!(offsets(&tail, 4, 9, 999).is_empty() && offsets(&tail, 9, 9, 999).is_empty());
    }

    #[test]
    fn what_was_written_first_goes_first_whichever_log_it_is_of() {
        let (tails, idle, busy) = (Tails::default(), Arc::new(Tail::default()), Arc::new(Tail::default()));
        tails.push(&idle, group(0, &["idle"]));
        let large = "x".repeat(1 << 20);
        for n in 0..100 {
            tails.push(&busy, group(n, &[&large]));
        }
        assert!(idle.read(0, 9, 999).is_empty());
        assert!(offsets(&busy, 60, 1, 1).is_empty() && offsets(&busy, 99, 1, 1) == [99]);
        assert!(tails.0.lock().bytes <= BYTES_MAX);
    }
}
