//! How a part reads its log: each record once, of each what is new, in an order that all readers of the log agree on.
//!
//! A record that is damaged is passed over, counted, and told. Where another replica says the same, its copy fills the gap: until
//! then, and up to a bound, what came behind the gap is held. Where there is none, or the bound is reached, the rows between are
//! lost, and that is told too. All of it depends on the log alone, so replicas lose the same.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::batch::Batch;
use crate::graph::{Graph, Port};
use crate::mark::{Fresh, Marks, Place, Untaken};
use crate::record::{self, Record, Times};
use crate::schema::Schema;
use crate::state::{Reader, Unreadable, Writer};
use crate::window::watermark::{BEGINNING, END};
use crate::wire::What;

/// The most records that are held behind a gap, and their bytes.
pub const HELD_MAX: usize = 64;
pub const HELD_BYTES_MAX: usize = 16 << 20;

/// What the log no longer holds was not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("records {wanted} to {found} are no longer in the log: begin from a newer snapshot")]
pub struct Trimmed {
    pub wanted: u64,
    pub found: u64,
}

/// What became of a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// Of a record of events, be they new or not.
    pub facts: Option<Facts>,
    /// Rows that are new.
    pub fresh: u64,
    /// Rows of another copy that were known.
    pub known: u64,
    /// Rows that nobody has any more.
    pub lost: u64,
    /// Why the record was passed over.
    pub passed_over: Option<String>,
    /// A source that has something to say, and says only that.
    pub not_silent: Option<Port>,
}

/// What is held waits for these events of a port: another copy may have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub port: Port,
    pub from: u64,
    pub to: u64,
}

/// What a record says about the replica that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub port: Port,
    pub from: Option<What>,
    pub replica: u32,
    pub rows: u32,
    pub times: Times,
}

/// How long a replica took, by the document's definition: until the next one had it. Microseconds; clocks that differ make no
/// negative ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// From when what it reads was sent to when the next one received what it made of it.
    pub latency_us: u64,
    /// Of that, until it took it in hand, and from then on.
    pub wait_us: u64,
    pub service_us: u64,
    /// Since the last event came into the system.
    pub whole_us: u64,
}

impl Facts {
    /// Given when this record was received.
    pub fn latency(&self, received_us: i64) -> Latency {
        let since = |from: i64, to: i64| u64::try_from(to.saturating_sub(from)).unwrap_or(0);
        let Times { caused_us, taken_us, arrived_us, .. } = self.times;
        Latency {
            latency_us: since(caused_us, received_us),
            wait_us: since(caused_us, taken_us),
            service_us: since(taken_us, received_us),
            whole_us: since(arrived_us, received_us),
        }
    }
}

/// What is to be done, in order.
#[derive(Clone, Debug)]
pub enum Word {
    /// `place` is that of the first row.
    Rows {
        port: Port,
        batch: Batch,
        place: Place,
        times: Times,
    },
    Time {
        port: Port,
        time: i64,
        times: Times,
    },
}

struct Upstream {
    port: Port,
    from: Option<What>,
    schema: Arc<Schema>,
    replicas: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    offset: u64,
    record: Vec<u8>,
}

pub struct Inbox {
    upstreams: BTreeMap<u32, Upstream>,
    /// The offset that is read next.
    next: u64,
    marks: Marks,
    held: Vec<Held>,
}

impl Inbox {
    /// Of whoever hears these ports.
    pub fn of(graph: &Graph, what: What) -> Self {
        let upstream = |port: Port| {
            let from = graph.speaker(port);
            let replicas = match from {
                Some(What::Stage(n)) => graph.stages[n as usize].replicas,
                _ => 1,
            };
            (port.number(), Upstream { port, from, schema: graph.flows(port), replicas })
        };
        let upstreams = graph.hears(what).into_iter().map(upstream).collect();
        Self { upstreams, next: 0, marks: Marks::default(), held: Vec::new() }
    }

    pub fn next(&self) -> u64 {
        self.next
    }

    /// Goes on there, and gives up what is between.
    pub fn skip_to(&mut self, offset: u64) {
        self.next = self.next.max(offset);
    }

    pub fn time(&self, port: Port) -> i64 {
        self.marks.time(port.number())
    }

    /// What the first record that is held waits for.
    pub fn gap(&self) -> Option<Gap> {
        self.held.iter().find_map(|held| {
            let Ok(Record::Rows(rows)) = record::read(&held.record) else { return None };
            let port = self.upstreams.get(&rows.header.upstream)?.port;
            match self.marks.look(&rows.header) {
                Err(Untaken::Missing { wanted, found, .. }) => Some(Gap { port, from: wanted, to: found }),
                _ => None,
            }
        })
    }

    /// Whether nothing more will come.
    pub fn has_ended(&self) -> bool {
        self.upstreams.keys().all(|upstream| self.marks.time(*upstream) == END)
    }

    /// The next record of the log. One that was read already is nothing.
    pub fn hear(&mut self, offset: u64, record: &[u8], to: &mut VecDeque<Word>) -> Result<Heard, Trimmed> {
        if offset < self.next {
            return Ok(Heard::default());
        }
        if offset > self.next {
            return Err(Trimmed { wanted: self.next, found: offset });
        }
        self.next = offset + 1;
        let mut heard = Heard::default();
        match record::read(record) {
            Err(why) => heard.passed_over = Some(why.to_string()),
            Ok(Record::Tick(tick)) => match self.upstreams.get(&tick.upstream) {
                None => heard.passed_over = Some(unknown(tick.upstream)),
                Some(upstream) => {
                    heard.not_silent = (tick.time == BEGINNING).then_some(upstream.port);
                    if self.marks.tick(tick.upstream, tick.time) {
                        let sent = tick.sent_us;
                        let times = Times { sent_us: sent, arrived_us: sent, caused_us: sent, taken_us: sent };
                        to.push_back(Word::Time { port: upstream.port, time: tick.time, times });
                    }
                }
            },
            Ok(Record::Rows(rows)) => self.rows(offset, record, &rows, false, &mut heard, to),
        }
        Ok(heard)
    }

