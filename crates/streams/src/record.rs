//! What a log holds, record by record: events of one upstream with watermarks between them, or a word about time alone.
//!
//! | bytes | what |
//! |---|---|
//! | 3 | `MtR` |
//! | 1 | the version of this form, 1 |
//! | 4 | CRC-32 of what follows, but for the events |
//! | 4 | the length of the head |
//! | | the head: what it is ([`Header`], [`Times`], or a [`Tick`]) |
//! | | the events, as [`binary`], which has a checksum of its own; none where there are no rows |
//!
//! Everything is little-endian. What a newer program adds to the head stands at its end and is passed over here, and a record of a
//! kind that is not known is told apart from a damaged one: both are skipped by whoever reads them. Whatever the bytes are, reading
//! them gives an answer, and allocates no more than a few times their length.
//!
//! The events are read apart from the head ([`Rows::events`]): of a copy that is known already nobody needs them.

use std::sync::Arc;

use crate::batch::binary::{self, BinaryError};
use crate::batch::{Batch, ROWS_MAX};
use crate::mark::{Header, Origin};
use crate::schema::Schema;

const MAGIC: &[u8; 3] = b"MtR";
const VERSION: u8 = 1;
const FRAME_BYTES: usize = 12;
const ROWS: u8 = 1;
const TICK: u8 = 2;
const FIXED: u8 = 0;
const EPOCH: u8 = 1;
const FREE: u8 = 2;

/// When what happened to the last event of a record, in microseconds since 1970 by the clocks of those who did it. Replicas say
/// the same events and not the same times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Whoever says it handed it to the log.
    pub sent_us: i64,
    /// It came into the system, at a source.
    pub arrived_us: i64,
    /// The one before whoever says it had handed on what it was made of.
    pub caused_us: i64,
    /// Whoever says it took that in hand.
    pub taken_us: i64,
}

