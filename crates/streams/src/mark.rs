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
//! Who says something says it as one of three ([`Origin`]): again and again the same, where it can go back; once, where it
//! cannot read its own source twice, and then whoever follows it counts anew; or beside others, each of whom counts for itself.
//!
//! Watermarks stand between events: one at number n comes after event n − 1 and before event n, in whichever record it is.

mod numbering;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

pub use numbering::{Numbering, Who};

use crate::state::{Reader, Unreadable, Writer};
use crate::window::watermark::BEGINNING;

/// Of an upstream with several writers, so many are remembered: those that wrote last. Each push with a key is one.
pub const WRITERS_MAX: usize = 1_024;

/// Where an event is in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub offset: u64,
    pub row: u32,
}

/// `17.3`
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.offset, self.row)
    }
}

/// By what the numbers of events are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Of what says the same again under the same numbers after it went back to a snapshot.
    Fixed,
    /// Of the one that writes, each time that somebody begins to: a later one is numbered anew, and an earlier one is heard no
    /// more.
    Epoch(u64),
    /// Of one of several that write beside each other, each with numbers of its own.
    Free(u64),
}

/// What a record says about its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose events they are: an output, not a replica of it ([`Port::number`](crate::graph::Port::number)).
    pub upstream: u32,
    pub origin: Origin,
    /// Which copy says it.
    pub replica: u32,
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

/// Why nothing is taken of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untaken {
    /// Events that ought to have come before these did not.
    #[error("events {wanted} to {found} of upstream {upstream} are missing")]
    Missing { upstream: u32, wanted: u64, found: u64 },
    /// Somebody has taken over from whoever wrote it.
    #[error("upstream {upstream} wrote in epoch {found}, and epoch {newest} has begun")]
    Stale { upstream: u32, newest: u64, found: u64 },
    #[error("upstream {upstream} counts in another way than before")]
    Other { upstream: u32 },
}

/// How far a reader is with each upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    upstreams: BTreeMap<u32, Mark>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    /// The last watermark.
    time: i64,
    counts: Counts,
}

/// The number of the event that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Counts {
    /// None has come yet.
    None,
    Fixed(u64),
    Epoch {
        epoch: u64,
        next: u64,
    },
    /// Of each writer, the one that wrote last at the end.
    Free(Vec<(u64, u64)>),
}

impl Counts {
    /// What comes next of this origin.
    fn next(&self, upstream: u32, header: &Header) -> Result<u64, Untaken> {
        match (self, header.origin) {
            (Counts::None, Origin::Fixed | Origin::Epoch(_)) => Ok(0),
            (Counts::Fixed(next), Origin::Fixed) => Ok(*next),
            (Counts::Epoch { epoch, next }, Origin::Epoch(found)) => match found.cmp(epoch) {
                std::cmp::Ordering::Less => Err(Untaken::Stale { upstream, newest: *epoch, found }),
                std::cmp::Ordering::Equal => Ok(*next),
                std::cmp::Ordering::Greater => Ok(0),
            },
            // What is missing of one of several was refused to whoever sent it.
            (Counts::None, Origin::Free(_)) => Ok(header.first),
            (Counts::Free(writers), Origin::Free(writer)) => {
                let known = writers.iter().rev().find(|(id, _)| *id == writer).map_or(0, |(_, next)| *next);
                Ok(known.max(header.first))
            }
            _ => Err(Untaken::Other { upstream }),
        }
    }

    fn advance(&mut self, origin: Origin, next: u64) {
        match (&mut *self, origin) {
            (Counts::Free(writers), Origin::Free(writer)) => {
                writers.retain(|(id, _)| *id != writer);
                writers.push((writer, next));
                if writers.len() > WRITERS_MAX {
                    writers.remove(0);
                }
            }
            (_, Origin::Fixed) => *self = Counts::Fixed(next),
            (_, Origin::Epoch(epoch)) => *self = Counts::Epoch { epoch, next },
            (_, Origin::Free(writer)) => *self = Counts::Free(vec![(writer, next)]),
        }
    }
}

