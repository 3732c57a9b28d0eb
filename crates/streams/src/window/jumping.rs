//! Jumping windows by time: a table for each span that is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::{Layout, Table};
use super::watermark::{BEGINNING, END, Watermarks};
use super::{Grouping, Refused, Window, WindowError, definition_of, first_end};
use crate::batch::Batch;
use crate::operator::{Operator, Outlet, Piece, Port};
use crate::schema::Schema;
use crate::state::{self, Frame, Reader, Unreadable, Writer};

pub struct Jumping {
    layout: Layout,
    definition: u32,
    field: usize,
    size_us: i64,
    lateness_us: i64,
    watermarks: Watermarks,
    /// Windows that end by then have spoken.
    closed: i64,
    /// By their end.
    open: BTreeMap<i64, Table>,
    /// What those hold.
    bytes: usize,
    /// One that speaks, and did not say everything yet.
    speaks: Option<Speaks>,
    /// What is said once all of them have spoken.
    then: Option<i64>,
    snapshot: Option<Snapshot>,
    frame: Option<Frame>,
    scratch: Vec<u32>,
}

struct Speaks {
    end: i64,
    table: Table,
    /// Its keys, by key, and how many of them have been said.
    numbers: Vec<u32>,
    said: usize,
}

/// One that is under way: what comes before the windows, and those that are written already.
struct Snapshot {
    head: Vec<u8>,
    tables: BTreeMap<i64, Option<Vec<Vec<u8>>>>,
}

impl Jumping {
    pub fn of(grouping: &Grouping, input: &Schema, inputs: usize) -> Result<Self, WindowError> {
        let layout = Layout::of(grouping, input, Arc::new(grouping.output(input)?));
        let (field, size_us, lateness_us) = match grouping.window {
            Window::Time { field, size_us, lateness_us, .. } => (field, size_us, lateness_us),
            Window::Count { .. } => return Err(WindowError::Zero),
        };
        Ok(Self {
            layout,
            definition: definition_of(grouping, input),
            field,
            size_us,
            lateness_us,
            watermarks: Watermarks::of(inputs),
            closed: BEGINNING,
            open: BTreeMap::new(),
            bytes: 0,
            speaks: None,
            then: None,
            snapshot: None,
            frame: None,
            scratch: Vec::new(),
        })
    }

    /// Adds events that are all in the window with this end, which is open.
    fn add(&mut self, end: i64, batch: &Batch) -> Result<(), Refused> {
        let Self { layout, open, bytes, scratch, .. } = self;
        let most = layout.grouping.limits.open_max;
        if open.len() >= most && !open.contains_key(&end) {
            return Err(Refused::Open(most));
        }
        let table = open.entry(end).or_insert_with(|| Table::of(layout));
        let before = table.bytes();
        let added = table.add(layout, batch, batch.column(self.field).ints(), scratch);
        *bytes = *bytes - before + table.bytes();
        added.and_then(|()| layout.check_bytes(*bytes))
    }
}

impl Operator for Jumping {
    fn push(&mut self, _: usize, batch: Batch, out: &mut Outlet) -> Result<(), Refused> {
        let times = batch.column(self.field).ints().unwrap_or_default();
        let (Some(least), Some(greatest)) = (times.iter().min(), times.iter().max()) else { return Ok(()) };
        let first = first_end(*least, self.size_us);
        if first == first_end(*greatest, self.size_us) {
            if first > self.closed {
                return self.add(first, &batch);
            }
            out.push(Piece::Rows(Port::Late, batch));
            return Ok(());
        }
        let mut late = Vec::new();
        let mut windows: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (row, time) in (0..).zip(times) {
            let end = first_end(*time, self.size_us);
            if end > self.closed { windows.entry(end).or_default().push(row) } else { late.push(row) }
        }
        for (end, rows) in windows {
            self.add(end, &batch.take(&rows))?;
        }
        if !late.is_empty() {
            out.push(Piece::Rows(Port::Late, batch.take(&late)));
        }
        Ok(())
    }

