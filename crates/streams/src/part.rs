//! The parts of a running stream as functions: records and messages go in, records and rows come out. No log, no clock, no
//! runtime: offsets and times are given, and whoever calls sees to the rest.
//!
//! - [`PartCore`] is a replica of a stage: it hears its log, record by record, and says records for the logs of those after it.
//! - [`SourceCore`] makes records of messages, lines of a file, or a table of rates ([`Generator`]).
//! - [`SinkCore`] makes rows of records, each with a number by which the other side can tell whether it has it.
//! - [`Ticker`] moves the time of sources that are silent.
//!
//! **The order of things**, of a stage: [`hear`](PartCore::hear) a record; [`go_on`](PartCore::go_on) while it is
//! [busy](PartCore::is_busy), so that no call takes long or makes much; [`cut`](PartCore::cut) whenever records are to be handed to
//! logs. [`begin_snapshot`](PartCore::begin_snapshot) between two records, when it is not busy; then
//! [`advance_snapshot`](PartCore::advance_snapshot) after each of the following, until it is there. **It may be used only once all
//! that was cut up to the moment when it was begun is durable** in the logs that it was for: cut first, then begin, and remember what
//! was cut until then.
//!
//! **Whose word counts**: replicas of a stage say the same rows under the same numbers, so readers take each from whoever is first.

mod fingerprint;
mod generator;
mod inbox;
mod outbox;
mod sink;
mod source;
mod ticker;

use std::collections::VecDeque;

pub use generator::Generator;
pub use inbox::{Facts, Gap, Heard, Latency, Trimmed};
pub use outbox::{RECORD_BYTES, RECORD_ROWS, Said};
pub use sink::{SinkCore, SinkRow};
pub use source::{Position, SourceCore, Taken};
pub use ticker::{Ticker, not_silent};

use crate::graph::{Graph, Port, plan};
use crate::mark::{Numbering, Origin, Place, Who};
use crate::operator::{self, Piece, Pipe};
use crate::record::Times;
use crate::state::{self, Frame, Reader, Unreadable, Writer};
use crate::window::{Refused, WindowError};
use crate::wire::What;
use inbox::{Inbox, Word};
use outbox::{Cause, Outbox};

/// So many rows are taken through a stage at once.
const SLICE_ROWS: usize = if cfg!(test) { 7 } else { 4_096 };

fn rows_of(piece: &Piece) -> usize {
    if let Piece::Rows(_, batch) = piece { batch.rows() } else { 0 }
}

/// Why a part cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// From its log; another snapshot may help.
    #[error(transparent)]
    Trimmed(#[from] Trimmed),
    /// By its definition: somebody has to change that. It is of no use any more.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows that were new, and those of another copy.
    pub events_in: u64,
    pub known: u64,
    pub events_out: u64,
    pub late: u64,
    /// Records that were passed over, and rows that nobody has.
    pub passed_over: u64,
    pub lost: u64,
}

/// A replica of a stage.
pub struct PartCore {
    what: What,
    fingerprint: u32,
    inbox: Inbox,
    /// By port, the input of the first operator at which it comes in.
    inputs: Vec<(Port, usize)>,
    work: VecDeque<Word>,
    /// A window has more to say, for what happened at these times.
    speaks: Option<Times>,
    pipe: Pipe,
    outboxes: Vec<Outbox>,
    counts: Counts,
    ticker: Ticker,
    saving: Option<Saving>,
}

/// A snapshot that is under way.
struct Saving {
    offset: u64,
    head: Vec<u8>,
    operators: Vec<Vec<u8>>,
    frame: Option<Frame>,
}

/// What a part remembers, as it was when everything before `offset` had been read and nothing after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

impl PartCore {
    /// A stage of a graph, from the beginning of its log.
    pub fn of(graph: &Graph, stage: usize, replica: u32) -> Result<Self, WindowError> {
        let what = What::Stage(stage as u32);
        let says = plan(graph).part(what).map(|part| part.says.clone()).unwrap_or_default();
        let outbox = |spoken: &crate::graph::Spoken| {
            let who = Who { upstream: spoken.port.number(), origin: Origin::Fixed, replica };
            Outbox::of(spoken, who, graph.flows(spoken.port), Numbering::default())
        };
        Ok(Self {
            what,
            fingerprint: fingerprint::of(graph, what),
            inbox: Inbox::of(graph, what),
            inputs: graph.stages[stage].inputs.iter().enumerate().map(|(n, port)| (*port, n)).collect(),
            work: VecDeque::new(),
            speaks: None,
            pipe: Pipe::of(graph, stage)?,
            outboxes: says.iter().map(outbox).collect(),
            counts: Counts::default(),
            ticker: Ticker::of(graph, what, replica),
            saving: None,
        })
    }

