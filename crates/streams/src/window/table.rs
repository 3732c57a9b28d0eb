//! The keys of one jumping window, and what is known of each so far.

use std::sync::Arc;

use super::keys::Keys;
use super::{Grouping, Refused};
use crate::aggregate::cells::Cells;
use crate::batch::{Batch, Column, ROWS_MAX};
use crate::operator::{Outlet, Piece, Port};
use crate::schema::{Kind, Schema};
use crate::state::{Reader, Saver, Unreadable, Writer};

#[derive(Debug)]
pub struct Table {
    keys: Keys,
    /// How many events each key has had.
    counts: Vec<u64>,
    cells: Vec<Cells>,
    saver: Option<Saver>,
}

/// What all tables of an operator have in common.
#[derive(Clone, Debug)]
pub struct Layout {
    pub grouping: Grouping,
    pub output: Arc<Schema>,
    key_kinds: Vec<Kind>,
    field_kinds: Vec<Option<Kind>>,
}

impl Layout {
    pub fn of(grouping: &Grouping, input: &Schema, output: Arc<Schema>) -> Self {
        Self {
            key_kinds: grouping.keys.iter().map(|key| input.fields[*key].kind).collect(),
            field_kinds: grouping.aggregates.iter().map(|a| a.field.map(|field| input.fields[field].kind)).collect(),
            grouping: grouping.clone(),
            output,
        }
    }

    pub fn keys(&self) -> Keys {
        Keys::of(&self.key_kinds)
    }

    /// Whether so many bytes may be held.
    pub fn check_bytes(&self, bytes: usize) -> Result<(), Refused> {
        let most = self.grouping.limits.bytes_max;
        if bytes > most { Err(Refused::Bytes(most)) } else { Ok(()) }
    }

    /// One column for each field of the output, without rows.
    pub fn columns(&self) -> Vec<Column> {
        self.output.fields.iter().map(|field| Column::new(field.kind)).collect()
    }
}

/// Sends rows out, and makes room for more.
pub fn flush(layout: &Layout, columns: &mut Vec<Column>, out: &mut Outlet) {
    if columns.first().is_none_or(Column::is_empty) {
        return;
    }
    let rows = std::mem::replace(columns, layout.columns());
    match Batch::of(layout.output.clone(), rows) {
        Ok(batch) => out.push(Piece::Rows(Port::Main, batch)),
        Err(why) => unreachable!("what a window says fits its own schema: {why}"),
    }
}

impl Table {
    pub fn of(layout: &Layout) -> Self {
        let aggregates = layout.grouping.aggregates.iter().zip(&layout.field_kinds);
        let cells = aggregates.map(|(aggregate, kind)| Cells::of(&aggregate.function, *kind)).collect();
        Self { keys: layout.keys(), counts: Vec::new(), cells, saver: None }
    }

    /// The number of each row's key, everything made ready for adding them.
    fn number(&mut self, layout: &Layout, batch: &Batch, to: &mut Vec<u32>) -> Result<(), Refused> {
        let Grouping { keys, limits, .. } = &layout.grouping;
        // Keys stay as long as the table, so no number is used twice.
        self.keys.number(batch, keys, limits.keys_max, to, &mut |_, _| {})?;
        if let Some(mut saver) = self.saver.take() {
            to.iter().for_each(|key| saver.before(*key, &|key, to| self.store_key(key, to)));
            self.saver = Some(saver);
        }
        if self.counts.len() < self.keys.len() {
            self.counts.resize(self.keys.len(), 0);
            self.cells.iter_mut().for_each(|cells| cells.resize(self.counts.len()));
        }
        Ok(())
    }

    /// What keys take, and what is held of their events.
    pub fn bytes(&self) -> usize {
        self.keys.bytes_held() + self.cells.iter().map(Cells::bytes).sum::<usize>()
    }

