//! A sink, but for the other side of it: records become rows, each with the number by which the other side can tell whether it has
//! it already, what its topic or key is, and itself as JSON.

use std::collections::VecDeque;

use super::inbox::{Gap, Inbox, Word};
use super::{Counts, Heard, PartError, Position, fingerprint};
use crate::batch::{Batch, Column, Value, json};
use crate::graph::{Graph, Piece, Template, To};
use crate::mark::Place;
use crate::state::{self, Reader, Unreadable, Writer};
use crate::time;
use crate::wire::What;

/// What is to be handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkRow {
    pub place: Place,
    /// The topic, routing key or key with the event's fields in it; nothing where the sink has none.
    pub name: Option<String>,
    /// JSON: the event, or the one field that is kept.
    pub value: Vec<u8>,
    /// When the last event that went into it came into the system.
    pub arrived_us: i64,
}

pub struct SinkCore {
    fingerprint: u32,
    inbox: Inbox,
    name: Option<Template>,
    value: Option<usize>,
    counts: Counts,
}

impl SinkCore {
    /// A sink of a graph, from the beginning of its log.
    pub fn of(graph: &Graph, sink: usize) -> Self {
        let what = What::Sink(sink as u32);
        let (name, value) = match &graph.sinks[sink].to {
            To::Mqtt { topic, .. } => (Some(topic.clone()), None),
            To::Amqp { key, .. } => (Some(key.clone()), None),
            To::Kv { key, value } => (Some(key.clone()), *value),
            To::Webhook { .. } | To::Flow { .. } | To::File { .. } | To::Stdout => (None, None),
        };
        let fingerprint = fingerprint::of(graph, what);
        Self { fingerprint, inbox: Inbox::of(graph, what), name, value, counts: Counts::default() }
    }

    /// One that goes on from a snapshot, and how far the other side was then.
    pub fn restore(graph: &Graph, sink: usize, snapshot: &[u8]) -> Result<(Self, Position), Unreadable> {
        let mut core = Self::of(graph, sink);
        let mut from = Reader::new(state::open(core.fingerprint, snapshot)?);
        let position = from.bytes()?.to_vec();
        core.inbox.load(&mut from)?;
        from.end()?;
        Ok((core, position))
    }

    /// May be used once all rows up to now are where they belong.
    pub fn snapshot(&self, position: &[u8]) -> Vec<u8> {
        let mut to = Writer::default();
        to.bytes(position);
        self.inbox.store(&mut to);
        state::seal(self.fingerprint, to.into_bytes())
    }

    pub fn next_offset(&self) -> u64 {
        self.inbox.next()
    }

    /// Goes on there although what is between is gone. What that held is lost.
    pub fn skip_to(&mut self, offset: u64) {
        self.inbox.skip_to(offset);
    }

    /// The next record of the log; its new rows are added to `rows`.
    pub fn hear(&mut self, offset: u64, record: &[u8], rows: &mut Vec<SinkRow>) -> Result<Heard, PartError> {
        let mut words = VecDeque::new();
        let heard = self.inbox.hear(offset, record, &mut words)?;
        self.counts.events_in += heard.fresh;
        self.counts.known += heard.known;
        self.counts.lost += heard.lost;
        self.counts.passed_over += u64::from(heard.passed_over.is_some());
        for word in words {
            if let Word::Rows { batch, place, times, .. } = word {
                self.rows_of(&batch, place, times.arrived_us, rows);
            }
        }
        Ok(heard)
    }

    pub(super) fn rows_of(&self, batch: &Batch, place: Place, arrived_us: i64, rows: &mut Vec<SinkRow>) {
        let mut lines = Vec::new();
        json::write(batch, &mut lines);
        let mut lines = lines.split(|byte| *byte == b'\n');
        for row in 0..batch.rows() {
            let line = lines.next().unwrap_or_default();
            let value = match self.value {
                Some(field) => json::value(batch.column(field), row),
                None => line.to_vec(),
            };
            let name = self.name.as_ref().map(|name| name.fill(batch, row));
            rows.push(SinkRow { place: Place { row: place.row + row as u32, ..place }, name, value, arrived_us });
        }
    }

    pub fn has_ended(&self) -> bool {
        self.inbox.has_ended()
    }

    /// What it waits for although it has read what comes after.
    pub fn gap(&self) -> Option<Gap> {
        self.inbox.gap()
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }
}

impl Template {
    /// With what an event has in its fields.
    pub fn fill(&self, batch: &Batch, row: usize) -> String {
        let mut text = String::with_capacity(self.text.len());
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Field(field) => match batch.column(*field) {
                    Column::Text(all) => text.push_str(all.get(row)),
                    column => text.push_str(&plain(&column.get(row))),
                },
            }
        }
        text
    }
}

/// As `text(x)` in an expression has it.
fn plain(value: &Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Bool(value) => value.to_string(),
        Value::Text(value) => value.clone(),
        Value::Time(at) => time::format(*at).unwrap_or_else(|| at.to_string()),
    }
}