    /// One that goes on from a snapshot of any replica of this stage.
    pub fn restore(graph: &Graph, stage: usize, replica: u32, snapshot: &[u8]) -> Result<Self, Unreadable> {
        let mut part = Self::of(graph, stage, replica).map_err(|_| Unreadable::Other)?;
        let mut from = Reader::new(state::open(part.fingerprint, snapshot)?);
        part.inbox.load(&mut from)?;
        if from.count()? != part.outboxes.len() {
            return Err(Unreadable::Other);
        }
        for outbox in &mut part.outboxes {
            outbox.begin_at(Numbering::load(&mut from)?);
        }
        if from.count()? != part.pipe.operators().len() {
            return Err(Unreadable::Other);
        }
        for operator in part.pipe.operators() {
            operator.restore(from.bytes()?)?;
        }
        from.end()?;
        Ok(part)
    }

    pub fn what(&self) -> What {
        self.what
    }

    /// The offset that it reads next.
    pub fn next_offset(&self) -> u64 {
        self.inbox.next()
    }

    /// Goes on there although what is between is gone. What that held is lost.
    pub fn skip_to(&mut self, offset: u64) {
        self.inbox.skip_to(offset);
    }

    /// The next record of the log, taken in hand at this time. One that was read already is nothing. Only when not
    /// [busy](Self::is_busy): what it was busy with is done first otherwise, all of it.
    pub fn hear(&mut self, offset: u64, record: &[u8], taken_us: i64) -> Result<Heard, PartError> {
        while self.is_busy() {
            self.go_on(taken_us)?;
        }
        let heard = self.inbox.hear(offset, record, &mut self.work)?;
        self.counts.events_in += heard.fresh;
        self.counts.known += heard.known;
        self.counts.lost += heard.lost;
        self.counts.passed_over += u64::from(heard.passed_over.is_some());
        if let Some(facts) = &heard.facts {
            self.ticker.heard(facts.port, self.inbox.time(facts.port), taken_us);
        }
        if let Some(port) = heard.not_silent {
            self.ticker.heard(port, self.inbox.time(port), taken_us);
        }
        self.go_on(taken_us)?;
        Ok(heard)
    }

    /// Whether something of the last record is left to be done.
    pub fn is_busy(&self) -> bool {
        !self.work.is_empty() || self.speaks.is_some()
    }

    /// Does some of what is left.
    pub fn go_on(&mut self, taken_us: i64) -> Result<(), PartError> {
        let (mut rows, mut said) = (0, Vec::new());
        while rows < SLICE_ROWS {
            if let Some(times) = self.speaks {
                if !self.pipe.go_on(SLICE_ROWS - rows, &mut said)? {
                    self.speaks = None;
                }
                rows += said.iter().map(|(_, piece)| rows_of(piece)).sum::<usize>().max(1);
                self.say(&mut said, times, taken_us);
                continue;
            }
            let (port, piece, times) = match self.work.pop_front() {
                None => break,
                Some(Word::Rows { port, batch, place, times }) if batch.rows() > SLICE_ROWS => {
                    let rest = batch.slice(SLICE_ROWS..batch.rows());
                    let next = Place { row: place.row + SLICE_ROWS as u32, ..place };
                    self.work.push_front(Word::Rows { port, batch: rest, place: next, times });
                    (port, Piece::Rows(operator::Port::Main, batch.slice(0..SLICE_ROWS)), times)
                }
                Some(Word::Rows { port, batch, times, .. }) => (port, Piece::Rows(operator::Port::Main, batch), times),
                Some(Word::Time { port, time, times }) => (port, Piece::Watermark(time), times),
            };
            rows += rows_of(&piece).max(1);
            // The same never comes in at two inputs: a union has each once.
            let input = self.inputs.iter().find(|(of, _)| *of == port).map(|(_, input)| *input);
            if let Some(input) = input
                && self.pipe.begin(input, piece, SLICE_ROWS, &mut said)?
            {
                self.speaks = Some(times);
            }
            self.say(&mut said, times, taken_us);
        }
        Ok(())
    }

