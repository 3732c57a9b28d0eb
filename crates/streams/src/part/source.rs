//! A source, but for where its messages come from: JSON becomes rows, what does not fit becomes rows of its own, time is read
//! from events, and what comes of it is numbered.
//!
//! What can be read twice (a file, a generator) has [`Origin::Fixed`]: after going back to a snapshot the same rows come under the
//! same numbers, whatever the clock says and however the lines were cut. So there an event from far ahead is not refused, which
//! would depend on when it was read; it moves no time.

use std::sync::Arc;
use std::time::Duration;

use super::generator::Generator;
use super::outbox::{Cause, Outbox};
use super::{Said, fingerprint};
use crate::batch::json::{self, Rows};
use crate::batch::{Batch, TEXT_BYTES_MAX, Value, cut};
use crate::expression::{Expression, Scratch};
use crate::graph::{From, Graph, Port, Spoken, unfit_schema};
use crate::mark::{Numbering, Origin, Who};
use crate::schema::Schema;
use crate::state::{self, Reader, Unreadable, Writer};
use crate::window::watermark::{BEGINNING, END, Pacer};
use crate::wire::What;

/// So many events of a generator are made at once.
const MADE_MAX: usize = 4_096;
/// So many rows of lines are gathered before they become columns elsewhere.
const LINES_ROWS: usize = 4_096;
const LINES_UNFIT: usize = 256;
/// A line of more bytes is read by itself.
const LINE_BYTES: usize = 64 << 10;

/// What is said of a source in one byte of its snapshot.
const ENDED: u8 = 1;
const PAUSED: u8 = 2;

/// How far a source is, in words of its own: an offset in a file, say. Opaque here.
pub type Position = Vec<u8>;

/// What became of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub events: u64,
    pub unfit: u64,
}

pub struct SourceCore {
    fingerprint: u32,
    fixed: bool,
    rows: Rows,
    time: Option<Expression>,
    ahead_us: i64,
    pacer: Pacer,
    main: Outbox,
    unfit: Outbox,
    /// Whether somebody reads what does not fit.
    unfit_read: bool,
    unfit_schema: Arc<Schema>,
    generator: Option<Generator>,
    /// When the table of a generator began.
    began_us: Option<i64>,
    /// Since when nothing of it is due.
    paused_us: Option<i64>,
    ended: bool,
    scratch: Scratch,
}

impl SourceCore {
    /// A source of a graph. `origin` says how its events are numbered: [`Fixed`](Origin::Fixed) for files and generators;
    /// [`Free`](Origin::Free), with a figure that nobody has or had, for what hands each message to one of those who take it (http,
    /// amqp, sessions of mqtt), where one that was given up may still be handed some; with an [epoch](Origin::Epoch) for what hands
    /// each message to all of them.
    pub fn of(graph: &Graph, source: usize, origin: Origin) -> Self {
        let what = What::Source(source as u32);
        let outbox = |port: Port| {
            let spoken = Spoken { port, to: graph.readers(port) };
            let who = Who { upstream: port.number(), origin, replica: 0 };
            Outbox::of(&spoken, who, graph.flows(port), Numbering::default())
        };
        let (main, unfit) = (Port::Source(source), Port::Unfit(source));
        let unfit_read = !graph.readers(unfit).is_empty();
        let of = &graph.sources[source];
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let generator = match &of.from {
            From::Generator { rate, seed, fields } => {
                Some(Generator::of(rate.clone(), *seed, fields.clone(), of.schema.clone()))
            }
            _ => None,
        };
        Self {
            fingerprint: fingerprint::of(graph, what),
            fixed: origin == Origin::Fixed,
            rows: Rows::new(of.schema.clone()),
            time: of.time.clone(),
            ahead_us: micros(of.ahead),
            pacer: Pacer::of(0, micros(of.pace)),
            main: outbox(main),
            unfit: outbox(unfit),
            unfit_read,
            unfit_schema: Arc::new(unfit_schema()),
            generator,
            began_us: None,
            paused_us: None,
            ended: false,
            scratch: Scratch::default(),
        }
    }

