//! Where tasks of one job differ: their entries, commands or more, kept in compressed segments. A task that is handed out
//! finds its own in a small cache of decoded segments.

use std::collections::VecDeque;
use std::sync::Arc;

use mutirao_core::id::JobKey;
use mutirao_core::job::{Spread, Variation};
use mutirao_core::tolerant;

/// Tasks in one segment.
pub const SEGMENT_TASKS: u32 = 1_024;
const LEVEL: i32 = 1;
/// The most a segment may unpack to: a thousand of the longest commands, with room for escapes.
const UNPACKED_BYTES_MAX: usize = 4 << 30;
const CACHED_SEGMENTS: usize = 32;

/// What kind of difference a job's segments hold. The numbers are in the store; never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The index says it all.
    Index = 0,
    Entry = 1,
    Command = 2,
    Variation = 3,
}

impl Kind {
    pub fn of(spread: &Spread) -> Self {
        match spread {
            Spread::Single | Spread::Array { .. } => Kind::Index,
            Spread::Entries(_) => Kind::Entry,
            Spread::Commands(_) => Kind::Command,
            Spread::Tasks(_) => Kind::Variation,
        }
    }

    pub fn from_code(code: i64) -> Option<Self> {
        [Kind::Index, Kind::Entry, Kind::Command, Kind::Variation].into_iter().find(|kind| *kind as i64 == code)
    }
}

/// A decoded segment.
#[derive(Debug, PartialEq)]
pub enum Segment {
    Entries(Vec<String>),
    Commands(Vec<Vec<String>>),
    Tasks(Vec<Variation>),
}

impl Segment {
    /// What the task at this place has of its own.
    pub fn get(&self, at: usize) -> Option<Variation> {
        match self {
            Segment::Entries(entries) => {
                entries.get(at).map(|entry| Variation { entry: Some(entry.clone()), ..Variation::default() })
            }
            Segment::Commands(commands) => {
                commands.get(at).map(|command| Variation { command: command.clone(), ..Variation::default() })
            }
            Segment::Tasks(tasks) => tasks.get(at).cloned(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a segment of job {job} cannot be read: {why}")]
pub struct BadSegment {
    pub job: JobKey,
    pub why: String,
}

/// The segments of a job, packed: the offset of each one's first task, and its bytes.
pub fn pack(spread: &Spread) -> Vec<(u32, Vec<u8>)> {
    match spread {
        Spread::Single | Spread::Array { .. } => Vec::new(),
        Spread::Entries(entries) => pack_all(entries),
        Spread::Commands(commands) => pack_all(commands),
        Spread::Tasks(tasks) => pack_all(tasks),
    }
}

fn pack_all<T: serde::Serialize>(items: &[T]) -> Vec<(u32, Vec<u8>)> {
    let pack_one = |(i, chunk): (usize, &[T])| {
        let json = serde_json::to_vec(chunk).expect("texts can be written");
        let packed = zstd::bulk::compress(&json, LEVEL).expect("compressing in memory");
        (i as u32 * SEGMENT_TASKS, packed)
    };
    items.chunks(SEGMENT_TASKS as usize).enumerate().map(pack_one).collect()
}

pub fn unpack(job: JobKey, kind: Kind, packed: &[u8]) -> Result<Segment, BadSegment> {
    let bad = |why: String| BadSegment { job, why };
    let json = zstd::decode_all(packed).map_err(|e| bad(e.to_string()))?;
    if json.len() > UNPACKED_BYTES_MAX {
        return Err(bad("it is too large".into()));
    }
    match kind {
        Kind::Index => Err(bad("the job has no entries".into())),
        Kind::Entry => serde_json::from_slice(&json).map(Segment::Entries).map_err(|e| bad(e.to_string())),
        Kind::Command => serde_json::from_slice(&json).map(Segment::Commands).map_err(|e| bad(e.to_string())),
        // A manager of the next version, on the same database, may know more fields.
        Kind::Variation => tolerant::read(&json).map(Segment::Tasks).map_err(|e| bad(e.to_string())),
    }
}

/// The segments last used.
#[derive(Default)]
pub struct Cache(VecDeque<((JobKey, u32), Arc<Segment>)>);

impl Cache {
    pub fn get(&mut self, job: JobKey, first: u32) -> Option<Arc<Segment>> {
        let at = self.0.iter().position(|(key, _)| *key == (job, first))?;
        let found = self.0.remove(at)?;
        let segment = found.1.clone();
        self.0.push_front(found);
        Some(segment)
    }

    pub fn put(&mut self, job: JobKey, first: u32, segment: Arc<Segment>) {
        self.0.push_front(((job, first), segment));
        self.0.truncate(CACHED_SEGMENTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn what_is_packed_unpacks(entries in prop::collection::vec("[a-zé\"\\\\ ]{0,9}", 0..2100)) {
            let packed = pack(&Spread::Entries(entries.clone()));
            let mut all = Vec::new();
            for (i, (first, bytes)) in packed.iter().enumerate() {
                prop_assert_eq!(*first, i as u32 * SEGMENT_TASKS);
                let Segment::Entries(some) = unpack(JobKey(1), Kind::Entry, bytes).unwrap() else { panic!() };
                all.extend(some);
            }
            prop_assert_eq!(all, entries);
        }

        #[test]
        fn what_tasks_have_of_their_own_is_found_again(words in prop::collection::vec("[a-zé ]{1,9}", 1..50)) {
            let own = |word: &String| Variation {
                command: vec![word.clone()],
                then: vec![vec![word.clone(), word.clone()]],
                env: [(word.clone(), word.clone())].into(),
                ..Variation::default()
            };
            let tasks: Vec<Variation> = words.iter().map(own).collect();
            let packed = pack(&Spread::Tasks(tasks.clone()));
            let segment = unpack(JobKey(1), Kind::Variation, &packed[0].1).unwrap();
            for (at, task) in tasks.iter().enumerate() {
                prop_assert_eq!(segment.get(at), Some(task.clone()));
            }
        }

        #[test]
        fn rubbish_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(unpack(JobKey(1), Kind::Entry, &bytes).is_err());
        }
    }
}