impl Marks {
    /// Takes what is new of a record, and moves the mark past it.
    pub fn take(&mut self, header: &Header) -> Result<Fresh, Untaken> {
        self.look(header)?;
        Ok(self.take_what_is_there(header))
    }

    /// Whether anything could be taken: what of the rows is new. Moves nothing.
    pub fn look(&self, header: &Header) -> Result<Range<usize>, Untaken> {
        let Header { upstream, first, rows, .. } = header;
        let wanted = match self.upstreams.get(upstream) {
            None => Counts::None.next(*upstream, header)?,
            Some(mark) => mark.counts.next(*upstream, header)?,
        };
        if *first > wanted {
            return Err(Untaken::Missing { upstream: *upstream, wanted, found: *first });
        }
        Ok(known(wanted - first, *rows)..*rows as usize)
    }

    /// Takes what is new of a record although events before it are missing. Nothing of one that is not to be read at all.
    pub fn take_what_is_there(&mut self, header: &Header) -> Fresh {
        let Header { upstream, origin, first, rows, watermarks, .. } = header;
        let mark = self.upstreams.entry(*upstream).or_insert(Mark { time: BEGINNING, counts: Counts::None });
        let Ok(next) = mark.counts.next(*upstream, header) else { return Fresh::default() };
        let next = next.max(*first);
        let known = known(next - first, *rows);
        let rows = *rows as usize;
        let mut fresh = Fresh { rows: known..rows, watermarks: Vec::new() };
        for (before, time) in watermarks {
            if *time > mark.time {
                mark.time = *time;
                let at = usize::try_from(before.saturating_sub(*first)).unwrap_or(usize::MAX).clamp(known, rows);
                fresh.watermarks.push((at - known, *time));
            }
        }
        mark.counts.advance(*origin, next.max(first.saturating_add(rows as u64)));
        fresh
    }

    /// The clock moves the time of an upstream. Whether it did.
    pub fn tick(&mut self, upstream: u32, time: i64) -> bool {
        let mark = self.upstreams.entry(upstream).or_insert(Mark { time: BEGINNING, counts: Counts::None });
        let moved = time > mark.time;
        mark.time = mark.time.max(time);
        moved
    }

    /// How far time is with this upstream.
    pub fn time(&self, upstream: u32) -> i64 {
        self.upstreams.get(&upstream).map_or(BEGINNING, |mark| mark.time)
    }

    pub fn store(&self, to: &mut Writer) {
        to.count(self.upstreams.len());
        for (upstream, Mark { time, counts }) in &self.upstreams {
            to.u32(*upstream);
            to.i64(*time);
            match counts {
                Counts::None => to.u8(0),
                Counts::Fixed(next) => {
                    to.u8(1);
                    to.u64(*next);
                }
                Counts::Epoch { epoch, next } => {
                    to.u8(2);
                    to.u64(*epoch);
                    to.u64(*next);
                }
                Counts::Free(writers) => {
                    to.u8(3);
                    to.count(writers.len());
                    for (writer, next) in writers {
                        to.u64(*writer);
                        to.u64(*next);
                    }
                }
            }
        }
    }

    pub fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let count = from.count()?;
        let one = |_| {
            let (upstream, time) = (from.u32()?, from.i64()?);
            let counts = match from.u8()? {
                0 => Counts::None,
                1 => Counts::Fixed(from.u64()?),
                2 => Counts::Epoch { epoch: from.u64()?, next: from.u64()? },
                3 => {
                    let count = from.count_up_to(WRITERS_MAX)?;
                    let writer = |_| Ok((from.u64()?, from.u64()?));
                    Counts::Free((0..count).map(writer).collect::<Result<_, Unreadable>>()?)
                }
                _ => return Err(Unreadable::Value),
            };
            Ok((upstream, Mark { time, counts }))
        };
        Ok(Self { upstreams: (0..count).map(one).collect::<Result<_, Unreadable>>()? })
    }
}

/// How many of so many rows are among those that are known.
fn known(before: u64, rows: u32) -> usize {
    usize::try_from(before).unwrap_or(usize::MAX).min(rows as usize)
}