    /// Adds all rows of a batch.
    pub fn add(
        &mut self,
        layout: &Layout,
        batch: &Batch,
        times: Option<&[i64]>,
        scratch: &mut Vec<u32>,
    ) -> Result<(), Refused> {
        self.number(layout, batch, scratch)?;
        scratch.iter().for_each(|key| self.counts[*key as usize] += 1);
        for (cells, aggregate) in self.cells.iter_mut().zip(&layout.grouping.aggregates) {
            cells.add(scratch, aggregate.field.map(|field| batch.column(field)), times, 0..batch.rows());
        }
        Ok(())
    }

    /// Adds all rows of a batch, and each time that a key has had `size` of them, says what they make and begins anew.
    pub fn add_by_count(
        &mut self,
        layout: &Layout,
        batch: &Batch,
        size: u64,
        columns: &mut [Column],
        scratch: &mut Vec<u32>,
    ) -> Result<(), Refused> {
        self.number(layout, batch, scratch)?;
        let mut full = Vec::new();
        for (row, key) in scratch.iter().enumerate() {
            let count = &mut self.counts[*key as usize];
            *count += 1;
            if *count == size {
                *count = 0;
                full.push(row);
                self.keys.read(*key, &mut columns[..layout.grouping.keys.len()]);
            }
        }
        let columns = &mut columns[layout.grouping.keys.len()..];
        for ((cells, aggregate), to) in self.cells.iter_mut().zip(&layout.grouping.aggregates).zip(columns) {
            let column = aggregate.field.map(|field| batch.column(field));
            let mut from = 0;
            for row in &full {
                cells.add(scratch, column, None, from..row + 1);
                from = row + 1;
                let key = scratch[*row] as usize;
                cells.read(key, size, to);
                cells.reset(key);
            }
            cells.add(scratch, column, None, from..batch.rows());
        }
        Ok(())
    }

    /// All keys, by key.
    pub fn sorted(&self) -> Vec<u32> {
        self.keys.sorted()
    }

    /// What all events of these keys made. `span` is the start and end of a window by time.
    pub fn say(&self, layout: &Layout, numbers: &[u32], span: (i64, i64), out: &mut Outlet) {
        let keys = layout.grouping.keys.len();
        let mut columns = layout.columns();
        for numbers in numbers.chunks(ROWS_MAX) {
            numbers.iter().for_each(|number| self.keys.read(*number, &mut columns[..keys]));
            for (column, time) in columns[keys..].iter_mut().zip([span.0, span.1]) {
                if let Column::Time(to) = column {
                    to.resize(numbers.len(), time);
                }
            }
            for (cells, to) in self.cells.iter().zip(&mut columns[keys + 2..]) {
                for number in numbers {
                    cells.read(*number as usize, self.counts[*number as usize], to);
                }
            }
            flush(layout, &mut columns, out);
        }
    }

    fn store_key(&self, key: usize, to: &mut Writer) {
        self.keys.store(key, to);
        to.u64(self.counts[key]);
        self.cells.iter().for_each(|cells| cells.store(key, to));
    }

    /// A snapshot of what is here now is to be made.
    pub fn begin(&mut self) {
        self.saver = Some(Saver::of(self.keys.len()));
    }

    pub fn is_saving(&self) -> bool {
        self.saver.is_some()
    }

    /// Writes about so many keys of the snapshot; whether it is all there.
    pub fn advance(&mut self, keys: usize) -> bool {
        let Some(mut saver) = self.saver.take() else { return true };
        let done = saver.advance(keys, &|key, to| self.store_key(key, to));
        self.saver = Some(saver);
        done
    }

    /// All pieces of the snapshot.
    pub fn finish(&mut self) -> Vec<Vec<u8>> {
        let saver = self.saver.take().unwrap_or_else(|| Saver::of(self.keys.len()));
        saver.finish(&|key, to| self.store_key(key, to))
    }

    pub fn load(layout: &Layout, from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let mut table = Table::of(layout);
        for _ in 0..from.u64()? {
            table.keys.load(from)?;
            table.counts.push(from.u64()?);
            table.cells.iter_mut().try_for_each(|cells| cells.load(from))?;
        }
        Ok(table)
    }
}