    fn watermark(&mut self, input: usize, time: i64, out: &mut Outlet) -> Result<(), Refused> {
        self.begin_watermark(input, time, usize::MAX, out).map(drop)
    }

    fn begin_watermark(&mut self, input: usize, time: i64, rows: usize, out: &mut Outlet) -> Result<bool, Refused> {
        let Some(now) = self.watermarks.tell(input, time) else { return Ok(false) };
        self.closed = now.saturating_sub(self.lateness_us).max(self.closed);
        // Who will say no more says so as it is.
        let until = self.closed.saturating_sub(self.size_us).saturating_add(1);
        self.then = Some(if now == END { END } else { until });
        self.go_on(rows, out)
    }

    fn go_on(&mut self, rows: usize, out: &mut Outlet) -> Result<bool, Refused> {
        let mut left = rows;
        loop {
            if self.speaks.is_none() {
                let Some(first) = self.open.first_entry().filter(|first| *first.key() <= self.closed) else { break };
                let (end, mut table) = first.remove_entry();
                if let Some(snapshot) = &mut self.snapshot
                    && table.is_saving()
                {
                    snapshot.tables.insert(end, Some(table.finish()));
                }
                self.bytes -= table.bytes();
                let numbers = table.sorted();
                self.speaks = Some(Speaks { end, table, numbers, said: 0 });
            }
            let Some(speaks) = &mut self.speaks else { break };
            let to = speaks.numbers.len().min(speaks.said.saturating_add(left));
            let span = (speaks.end.saturating_sub(self.size_us), speaks.end);
            speaks.table.say(&self.layout, &speaks.numbers[speaks.said..to], span, out);
            left -= to - speaks.said;
            speaks.said = to;
            if to < speaks.numbers.len() {
                return Ok(true);
            }
            self.speaks = None;
        }
        out.extend(self.then.take().map(Piece::Watermark));
        Ok(false)
    }

    fn begin_snapshot(&mut self) {
        let mut head = Writer::default();
        self.watermarks.store(&mut head);
        head.i64(self.closed);
        head.u64(self.open.len() as u64);
        self.open.values_mut().for_each(Table::begin);
        let tables = self.open.keys().map(|end| (*end, None)).collect();
        (self.snapshot, self.frame) = (Some(Snapshot { head: head.into_bytes(), tables }), None);
    }

    fn advance_snapshot(&mut self, keys: usize) -> Option<Vec<u8>> {
        if let Some(Snapshot { tables, .. }) = &mut self.snapshot {
            let mut left = tables.values().filter(|written| written.is_none()).count();
            for (end, written) in tables.iter_mut().filter(|(_, written)| written.is_none()) {
                let table = self.open.get_mut(end)?;
                if !table.advance(keys) {
                    return None;
                }
                *written = Some(table.finish());
                left -= 1;
                // A table a time is little enough, and what is left of the allowance need not be counted.
                if left > 0 && keys < usize::MAX {
                    return None;
                }
            }
            let Snapshot { head, tables } = self.snapshot.take()?;
            let mut pieces = vec![head];
            for (end, table) in tables {
                pieces.push(end.to_le_bytes().to_vec());
                pieces.extend(table.unwrap_or_default());
            }
            self.frame = Some(Frame::of(self.definition, pieces));
        }
        Frame::go_on(&mut self.frame, keys)
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), Unreadable> {
        let mut from = Reader::new(state::open(self.definition, snapshot)?);
        let mut watermarks = self.watermarks.clone();
        watermarks.load(&mut from)?;
        let closed = from.i64()?;
        let mut open = BTreeMap::new();
        for _ in 0..from.u64()? {
            open.insert(from.i64()?, Table::load(&self.layout, &mut from)?);
        }
        from.end()?;
        self.bytes = open.values().map(Table::bytes).sum();
        (self.watermarks, self.closed, self.open) = (watermarks, closed, open);
        (self.snapshot, self.frame, self.speaks, self.then) = (None, None, None, None);
        Ok(())
    }
}