    fn say(&mut self, said: &mut operator::Said, times: Times, taken_us: i64) {
        let cause = Cause { arrived_us: times.arrived_us, caused_us: times.sent_us, taken_us };
        for (port, piece) in said.drain(..) {
            let rows = rows_of(&piece) as u64;
            match port {
                Port::Late(_) => self.counts.late += rows,
                _ => self.counts.events_out += rows,
            }
            if let Some(outbox) = self.outboxes.iter_mut().find(|outbox| outbox.port() == port) {
                match &piece {
                    Piece::Rows(_, batch) => outbox.rows(batch, cause),
                    Piece::Watermark(time) => outbox.watermark(*time, cause),
                }
            }
        }
    }

    /// Rows that were said and not cut, and about how many bytes they have.
    pub fn waiting(&self) -> (u64, usize) {
        let all = self.outboxes.iter().map(Outbox::waiting);
        all.fold((0, 0), |(rows, bytes), (more, more_bytes)| (rows + more, bytes + more_bytes))
    }

    /// Whether something was said and not cut; it may be a watermark alone.
    pub fn has_something_to_say(&self) -> bool {
        self.outboxes.iter().any(|outbox| !outbox.is_empty())
    }

    /// All that was said since the last time, as records, in their order for each log.
    pub fn cut(&mut self, sent_us: i64) -> Vec<Said> {
        let mut out = Vec::new();
        self.outboxes.iter_mut().for_each(|outbox| outbox.cut(sent_us, &mut out));
        out
    }

    /// Records for its own log, of sources whose time goes on by the clock. To be asked about once a second, and not while the
    /// stream is paused; `at_end` is whether everything in the log was read.
    pub fn ticks(&mut self, now_us: i64, at_end: bool) -> Vec<Vec<u8>> {
        let inbox = &self.inbox;
        self.ticker.ticks(now_us, at_end, |port| inbox.time(port))
    }

    /// Whether there would be such records, were everything in the log read.
    pub fn is_tick_due(&mut self, now_us: i64) -> bool {
        let inbox = &self.inbox;
        self.ticker.is_due(now_us, |port| inbox.time(port))
    }

    /// Nobody could tell whether sources are silent, since the log could not be read or the stream is paused.
    pub fn hold_time(&mut self, now_us: i64) {
        let inbox = &self.inbox;
        self.ticker.hold(now_us, |port| inbox.time(port));
    }

    /// Whether all that it reads has ended, and it has said so.
    pub fn has_ended(&self) -> bool {
        !self.is_busy() && self.inbox.has_ended()
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What it waits for although it has read what comes after.
    pub fn gap(&self) -> Option<Gap> {
        self.inbox.gap()
    }

    /// How far time is at a port that it hears.
    pub fn time(&self, port: Port) -> i64 {
        self.inbox.time(port)
    }

    /// Begins a snapshot of this instant, in place of one that may be under way. Not while it is busy; whether it did.
    pub fn begin_snapshot(&mut self) -> bool {
        if self.is_busy() {
            return false;
        }
        let mut head = Writer::default();
        self.inbox.store(&mut head);
        head.count(self.outboxes.len());
        self.outboxes.iter().for_each(|outbox| outbox.numbering().store(&mut head));
        head.count(self.pipe.operators().len());
        self.pipe.begin_snapshot();
        let offset = self.inbox.next();
        self.saving = Some(Saving { offset, head: head.into_bytes(), operators: Vec::new(), frame: None });
        true
    }

    pub fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// Goes on with the snapshot, by about so many keys. When nothing is left, the snapshot.
    pub fn advance_snapshot(&mut self, keys: usize) -> Option<Saved> {
        let saving = self.saving.as_mut()?;
        if saving.frame.is_none() {
            while let Some(operator) = self.pipe.operators().get_mut(saving.operators.len()) {
                saving.operators.push(operator.advance_snapshot(keys)?);
            }
            let mut pieces = vec![std::mem::take(&mut saving.head)];
            for operator in saving.operators.drain(..) {
                pieces.push((operator.len() as u64).to_le_bytes().to_vec());
                pieces.push(operator);
            }
            saving.frame = Some(Frame::of(self.fingerprint, pieces));
        }
        let bytes = Frame::go_on(&mut saving.frame, keys)?;
        let offset = saving.offset;
        self.saving = None;
        Some(Saved { offset, bytes })
    }

    /// A snapshot in one go, for those who can wait. Not while it is busy.
    pub fn snapshot(&mut self) -> Option<Saved> {
        self.begin_snapshot();
        while self.is_saving() {
            if let Some(saved) = self.advance_snapshot(usize::MAX) {
                return Some(saved);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
