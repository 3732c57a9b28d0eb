//! The time of sources that are silent. An event moves time; where none comes, the clock has to, or a window would wait for ever
//! for the last of its events, and a union for the quieter of two sources.
//!
//! Whoever reads the log of a source notices the silence: once nothing has come of it for as long as the source's `idle`, and all
//! of the log is read, its time goes on at the speed of the clock, `idle` behind where an event of now would be. That is said in
//! the log ([`Tick`]), so all replicas hear it between the same two records, whoever noticed first. Of a source that has said
//! nothing yet, and whose events come when they happen, time is `idle` behind the clock.
//!
//! A source that has something and cannot get rid of it, since one of its readers is behind or the broker is away, is not silent:
//! it says so ([`not_silent`]), and whoever could not read for a while begins to count anew ([`Ticker::hold`]).

use crate::graph::{From, Graph, Port};
use crate::record::{self, Tick};
use crate::window::watermark::{BEGINNING, END};
use crate::wire::What;

/// Time goes on by so much at a time.
const STEP_US: i64 = 1_000_000;
/// The second replica speaks so much later than the first, which leaves it nothing to say as a rule.
const TURN_US: i64 = 200_000;

pub struct Ticker {
    replica: u32,
    sources: Vec<Silence>,
}

struct Silence {
    port: Port,
    idle_us: i64,
    /// Its events come when they happen, so that one that says nothing is at the clock's time.
    live: bool,
    /// When something came last, as far as this one knows, and how far time was then.
    since: Option<(i64, i64)>,
    /// What was said last, which may not have been read yet.
    told: i64,
}

impl Ticker {
    pub fn of(graph: &Graph, what: What, replica: u32) -> Self {
        let silence = |port: Port| {
            let Port::Source(n) = port else { return None };
            let source = &graph.sources[n];
            let idle_us = i64::try_from(source.idle?.as_micros()).unwrap_or(i64::MAX / 4);
            let live = !matches!(source.from, From::File { .. } | From::Generator { .. });
            source.time.as_ref()?;
            Some(Silence { port, idle_us, live, since: None, told: BEGINNING })
        };
        Self { replica, sources: graph.hears(what).into_iter().filter_map(silence).collect() }
    }

    /// Something came of a source, and its time is this far now.
    pub fn heard(&mut self, port: Port, time: i64, now_us: i64) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.port == port) {
            source.since = Some((now_us, time));
        }
    }

    /// Whoever reads could not tell whether sources are silent: their silence counts from now on.
    pub fn hold(&mut self, now_us: i64, time: impl Fn(Port) -> i64) {
        for source in &mut self.sources {
            source.since = Some((now_us, time(source.port)));
        }
    }

    /// Whether there would be something to say, were the log read to its end.
    pub fn is_due(&mut self, now_us: i64, time: impl Fn(Port) -> i64) -> bool {
        let replica = self.replica;
        self.sources.iter_mut().any(|source| source.goes_on(replica, now_us, time(source.port)).is_some())
    }

    /// Records for the log that is read. `time` is how far time is at a port.
    pub fn ticks(&mut self, now_us: i64, at_end: bool, time: impl Fn(Port) -> i64) -> Vec<Vec<u8>> {
        if !at_end {
            return Vec::new();
        }
        let mut records = Vec::new();
        for source in &mut self.sources {
            let Some(goes_on) = source.goes_on(self.replica, now_us, time(source.port)) else { continue };
            source.told = goes_on;
            let (upstream, replica) = (source.port.number(), self.replica);
            records.push(record::tick(&Tick { upstream, replica, time: goes_on, sent_us: now_us }));
        }
        records
    }
}

impl Silence {
    /// How far its time has gone by the clock, if that is to be said.
    fn goes_on(&mut self, replica: u32, now_us: i64, known: i64) -> Option<i64> {
        let (since, then) = *self.since.get_or_insert((now_us, known));
        let passed = now_us.saturating_sub(since);
        if known == END || passed.saturating_sub(i64::from(replica) * TURN_US) < self.idle_us {
            return None;
        }
        let goes_on = match then {
            BEGINNING if self.live => now_us.saturating_sub(self.idle_us),
            BEGINNING => return None,
            then => then.saturating_add(passed.saturating_sub(self.idle_us)).min(END - 1),
        };
        (goes_on >= known.max(self.told).saturating_add(STEP_US)).then_some(goes_on)
    }
}

/// The word of a source that is not silent, though nothing of what it has gets into this log at the moment.
pub fn not_silent(source: usize, sent_us: i64) -> Vec<u8> {
    record::tick(&Tick { upstream: Port::Source(source).number(), replica: 0, time: BEGINNING, sent_us })
}
