//! Events of a sliding window by time that are not in yet, by the end of the first window that they are in.
//!
//! They are written to a snapshot some at a time. What waits for an end is only added to, and goes as a whole, the first end first:
//! so what is not written yet is there as it was when the snapshot began, with more behind it, or is written just before it goes.

use std::collections::{BTreeMap, VecDeque};

use crate::aggregate::item::Item;
use crate::aggregate::slide::{EVENT_BYTES, cell_bytes};
use crate::batch::Column;
use crate::schema::Kind;
use crate::state::{Reader, Stored, Unreadable, Writer};

/// Rows of one piece of a snapshot.
const PIECE_ROWS: usize = 1_024;

#[derive(Debug)]
pub struct Waiting {
    kinds: Vec<Kind>,
    ends: BTreeMap<i64, Rows>,
    rows: usize,
    saving: Option<Saving>,
}

/// In the order in which they came, and of each the fields that are held.
#[derive(Debug)]
pub struct Rows {
    pub times: Vec<i64>,
    pub keys: Vec<u32>,
    pub columns: Vec<Column>,
}

/// A snapshot that is under way.
#[derive(Debug, Default)]
struct Saving {
    /// Ends, and how many rows waited for each.
    left: VecDeque<(i64, usize)>,
    /// Of the first of those, so many are written.
    written: usize,
    pieces: Vec<Vec<u8>>,
}

impl Rows {
    fn of(kinds: &[Kind]) -> Self {
        let columns = kinds.iter().map(|kind| Column::new(*kind)).collect();
        Self { times: Vec::new(), keys: Vec::new(), columns }
    }

    fn bytes(&self) -> usize {
        let row = |row: usize| self.columns.iter().map(|column| cell_bytes(column, row)).sum::<usize>();
        (0..self.times.len()).map(|n| EVENT_BYTES + row(n)).sum()
    }
}

impl Waiting {
    /// Of fields of these kinds.
    pub fn of(kinds: Vec<Kind>) -> Self {
        Self { kinds, ends: BTreeMap::new(), rows: 0, saving: None }
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn first_end(&self) -> Option<i64> {
        self.ends.keys().next().copied()
    }

    /// An event, whose fields are put at the ends of the columns.
    pub fn add(&mut self, end: i64, time: i64, key: u32) -> &mut [Column] {
        self.rows += 1;
        let rows = self.ends.entry(end).or_insert_with(|| Rows::of(&self.kinds));
        rows.times.push(time);
        rows.keys.push(key);
        &mut rows.columns
    }

    /// What waits for this end goes, and nothing waits for one before it.
    pub fn take(&mut self, end: i64) -> Option<Rows> {
        if let Some(saving) = &mut self.saving {
            while saving.left.front().is_some_and(|(first, _)| *first <= end) {
                saving.advance(&self.ends, PIECE_ROWS);
            }
        }
        let rows = self.ends.remove(&end)?;
        self.rows -= rows.times.len();
        Some(rows)
    }

    /// Begins a snapshot, in place of one that may be under way; how many ends there are is its beginning.
    pub fn begin(&mut self, head: &mut Writer) {
        head.count(self.ends.len());
        let left = self.ends.iter().map(|(end, rows)| (*end, rows.times.len())).collect();
        self.saving = Some(Saving { left, ..Saving::default() });
    }

    /// Writes about so many rows; whether nothing is left after that.
    pub fn advance(&mut self, rows: usize) -> bool {
        let Some(saving) = &mut self.saving else { return true };
        let mut written = 0;
        while written < rows && !saving.left.is_empty() {
            written += saving.advance(&self.ends, PIECE_ROWS.min(rows - written));
        }
        saving.left.is_empty()
    }

    /// What was written.
    pub fn finish(&mut self) -> Vec<Vec<u8>> {
        self.saving.take().map(|saving| saving.pieces).unwrap_or_default()
    }

    pub fn load(kinds: Vec<Kind>, from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let mut waiting = Self::of(kinds);
        for _ in 0..from.count()? {
            let (end, count) = (from.i64()?, from.count()?);
            for _ in 0..count {
                let (time, key) = (from.i64()?, from.u32()?);
                for column in waiting.add(end, time, key) {
                    if !Item::load(from)?.fits_into(column) {
                        return Err(Unreadable::Value);
                    }
                }
            }
        }
        Ok(waiting)
    }

    pub fn keys(&self) -> impl Iterator<Item = u32> {
        self.ends.values().flat_map(|rows| &rows.keys).copied()
    }

    /// What is held of all of them.
    pub fn bytes(&self) -> usize {
        self.ends.values().map(Rows::bytes).sum()
    }
}

impl Saving {
    /// Writes at most so many rows of the first end that is left. How many those were; one at least, so that this comes to an end.
    fn advance(&mut self, ends: &BTreeMap<i64, Rows>, most: usize) -> usize {
        let Some((end, count)) = self.left.front().copied() else { return most };
        let mut to = Writer::default();
        if self.written == 0 {
            to.i64(end);
            to.count(count);
        }
        let until = count.min(self.written + most.max(1));
        if let Some(Rows { times, keys, columns }) = ends.get(&end) {
            for row in self.written..until {
                to.i64(times[row]);
                to.u32(keys[row]);
                columns.iter().for_each(|column| Item::of(column, row).store(&mut to));
            }
        }
        self.pieces.push(to.into_bytes());
        let written = until - self.written;
        self.written = until;
        if until == count {
            self.left.pop_front();
            self.written = 0;
        }
        written.max(1)
    }
}
