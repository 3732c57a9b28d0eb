//! Events in JSON: one object an event, by themselves, one a line, or in an array.
//!
//! | kind | is written | is read |
//! |---|---|---|
//! | int | `7` | a number without a fraction, of 64 bits |
//! | float | `7.0`, `"NaN"`, `"inf"`, `"-inf"` | any number, and those texts |
//! | bool | `true` | the same |
//! | text | `"…"` | of at most 32 KiB |
//! | time | `"2026-11-16T15:50:34.123456Z"` | RFC 3339, or a number of microseconds since 1970 |
//!
//! Fields that the schema does not have are passed over; a field that is missing, there twice, `null` or of another kind
//! makes the event a [`Misfit`]. A misfit never stops those around it.

mod events;
mod object;

use std::io::Write;
use std::sync::Arc;

pub use self::events::is_cut_off;
use self::events::{Events, Place};
use super::{Batch, Column, ROWS_MAX, TEXT_BYTES_MAX, cut};
use crate::schema::Schema;
use crate::time;

/// How much of an event that does not fit is given back.
pub const MISFIT_BYTES_MAX: usize = TEXT_BYTES_MAX;
/// How many are given back of one message; the rest is only counted.
pub const MISFITS_MAX: usize = 1_000;

/// An event that does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// As it came, cut where it is very long.
    pub event: String,
    pub why: String,
}

/// Makes columns of events, many at once.
///
/// ```
/// use mutirao_streams::batch::json::Rows;
/// use mutirao_streams::{Kind, Schema};
///
/// let schema = Schema::of([("meter", Kind::Text), ("volts", Kind::Float)]);
/// let mut rows = Rows::new(schema.into());
/// rows.read(br#"{"meter": "a", "volts": 219.5} {"meter": "b"}"#);
/// let read = rows.take();
/// assert_eq!(read.batch.rows(), 1);
/// assert_eq!(read.misfits[0].why, "it lacks the field \"volts\"");
/// ```
pub struct Rows {
    batch: Batch,
    misfits: Vec<Misfit>,
    /// No more than so many are kept, of this message and those before it.
    misfits_room: usize,
    misfits_total: u64,
    /// In the message of which a rest was left.
    place: Place,
}

/// What was read since it was last asked for.
#[derive(Clone, Debug)]
pub struct Read {
    pub batch: Batch,
    pub misfits: Vec<Misfit>,
    /// With those that were not given back.
    pub misfits_total: u64,
}

impl Rows {
    pub fn new(schema: Arc<Schema>) -> Self {
        let (batch, place) = (Batch::new(schema), Place::default());
        Self { batch, misfits: Vec::new(), misfits_room: 0, misfits_total: 0, place }
    }

    pub fn rows(&self) -> usize {
        self.batch.rows()
    }

    /// How many misfits there are to be given back.
    pub fn misfits(&self) -> usize {
        self.misfits.len()
    }

    /// Reads the events of one message. Says what is left of it: something only when the batch is full and has to be
    /// taken before the rest is read.
    pub fn read<'a>(&mut self, message: &'a [u8]) -> &'a [u8] {
        self.misfits_room = self.misfits.len() + MISFITS_MAX;
        let mut events = Events::at(message, std::mem::take(&mut self.place));
        // That a list did not end is said once nothing is left.
        while self.batch.rows() < ROWS_MAX || events.rest().is_empty() {
            match events.next() {
                None => return &[],
                Some(Ok(event)) => {
                    if let Err(why) = self.event(event) {
                        self.misfit(event, why);
                    }
                }
                Some(Err((rubbish, why))) => self.misfit(rubbish, why.into()),
            }
        }
        self.place = events.place();
        events.rest()
    }

    fn event(&mut self, event: &[u8]) -> Result<(), String> {
        let rows = self.batch.rows;
        let Batch { schema, columns, .. } = &mut self.batch;
        let read = object::read(event, schema, columns, rows);
        match read {
            Ok(()) => self.batch.rows += 1,
            Err(_) => columns.iter_mut().for_each(|column| column.truncate(rows)),
        }
        read
    }

    fn misfit(&mut self, event: &[u8], why: String) {
        self.misfits_total += 1;
        if self.misfits.len() < self.misfits_room {
            let shown = &event[..event.len().min(MISFIT_BYTES_MAX)];
            let event = cut(&String::from_utf8_lossy(shown), MISFIT_BYTES_MAX).to_owned();
            self.misfits.push(Misfit { event, why });
        }
    }

    /// Gives what was read, and begins anew.
    pub fn take(&mut self) -> Read {
        let empty = Batch::with_capacity(self.batch.schema.clone(), self.batch.rows);
        Read {
            batch: std::mem::replace(&mut self.batch, empty),
            misfits: std::mem::take(&mut self.misfits),
            misfits_total: std::mem::take(&mut self.misfits_total),
        }
    }
}

/// Adds each row as an object on a line of its own.
pub fn write(batch: &Batch, out: &mut Vec<u8>) {
    let names: Vec<String> = batch.schema().names().map(|name| format!("{}:", quoted(name))).collect();
    for row in 0..batch.rows() {
        out.push(b'{');
        for (n, (column, name)) in batch.columns().iter().zip(&names).enumerate() {
            if n > 0 {
                out.push(b',');
            }
            out.extend_from_slice(name.as_bytes());
            cell(column, row, out);
        }
        out.extend_from_slice(b"}\n");
    }
}

/// One cell.
pub fn value(column: &Column, row: usize) -> Vec<u8> {
    let mut out = Vec::new();
    cell(column, row, &mut out);
    out
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn cell(column: &Column, row: usize, out: &mut Vec<u8>) {
    // Writing to a vector does not fail.
    let _ = match column {
        Column::Int(all) => write!(out, "{}", all[row]),
        Column::Float(all) if all[row].is_finite() => serde_json::to_writer(out, &all[row]).map_err(Into::into),
        Column::Float(all) => write!(out, "\"{}\"", all[row]),
        Column::Bool(all) => write!(out, "{}", all[row]),
        Column::Text(all) => serde_json::to_writer(out, all.get(row)).map_err(Into::into),
        Column::Time(all) => match time::format(all[row]) {
            Some(text) => write!(out, "\"{text}\""),
            None => write!(out, "{}", all[row]),
        },
    };
}

#[cfg(test)]
mod tests;
