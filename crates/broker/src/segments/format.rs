//! The bytes of a segment: records one after the other, each with a head of 24 bytes, little-endian:
//!
//! | magic | crc32 | offset | group | length | body … |
//! |---|---|---|---|---|---|
//! | 4 | 4 | 8 | 4 | 4 | length |
//!
//! The CRC covers all that follows it. `group` is the position at which the group that was synced together begins. It
//! tells a torn tail from damage: a group is written only after the one before it was synced, so a bad record that has a
//! sound record of a *later* group behind it had been durable once, and is damage.

use std::ops::Range;

pub(super) const HEAD_BYTES: usize = 24;
const MAGIC: [u8; 4] = *b"MtrL";

/// Distance between two marks of the sparse index.
const MARK_BYTES: usize = 64 << 10;

pub(super) fn encode(into: &mut Vec<u8>, offset: u64, group: u32, body: &[u8]) {
    let start = into.len();
    into.extend_from_slice(&MAGIC);
    into.extend_from_slice(&[0; 4]);
    into.extend_from_slice(&offset.to_le_bytes());
    into.extend_from_slice(&group.to_le_bytes());
    into.extend_from_slice(&(body.len() as u32).to_le_bytes());
    into.extend_from_slice(body);
    let crc = crc32fast::hash(&into[start + 8..]);
    into[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// A record found in a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub offset: u64,
    pub group: u32,
    pub body: Range<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The buffer ends before the record does; this many bytes of it are needed.
    Short { needed: usize },
    /// Not a record, or one whose bytes changed.
    Bad,
}

/// The record that begins at `at`.
pub(super) fn parse(bytes: &[u8], at: usize) -> Result<Found, Fault> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some((head, after)) = rest.split_first_chunk::<HEAD_BYTES>() else {
        return Err(Fault::Short { needed: HEAD_BYTES });
    };
    if head[..4] != MAGIC {
        return Err(Fault::Bad);
    }
    let length = u32_at(head, 20) as usize;
    if after.len() < length {
        return Err(Fault::Short { needed: HEAD_BYTES + length });
    }
    if crc32fast::hash(&rest[8..HEAD_BYTES + length]) != u32_at(head, 4) {
        return Err(Fault::Bad);
    }
    let offset = u64::from(u32_at(head, 8)) | u64::from(u32_at(head, 12)) << 32;
    let body = at + HEAD_BYTES..at + HEAD_BYTES + length;
    Ok(Found { offset, group: u32_at(head, 16), body })
}

fn u32_at(head: &[u8; HEAD_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// Where to start looking for an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub offset: u64,
    pub position: usize,
}

/// Adds a mark for the record at `position` when the last one is far enough behind.
pub(super) fn mark(marks: &mut Vec<Mark>, offset: u64, position: usize) {
    if marks.last().is_none_or(|last| position - last.position >= MARK_BYTES) {
        marks.push(Mark { offset, position });
    }
}

/// What a whole segment turned out to hold.
#[derive(Debug)]
pub(super) struct Scan {
    pub records: u64,
    /// Bytes up to which every record is sound.
    pub sound_bytes: usize,
    pub marks: Vec<Mark>,
    pub end: End,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The last record ends where the file does.
    Clean,
    /// The rest was never durable.
    Torn,
    /// The rest was durable once and cannot be read any more.
    Damaged,
}

pub(super) fn scan(bytes: &[u8], base: u64) -> Scan {
    let mut scan = Scan { records: 0, sound_bytes: 0, marks: Vec::new(), end: End::Clean };
    while scan.sound_bytes < bytes.len() {
        let expected = base + scan.records;
        match parse(bytes, scan.sound_bytes) {
            Ok(found) if found.offset == expected => {
                mark(&mut scan.marks, expected, scan.sound_bytes);
                scan.records += 1;
                scan.sound_bytes = found.body.end;
            }
            _ => {
                let damaged = later_group(bytes, scan.sound_bytes, expected);
                scan.end = if damaged { End::Damaged } else { End::Torn };
                break;
            }
        }
    }
    scan
}

/// Is there a sound record behind `bad` that belongs to a group begun after it?
fn later_group(bytes: &[u8], bad: usize, expected: u64) -> bool {
    let mut at = bad + 1;
    while let Some(skip) = bytes.get(at..).and_then(|rest| rest.windows(4).position(|window| window == MAGIC)) {
        at += skip;
        if let Ok(found) = parse(bytes, at)
            && found.group as usize > bad
            && found.offset > expected
        {
            return true;
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups: records 5 and 6, then record 7.
    fn two_groups() -> (Vec<u8>, usize) {
        let mut bytes = Vec::new();
        encode(&mut bytes, 5, 0, b"five");
        encode(&mut bytes, 6, 0, b"six");
        let second = bytes.len();
        encode(&mut bytes, 7, second as u32, b"seven");
        (bytes, second)
    }

    #[test]
    fn every_cut_of_the_last_group_is_a_torn_tail() {
        let (bytes, second) = two_groups();
        for cut in second + 1..bytes.len() {
            let scan = scan(&bytes[..cut], 5);
            assert_eq!((scan.records, scan.sound_bytes, scan.end), (2, second, End::Torn), "cut at {cut}");
        }
    }

    #[test]
    fn any_changed_byte_is_noticed_and_damage_is_told_from_a_torn_tail() {
        let (bytes, second) = two_groups();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            let expected = if at < second { End::Damaged } else { End::Torn };
            assert_eq!(scan(&changed, 5).end, expected, "changed at {at}");
        }
    }

    #[test]
    fn a_sound_record_of_the_same_group_does_not_make_a_torn_one_damage() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 0, 0, b"zero");
        let first = bytes.len();
        encode(&mut bytes, 1, 0, b"one");
        bytes[..first].fill(0);
        assert_eq!(scan(&bytes, 0).end, End::Torn);
    }
}
