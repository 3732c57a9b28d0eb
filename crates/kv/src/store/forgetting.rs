//! What may be forgotten of the past, and how it is known how much of it there is: each parcel says how much is older, so what is
//! left is found without adding anything up.

use mutirao_core::Timestamp;

use crate::fold::{Event, Folded};

/// What may be forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Forget {
    /// The history from before this moment, and the parcels that took its revisions, but for the last of each sender: that
    /// one keeps what is delivered again from being applied again.
    pub past: Timestamp,
    /// Senders that were last heard to live before this moment, altogether, once nothing of theirs can come again. That
    /// is so when a parcel was applied whose sender had not even begun when they were long silent: it lay behind all of
    /// theirs in the queue. Those who did not introduce themselves commit by their own hand, and can send nothing any more
    /// when somebody else has.
    pub senders: Timestamp,
    /// How much history may stay; none: as much as there is.
    pub bound: Option<Bound>,
}

/// A bound for the history of a shard.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub bytes_max: u64,
    /// What is not from before this moment stays, however much it is: somebody may be about to read it.
    pub past: Timestamp,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgot {
    pub rows: u64,
    /// Of the history that is left, but for what is from before anybody counted.
    pub bytes_left: u64,
}

/// Of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub revision: u64,
    /// Up to here its history is gone.
    pub compacted: u64,
    /// Bytes of history that it has ever had.
    pub written: u64,
}

/// How much history there was before each parcel that is taken with these, and how much after all of it.
pub(super) fn weighed(written: u64, folded: &Folded) -> (Vec<i64>, i64) {
    let mut written = written;
    let mut history = folded.history.iter().peekable();
    let mut older = Vec::with_capacity(folded.taken.len());
    for taken in &folded.taken {
        while let Some(event) = history.next_if(|event| event.revision < taken.first) {
            written += event.bytes();
        }
        older.push(written as i64);
    }
    written += history.map(Event::bytes).sum::<u64>();
    (older, written as i64)
}

/// How long after a sender was last heard to live something of its may still reach a queue, as far as the clocks of two
/// machines can tell.
pub(super) const GHOST_MS: i64 = 2 * 3_600_000;
