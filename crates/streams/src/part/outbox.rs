//! What a part said and did not hand over yet: rows of one output, numbered as they were said, until they are cut into a record.

use std::sync::Arc;

use crate::batch::{Batch, ROWS_MAX};
use crate::graph::{Port, Spoken};
use crate::mark::{Numbering, Who};
use crate::record::{self, Times};
use crate::schema::Schema;
use crate::wire::What;

/// A record gets no more rows than it has with these, unless a single one is larger.
pub const RECORD_BYTES: usize = 256 << 10;
pub const RECORD_ROWS: usize = if cfg!(test) { 16 } else { 8_192 };
/// Watermarks of one record.
const RECORD_MARKS: usize = if cfg!(test) { 5 } else { 4_096 };

/// A record, for the logs of those who read this port: the same bytes for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub port: Port,
    pub to: Arc<[What]>,
    pub rows: u32,
    pub bytes: Vec<u8>,
}

/// What a word that was said is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    pub arrived_us: i64,
    pub caused_us: i64,
    pub taken_us: i64,
}

pub struct Outbox {
    port: Port,
    to: Arc<[What]>,
    who: Who,
    /// As of what was cut.
    cut: Numbering,
    /// As of what was said.
    said: Numbering,
    full: Vec<Gathered>,
    gathered: Gathered,
    bytes: usize,
}

/// What is to be one record.
struct Gathered {
    batch: Batch,
    /// By how many rows come before each.
    watermarks: Vec<(usize, i64)>,
    cause: Cause,
}

impl Gathered {
    fn new(schema: Arc<Schema>) -> Self {
        Self { batch: Batch::new(schema), watermarks: Vec::new(), cause: Cause::default() }
    }

    fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.watermarks.is_empty()
    }
}

impl Outbox {
    pub fn of(spoken: &Spoken, who: Who, schema: Arc<Schema>, numbering: Numbering) -> Self {
        let gathered = Gathered::new(schema);
        let to = spoken.to.clone().into();
        Self { port: spoken.port, to, who, cut: numbering, said: numbering, full: Vec::new(), gathered, bytes: 0 }
    }

    /// Goes on from a snapshot.
    pub fn begin_at(&mut self, numbering: Numbering) {
        (self.cut, self.said) = (numbering, numbering);
    }

    pub fn port(&self) -> Port {
        self.port
    }

    /// As of what was said, be it cut or not.
    pub fn numbering(&self) -> Numbering {
        self.said
    }

    pub fn rows(&mut self, batch: &Batch, cause: Cause) {
        let row_bytes = (batch.bytes() / batch.rows().max(1)).max(1);
        let most = (RECORD_BYTES / row_bytes).clamp(1, RECORD_ROWS.min(ROWS_MAX));
        let mut from = 0;
        while from < batch.rows() {
            let room = most.saturating_sub(self.gathered.batch.rows());
            if room == 0 || self.gathered.batch.bytes() >= RECORD_BYTES {
                self.close();
                continue;
            }
            let to = batch.rows().min(from + room);
            // Rows that were cut from batches of its own schema fit.
            if let Err(why) = self.gathered.batch.append_rows(batch, from..to) {
                unreachable!("what is said at a port fits its schema: {why}");
            }
            from = to;
        }
        self.gathered.cause = cause;
        self.said.count(batch.rows());
        self.bytes += batch.bytes();
    }

    pub fn watermark(&mut self, time: i64, cause: Cause) {
        if !self.said.tell(time) {
            return;
        }
        if self.gathered.watermarks.len() >= RECORD_MARKS {
            self.close();
        }
        let rows = self.gathered.batch.rows();
        self.gathered.cause = cause;
        // Of several at one place the last says it all.
        match self.gathered.watermarks.last_mut() {
            Some((before, last)) if *before == rows => *last = time,
            _ => self.gathered.watermarks.push((rows, time)),
        }
    }

    fn close(&mut self) {
        let empty = Gathered::new(self.gathered.batch.schema().clone());
        self.full.push(std::mem::replace(&mut self.gathered, empty));
    }

    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.gathered.is_empty()
    }

    /// Rows, and about how many bytes they have.
    pub fn waiting(&self) -> (u64, usize) {
        (self.said.next() - self.cut.next(), self.bytes)
    }

    /// All that was said, as records.
    pub fn cut(&mut self, sent_us: i64, out: &mut Vec<Said>) {
        if !self.gathered.is_empty() {
            self.close();
        }
        for Gathered { batch, watermarks, cause } in self.full.drain(..) {
            let header = self.cut.header(self.who, batch.rows() as u32, &watermarks);
            let Cause { arrived_us, caused_us, taken_us } = cause;
            let times = Times { sent_us, arrived_us, caused_us, taken_us };
            let bytes = record::rows(&header, &times, &batch);
            out.push(Said { port: self.port, to: self.to.clone(), rows: header.rows, bytes });
        }
        self.bytes = 0;
    }
}