    /// One that goes on from a snapshot, and how far it was then. Only what is numbered the same again goes on with its numbers.
    pub fn restore(
        graph: &Graph,
        source: usize,
        origin: Origin,
        snapshot: &[u8],
    ) -> Result<(Self, Position), Unreadable> {
        let mut core = Self::of(graph, source, origin);
        let mut from = Reader::new(state::open(core.fingerprint, snapshot)?);
        let position = from.bytes()?.to_vec();
        let (main, unfit) = (Numbering::load(&mut from)?, Numbering::load(&mut from)?);
        core.pacer.load(&mut from)?;
        core.began_us = Some(from.i64()?).filter(|began| *began != BEGINNING);
        let flags = from.u8()?;
        core.ended = flags & ENDED != 0;
        core.paused_us = if flags & PAUSED != 0 { Some(from.i64()?) } else { None };
        from.end()?;
        if core.fixed {
            core.main.begin_at(main);
            core.unfit.begin_at(unfit);
        }
        Ok((core, position))
    }

    /// What it would have to know to go on from here: all that was taken so far is in it, so it may be used once all that was cut up
    /// to now is durable. Cut first.
    pub fn snapshot(&self, position: &[u8]) -> Vec<u8> {
        let mut to = Writer::default();
        to.bytes(position);
        self.main.numbering().store(&mut to);
        self.unfit.numbering().store(&mut to);
        self.pacer.store(&mut to);
        to.i64(self.began_us.unwrap_or(BEGINNING));
        let ended = if self.ended { ENDED } else { 0 };
        match self.paused_us {
            Some(paused_us) => {
                to.u8(ended | PAUSED);
                to.i64(paused_us);
            }
            None => to.u8(ended),
        }
        state::seal(self.fingerprint, to.into_bytes())
    }

    /// A message, with any number of events in it.
    pub fn message(&mut self, message: &[u8], now_us: i64) -> Taken {
        let mut taken = Taken::default();
        let mut rest = message;
        loop {
            rest = self.rows.read(rest);
            self.gathered(now_us, &mut taken);
            if rest.is_empty() {
                return taken;
            }
        }
    }

