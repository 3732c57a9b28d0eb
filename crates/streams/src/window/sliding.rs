//! Sliding windows by time. Events wait until time has passed the end of the first window that they are in; then they come in,
//! in the order of their times, and go when the window has moved past them. So each costs the same, however long the window.

mod waiting;

use std::sync::Arc;

use self::waiting::{Rows, Waiting};
use super::slides::Slides;
use super::table::{Layout, flush};
use super::watermark::{BEGINNING, END, Watermarks};
use super::{Grouping, Refused, Window, WindowError, definition_of, first_end};
use crate::aggregate::slide::{EVENT_BYTES, Plan, cell_bytes};
use crate::batch::{Batch, Column, ROWS_MAX};
use crate::operator::{Operator, Outlet, Piece, Port};
use crate::schema::Schema;
use crate::state::{self, Frame, Reader, Unreadable, Writer};

/// Rows that wait are written to a snapshot in the time of a key, so many.
const KEY_ROWS: usize = 16;

pub struct Sliding {
    layout: Layout,
    definition: u32,
    field: usize,
    size_us: i64,
    every_us: i64,
    lateness_us: i64,
    watermarks: Watermarks,
    /// Windows that end by then have spoken.
    closed: i64,
    /// The end of the last window that spoke.
    spoken: i64,
    slides: Slides,
    waiting: Waiting,
    /// Events that are in or wait, and the bytes of what is held of them.
    held: usize,
    bytes: usize,
    /// Keys in order, while there are no others.
    order: Option<(u64, Arc<[u32]>)>,
    /// The window moves to this end, and did not say everything yet.
    moves: Option<Moves>,
    /// What is said once it has moved as far as it goes.
    then: Option<i64>,
    head: Option<Vec<u8>>,
    frame: Option<Frame>,
    scratch: Vec<u32>,
}

struct Moves {
    end: i64,
    /// Keys, by key, and how many of them it has moved for.
    order: Arc<[u32]>,
    moved: usize,
}

impl Sliding {
    pub fn of(grouping: &Grouping, input: &Schema, inputs: usize) -> Result<Self, WindowError> {
        let layout = Layout::of(grouping, input, Arc::new(grouping.output(input)?));
        let (field, size_us, every_us, lateness_us) = match grouping.window {
            Window::Time { field, size_us, every_us, lateness_us } => (field, size_us, every_us, lateness_us),
            Window::Count { .. } => return Err(WindowError::Zero),
        };
        let plan = Plan::of(&grouping.aggregates, input);
        Ok(Self {
            definition: definition_of(grouping, input),
            field,
            size_us,
            every_us,
            lateness_us,
            watermarks: Watermarks::of(inputs),
            closed: BEGINNING,
            spoken: BEGINNING,
            waiting: Waiting::of(plan.fields().iter().map(|field| input.fields[*field].kind).collect()),
            slides: Slides::of(&layout, plan),
            held: 0,
            bytes: 0,
            order: None,
            moves: None,
            then: None,
            head: None,
            frame: None,
            scratch: Vec::new(),
            layout,
        })
    }

    /// The end of the next window that holds anything, if time has passed it.
    fn next_end(&self) -> Option<i64> {
        let end = match self.held > self.waiting.rows() {
            true => self.spoken.saturating_add(self.every_us),
            false => self.waiting.first_end()?,
        };
        // At the end of all time there is no next one.
        (end <= self.closed && end > self.spoken).then_some(end)
    }

    /// The window moves to this end: what waited for that comes in.
    fn move_to(&mut self, end: i64) {
        if let Some(Rows { times, keys, columns }) = self.waiting.take(end) {
            let mut rows: Vec<usize> = (0..times.len()).collect();
            rows.sort_by_key(|row| times[*row]);
            let columns: Vec<&Column> = columns.iter().collect();
            for row in rows {
                self.slides.touch(keys[row]);
                let group = &mut self.slides.groups[keys[row] as usize];
                group.waiting -= 1;
                group.times.push_back(times[row]);
                group.slide.push(&self.slides.plan, &columns, row);
            }
        }
        self.moves = Some(Moves { end, order: self.in_order(), moved: 0 });
    }

    /// For so many keys more, what is before the window goes, and what it holds then is said. How many keys that were.
    fn say_some(&mut self, most: usize, out: &mut Outlet) -> usize {
        let Some(Moves { end, order, moved }) = &self.moves else { return 0 };
        let (end, order, from) = (*end, order.clone(), *moved);
        let to = order.len().min(from.saturating_add(most));
        let (start, of_key) = (end.saturating_sub(self.size_us), self.layout.grouping.keys.len());
        let mut columns = self.layout.columns();
        for key in &order[from..to] {
            let key = *key;
            let group = &self.slides.groups[key as usize];
            let goes = group.times.front().is_some_and(|time| *time < start);
            if goes || group.times.is_empty() {
                self.slides.touch(key);
            }
            let group = &mut self.slides.groups[key as usize];
            while group.times.front().is_some_and(|time| *time < start) {
                group.times.pop_front();
                self.bytes -= group.slide.first_bytes();
                group.slide.pop(&self.slides.plan);
                self.held -= 1;
            }
            if group.slide.count() > 0 {
                self.slides.keys.read(key, &mut columns[..of_key]);
                for (column, time) in columns[of_key..].iter_mut().zip([start, end]) {
                    if let Column::Time(to) = column {
                        to.push(time);
                    }
                }
                group.slide.read(&self.slides.plan, &mut columns[of_key + 2..]);
                if columns[0].len() == ROWS_MAX {
                    flush(&self.layout, &mut columns, out);
                }
            } else if group.waiting == 0 {
                self.slides.remove(key);
            }
        }
        flush(&self.layout, &mut columns, out);
        match &mut self.moves {
            Some(moves) if to < order.len() => moves.moved = to,
            _ => (self.moves, self.spoken) = (None, end),
        }
        to - from
    }