/// A source is silent, and its time goes on all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    pub upstream: u32,
    /// Of whom reads the log, and noticed it.
    pub replica: u32,
    /// Everything before it has come.
    pub time: i64,
    pub sent_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Rows(Rows<'a>),
    Tick(Tick),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows<'a> {
    pub header: Header,
    pub times: Times,
    body: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("this is no record of a stream")]
    NoRecord,
    #[error("the record is of version {0}, and this program reads {VERSION}: it was written by a newer one")]
    Version(u8),
    #[error("the record is of kind {0}, which this program does not know: it was written by a newer one")]
    Kind(u8),
    #[error("the record was damaged: its checksum differs")]
    Damaged,
    #[error("the record is written wrongly: {0}")]
    Wrong(&'static str),
    #[error(transparent)]
    Events(#[from] BinaryError),
}

/// The bytes of events. The batch has the rows that the header says.
pub fn rows(header: &Header, times: &Times, batch: &Batch) -> Vec<u8> {
    debug_assert_eq!(header.rows as usize, batch.rows());
    let mut head = vec![ROWS];
    let (kind, of) = match header.origin {
        Origin::Fixed => (FIXED, 0),
        Origin::Epoch(epoch) => (EPOCH, epoch),
        Origin::Free(writer) => (FREE, writer),
    };
    head.push(kind);
    head.extend(of.to_le_bytes());
    head.extend(header.upstream.to_le_bytes());
    head.extend(header.replica.to_le_bytes());
    head.extend(header.first.to_le_bytes());
    head.extend(header.rows.to_le_bytes());
    for time in [times.sent_us, times.arrived_us, times.caused_us, times.taken_us] {
        head.extend(time.to_le_bytes());
    }
    head.extend((header.watermarks.len() as u32).to_le_bytes());
    for (before, time) in &header.watermarks {
        let row = u32::try_from(before.saturating_sub(header.first)).unwrap_or(header.rows).min(header.rows);
        head.extend(row.to_le_bytes());
        head.extend(time.to_le_bytes());
    }
    let mut bytes = framed(&head, batch.bytes());
    if !batch.is_empty() {
        binary::write(batch, &mut bytes);
    }
    bytes
}

pub fn tick(tick: &Tick) -> Vec<u8> {
    let mut head = vec![TICK];
    head.extend(tick.upstream.to_le_bytes());
    head.extend(tick.replica.to_le_bytes());
    head.extend(tick.time.to_le_bytes());
    head.extend(tick.sent_us.to_le_bytes());
    framed(&head, 0)
}

fn framed(head: &[u8], more: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FRAME_BYTES + head.len() + more + 64);
    bytes.extend(MAGIC);
    bytes.push(VERSION);
    bytes.extend([0; 4]);
    bytes.extend((head.len() as u32).to_le_bytes());
    bytes.extend(head);
    let sum = crc32fast::hash(&bytes[8..]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// What these bytes are; of events, all but the events themselves.
pub fn read(bytes: &[u8]) -> Result<Record<'_>, RecordError> {
    if bytes.len() < FRAME_BYTES || &bytes[..3] != MAGIC {
        return Err(RecordError::NoRecord);
    }
    if bytes[3] != VERSION {
        return Err(RecordError::Version(bytes[3]));
    }
    let mut frame = Rest(&bytes[4..]);
    let (sum, length) = (frame.u32()?, frame.u32()?);
    let head = frame.bytes(length as usize)?;
    if crc32fast::hash(&bytes[8..FRAME_BYTES + head.len()]) != sum {
        return Err(RecordError::Damaged);
    }
    let mut head = Rest(head);
    match head.u8()? {
        ROWS => rows_of(head, frame.0).map(Record::Rows),
        TICK => Ok(Record::Tick(Tick {
            upstream: head.u32()?,
            replica: head.u32()?,
            time: head.i64()?,
            sent_us: head.i64()?,
        })),
        other => Err(RecordError::Kind(other)),
    }
}

fn rows_of<'a>(mut head: Rest<'_>, body: &'a [u8]) -> Result<Rows<'a>, RecordError> {
    let origin = match (head.u8()?, head.u64()?) {
        (FIXED, _) => Origin::Fixed,
        (EPOCH, epoch) => Origin::Epoch(epoch),
        (FREE, writer) => Origin::Free(writer),
        _ => return Err(RecordError::Wrong("its origin is none")),
    };
    let (upstream, replica, first, rows) = (head.u32()?, head.u32()?, head.u64()?, head.u32()?);
    if rows as usize > ROWS_MAX || first.checked_add(u64::from(rows)).is_none() {
        return Err(RecordError::Wrong("it has more rows than a record holds"));
    }
    let times = Times { sent_us: head.i64()?, arrived_us: head.i64()?, caused_us: head.i64()?, taken_us: head.i64()? };
    let count = head.u32()? as usize;
    if count > head.0.len() / 12 {
        return Err(RecordError::Wrong("it ends early"));
    }
    let mut watermarks = Vec::with_capacity(count);
    let mut last = 0;
    for _ in 0..count {
        let (row, time) = (head.u32()?, head.i64()?);
        if row < last || row > rows {
            return Err(RecordError::Wrong("a watermark stands at no event"));
        }
        last = row;
        watermarks.push((first + u64::from(row), time));
    }
    Ok(Rows { header: Header { upstream, origin, replica, first, rows, watermarks }, times, body })
}

impl Rows<'_> {
    /// The events.
    pub fn events(&self, schema: &Arc<Schema>) -> Result<Batch, RecordError> {
        if self.header.rows == 0 {
            return Ok(Batch::new(schema.clone()));
        }
        let batch = binary::read(self.body, schema)?;
        if batch.rows() != self.header.rows as usize {
            return Err(RecordError::Wrong("it has another number of events than it says"));
        }
        Ok(batch)
    }
}

/// What has not been read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(RecordError::Wrong("it ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(RecordError::Wrong("it ends early"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, RecordError> {
        self.array().map(i64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests;