    /// Lines of a file, without their ends. What comes of them does not depend on how many are handed over at once.
    pub fn lines<'a>(&mut self, lines: impl IntoIterator<Item = &'a [u8]>, now_us: i64) -> Taken {
        let mut taken = Taken::default();
        for line in lines {
            let full = self.rows.rows() >= LINES_ROWS || self.rows.misfits() >= LINES_UNFIT;
            if full || line.len() > LINE_BYTES {
                self.gathered(now_us, &mut taken);
            }
            let mut rest = self.rows.read(line);
            while !rest.is_empty() {
                self.gathered(now_us, &mut taken);
                rest = self.rows.read(rest);
            }
        }
        self.gathered(now_us, &mut taken);
        taken
    }

    fn gathered(&mut self, now_us: i64, taken: &mut Taken) {
        let json::Read { batch, misfits, misfits_total } = self.rows.take();
        let cause = Cause { arrived_us: now_us, caused_us: now_us, taken_us: now_us };
        taken.unfit += misfits_total;
        let mut unfit: Vec<(String, String)> = misfits.into_iter().map(|misfit| (misfit.event, misfit.why)).collect();
        let (batch, ahead) = self.within(batch, now_us);
        taken.events += batch.rows() as u64;
        if let Some(ahead) = ahead {
            taken.unfit += ahead.rows() as u64;
            let mut lines = Vec::new();
            json::write(&ahead, &mut lines);
            let why = "its time is further ahead of the clock than the source's \"ahead\"";
            let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            unfit.extend(lines.map(|line| (String::from_utf8_lossy(line).into_owned(), why.to_owned())));
        }
        self.say(&batch, now_us, cause);
        self.say_unfit(&unfit, cause);
    }

    fn say_unfit(&mut self, unfit: &[(String, String)], cause: Cause) {
        if !self.unfit_read || unfit.is_empty() {
            return;
        }
        let mut batch = Batch::new(self.unfit_schema.clone());
        for (event, why) in unfit {
            let row = [event, why].map(|text| Value::Text(cut(text, TEXT_BYTES_MAX).to_owned()));
            if batch.push_row(&row).is_err() {
                self.unfit.rows(&batch, cause);
                batch.clear();
                // An empty batch has room for a row.
                let _ = batch.push_row(&row);
            }
        }
        self.unfit.rows(&batch, cause);
    }

    fn times(&mut self, batch: &Batch) -> Option<Vec<i64>> {
        let time = self.time.as_ref()?;
        Some(time.run(batch, &mut self.scratch).ints().unwrap_or_default().to_vec())
    }

    /// Parts those that are too far ahead of the clock from the others.
    fn within(&mut self, batch: Batch, now_us: i64) -> (Batch, Option<Batch>) {
        let most = now_us.saturating_add(self.ahead_us);
        let times = if self.fixed { None } else { self.times(&batch) };
        match times {
            Some(times) if times.iter().any(|time| *time > most) => {
                let fits: Vec<bool> = times.iter().map(|time| *time <= most).collect();
                let not: Vec<bool> = fits.iter().map(|fits| !fits).collect();
                (batch.filter(&fits), Some(batch.filter(&not)))
            }
            _ => (batch, None),
        }
    }

    fn say(&mut self, batch: &Batch, now_us: i64, cause: Cause) {
        if batch.is_empty() {
            return;
        }
        let most = now_us.saturating_add(self.ahead_us);
        let marks = match self.times(batch) {
            Some(mut times) => {
                times.iter_mut().filter(|time| **time > most).for_each(|time| *time = BEGINNING);
                self.pacer.see(&times)
            }
            None => Vec::new(),
        };
        let mut from = 0;
        for (before, time) in marks {
            self.main.rows(&batch.slice(from..before), cause);
            self.main.watermark(time, cause);
            from = before;
        }
        if from < batch.rows() {
            self.main.rows(&batch.slice(from..batch.rows()), cause);
        }
    }

    /// The table of a generator begins now, unless it began before. Then a snapshot has to be durable before anything is cut, so
    /// that it never begins twice.
    pub fn begin(&mut self, now_us: i64) -> i64 {
        *self.began_us.get_or_insert(now_us)
    }

    /// Nothing is due from now on, unless it is paused already.
    pub fn pause(&mut self, now_us: i64) {
        self.paused_us.get_or_insert(now_us);
    }

    /// What a table would have had due meanwhile comes later, and not all at once. Whether it was paused: then a snapshot has to be
    /// kept before anything is cut, so that the same events never have other times.
    pub fn resume(&mut self, now_us: i64) -> bool {
        let Some(paused_us) = self.paused_us.take() else { return false };
        let passed = now_us.saturating_sub(paused_us).max(0);
        self.began_us = self.began_us.map(|began| began.saturating_add(passed));
        true
    }

    /// Makes what a generator's table has due by now, a piece of it. When the next is due; now, if more is.
    pub fn generate(&mut self, now_us: i64) -> Option<i64> {
        let began_us = self.begin(now_us);
        let mut generator = self.generator.take()?;
        let from = self.main.numbering().next();
        let since = Duration::from_micros(u64::try_from(now_us.saturating_sub(began_us)).unwrap_or(0));
        let count = usize::try_from(generator.due(since).saturating_sub(from)).unwrap_or(MADE_MAX).min(MADE_MAX);
        if count > 0 {
            let batch = generator.make(from, count, began_us);
            let cause = Cause { arrived_us: now_us, caused_us: now_us, taken_us: now_us };
            self.say(&batch, now_us, cause);
        }
        let next = self.main.numbering().next();
        let due = generator.due_at(next).map(|after| i64::try_from(after.as_micros()).unwrap_or(i64::MAX));
        if generator.total().is_some_and(|total| next >= total) {
            self.end(now_us);
        }
        self.generator = Some(generator);
        due.filter(|_| !self.ended).map(|after| began_us.saturating_add(after))
    }

    /// Nothing more will come, and whoever waits for time waits no longer.
    pub fn end(&mut self, now_us: i64) {
        let cause = Cause { arrived_us: now_us, caused_us: now_us, taken_us: now_us };
        self.main.watermark(END, cause);
        self.unfit.watermark(END, cause);
        self.ended = true;
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Rows that were taken and not cut, and about how many bytes they have.
    pub fn waiting(&self) -> (u64, usize) {
        let ((rows, bytes), (more, more_bytes)) = (self.main.waiting(), self.unfit.waiting());
        (rows + more, bytes + more_bytes)
    }

    pub fn has_something_to_say(&self) -> bool {
        !self.main.is_empty() || !self.unfit.is_empty()
    }

    /// All that was taken since the last time, as records, in their order for each log.
    pub fn cut(&mut self, sent_us: i64) -> Vec<Said> {
        let mut out = Vec::new();
        self.main.cut(sent_us, &mut out);
        if self.unfit_read {
            self.unfit.cut(sent_us, &mut out);
        }
        out
    }
}