    /// All keys, by key.
    fn in_order(&mut self) -> Arc<[u32]> {
        let changes = self.slides.keys.changes();
        match &self.order {
            Some((then, order)) if *then == changes => order.clone(),
            _ => {
                let order: Arc<[u32]> = self.slides.keys.sorted().into();
                self.order = Some((changes, order.clone()));
                order
            }
        }
    }
}

impl Operator for Sliding {
    fn push(&mut self, _: usize, batch: Batch, out: &mut Outlet) -> Result<(), Refused> {
        let times = batch.column(self.field).ints().unwrap_or_default();
        let in_time: Vec<bool> = times.iter().map(|time| first_end(*time, self.every_us) > self.closed).collect();
        let batch = if in_time.contains(&false) {
            out.push(Piece::Rows(Port::Late, batch.filter(&in_time.iter().map(|fine| !fine).collect::<Vec<_>>())));
            batch.filter(&in_time)
        } else {
            batch
        };
        self.held += batch.rows();
        if self.held > self.layout.grouping.limits.events_max {
            return Err(Refused::Events(self.layout.grouping.limits.events_max));
        }
        self.slides.number(&self.layout, &batch, &mut self.scratch)?;
        let times = batch.column(self.field).ints().unwrap_or_default();
        for (row, (time, key)) in times.iter().zip(&self.scratch).enumerate() {
            self.bytes += EVENT_BYTES;
            let columns = self.waiting.add(first_end(*time, self.every_us), *time, *key);
            for (field, to) in self.slides.plan.fields().iter().zip(columns) {
                self.bytes += cell_bytes(batch.column(*field), row);
                copy(batch.column(*field), row, to);
            }
            self.slides.groups[*key as usize].waiting += 1;
        }
        self.layout.check_bytes(self.bytes + self.slides.keys.bytes_held())
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
            if self.moves.is_none() {
                let Some(end) = self.next_end() else { break };
                self.move_to(end);
            }
            left = left.saturating_sub(self.say_some(left.max(1), out).max(1));
            if left == 0 && (self.moves.is_some() || self.next_end().is_some()) {
                return Ok(true);
            }
        }
        out.extend(self.then.take().map(Piece::Watermark));
        Ok(false)
    }

    fn begin_snapshot(&mut self) {
        let mut head = Writer::default();
        self.watermarks.store(&mut head);
        head.i64(self.closed);
        head.i64(self.spoken);
        head.u64(self.held as u64);
        self.waiting.begin(&mut head);
        (self.head, self.frame) = (Some(head.into_bytes()), None);
        self.slides.begin();
    }

    fn advance_snapshot(&mut self, keys: usize) -> Option<Vec<u8>> {
        if self.head.is_some() {
            if !self.waiting.advance(keys.saturating_mul(KEY_ROWS)) {
                return None;
            }
            let written = self.slides.advance(keys)?;
            let pieces = std::iter::once(self.head.take()?).chain(self.waiting.finish()).chain(written).collect();
            self.frame = Some(Frame::of(self.definition, pieces));
        }
        Frame::go_on(&mut self.frame, keys)
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), Unreadable> {
        let mut from = Reader::new(state::open(self.definition, snapshot)?);
        let mut watermarks = self.watermarks.clone();
        watermarks.load(&mut from)?;
        let (closed, spoken) = (from.i64()?, from.i64()?);
        let held = usize::try_from(from.u64()?).map_err(|_| Unreadable::Value)?;
        let waiting = Waiting::load(self.waiting.kinds().to_vec(), &mut from)?;
        let slides = Slides::load(&self.layout, self.slides.plan.clone(), &mut from)?;
        from.end()?;
        if waiting.keys().any(|key| !slides.keys.is_live(key)) {
            return Err(Unreadable::Value);
        }
        (self.watermarks, self.closed, self.spoken, self.held) = (watermarks, closed, spoken, held);
        self.bytes = slides.bytes() + waiting.bytes();
        (self.waiting, self.slides, self.order, self.head, self.frame) = (waiting, slides, None, None, None);
        (self.moves, self.then) = (None, None);
        Ok(())
    }
}

fn copy(from: &Column, row: usize, to: &mut Column) {
    match (from, to) {
        (Column::Int(from), Column::Int(to)) | (Column::Time(from), Column::Time(to)) => to.push(from[row]),
        (Column::Float(from), Column::Float(to)) => to.push(from[row]),
        (Column::Bool(from), Column::Bool(to)) => to.push(from[row]),
        (Column::Text(from), Column::Text(to)) => to.push(from.get(row)),
        (from, to) => unreachable!("a {} in a column of {}", from.kind(), to.kind()),
    }
}

#[cfg(test)]
mod tests;