    fn rows(
        &mut self,
        offset: u64,
        record: &[u8],
        rows: &record::Rows<'_>,
        although: bool,
        heard: &mut Heard,
        to: &mut VecDeque<Word>,
    ) {
        let record::Rows { header, times, .. } = rows;
        let Some(upstream) = self.upstreams.get(&header.upstream) else {
            heard.passed_over = Some(unknown(header.upstream));
            return;
        };
        let Upstream { port, from, schema, replicas } = upstream;
        if heard.facts.is_none() {
            let (port, from, replica, rows) = (*port, *from, header.replica, header.rows);
            heard.facts = Some(Facts { port, from, replica, rows, times: *times });
        }
        let missing = match self.marks.look(header) {
            Ok(fresh) if fresh.is_empty() => {
                heard.known += u64::from(header.rows);
                let fresh = self.marks.take_what_is_there(header);
                self.say(*port, None, &fresh, offset, *times, to);
                return;
            }
            Ok(_) => 0,
            Err(Untaken::Missing { wanted, found, .. }) => {
                if *replicas > 1 && !although {
                    self.held.push(Held { offset, record: record.to_vec() });
                    if self.holds_too_much() {
                        self.give_up(heard, to);
                    }
                    return;
                }
                found - wanted
            }
            Err(why) => {
                heard.passed_over = Some(why.to_string());
                return;
            }
        };
        // Read before the mark is moved: of a damaged one another copy may come.
        let batch = match rows.events(schema) {
            Ok(batch) => batch,
            Err(why) => {
                heard.passed_over = Some(why.to_string());
                return;
            }
        };
        heard.lost += missing;
        let fresh = self.marks.take_what_is_there(header);
        heard.fresh += fresh.rows.len() as u64;
        heard.known += u64::from(header.rows) - fresh.rows.len() as u64;
        self.say(*port, Some(&batch), &fresh, offset, *times, to);
        if *replicas > 1 {
            self.take_held(heard, to);
        }
    }

    /// What is new, as words: rows with the watermarks between them.
    fn say(
        &self,
        port: Port,
        batch: Option<&Batch>,
        fresh: &Fresh,
        offset: u64,
        times: Times,
        to: &mut VecDeque<Word>,
    ) {
        let start = fresh.rows.start;
        let mut from = 0;
        let rows = |from: usize, end: usize, to: &mut VecDeque<Word>| {
            if let Some(batch) = batch
                && end > from
            {
                let row = (start + from) as u32;
                let whole = start + from == 0 && start + end == batch.rows();
                let batch = if whole { batch.clone() } else { batch.slice(start + from..start + end) };
                to.push_back(Word::Rows { port, batch, place: Place { offset, row }, times });
            }
        };
        for (before, time) in &fresh.watermarks {
            rows(from, *before, to);
            from = from.max(*before);
            to.push_back(Word::Time { port, time: *time, times });
        }
        rows(from, fresh.rows.len(), to);
    }

    fn holds_too_much(&self) -> bool {
        let bytes: usize = self.held.iter().map(|held| held.record.len()).sum();
        self.held.len() > HELD_MAX || bytes > HELD_BYTES_MAX
    }

    /// Takes those that are held and have nothing missing before them any more.
    fn take_held(&mut self, heard: &mut Heard, to: &mut VecDeque<Word>) {
        let ready = |held: &Held| match record::read(&held.record) {
            Ok(Record::Rows(rows)) => !matches!(self.marks.look(&rows.header), Err(Untaken::Missing { .. })),
            _ => true,
        };
        let Some(at) = self.held.iter().position(ready) else { return };
        let held = self.held.remove(at);
        if let Ok(Record::Rows(rows)) = record::read(&held.record) {
            self.rows(held.offset, &held.record, &rows, true, heard, to);
        }
        // What was known brings nobody further, so the next is looked for here.
        self.take_held(heard, to);
    }

    /// Nobody filled the gap: the one that has the least missing before it is taken all the same.
    fn give_up(&mut self, heard: &mut Heard, to: &mut VecDeque<Word>) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.remove(0);
        if let Ok(Record::Rows(rows)) = record::read(&held.record) {
            self.rows(held.offset, &held.record, &rows, true, heard, to);
        }
        self.take_held(heard, to);
    }

    pub fn store(&self, to: &mut Writer) {
        to.u64(self.next);
        self.marks.store(to);
        to.count(self.held.len());
        for Held { offset, record } in &self.held {
            to.u64(*offset);
            to.bytes(record);
        }
    }

    pub fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Unreadable> {
        let next = from.u64()?;
        let marks = Marks::load(from)?;
        let count = from.count_up_to(HELD_MAX)?;
        let held = |_| Ok(Held { offset: from.u64()?, record: from.bytes()?.to_vec() });
        self.held = (0..count).map(held).collect::<Result<_, Unreadable>>()?;
        (self.next, self.marks) = (next, marks);
        Ok(())
    }
}

fn unknown(upstream: u32) -> String {
    format!("it is of upstream {upstream}, which this part does not read")
}
