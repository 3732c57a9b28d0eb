//! The time of sources that are silent. An event moves time; where none comes, the clock has to, or a window would wait for ever
//! for the last of its events, and a union for the quieter of two sources.
//!
//! Whoever reads the log of a source notices the silence: once nothing has come of it for as long as the source's `idle`, and all
//! of the log is read, its time goes on at the speed of the clock, `idle` behind where an event of now would be. That is said in
//! the log ([`Tick`]), so all replicas hear it between the same two records, whoever noticed first. Of a source that has said
//! nothing yet, and whose events come when they happen, time is `idle` behind the clock.

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

    /// Records for the log that is read. `time` is how far time is at a port.
    pub fn ticks(&mut self, now_us: i64, at_end: bool, time: impl Fn(Port) -> i64) -> Vec<Vec<u8>> {
        if !at_end {
            return Vec::new();
        }
        let mut records = Vec::new();
        for source in &mut self.sources {
            let known = time(source.port);
            let (since, then) = *source.since.get_or_insert((now_us, known));
            let silent = now_us.saturating_sub(since).saturating_sub(i64::from(self.replica) * TURN_US);
            if known == END || silent < source.idle_us {
                continue;
            }
            let goes_on = match then {
                BEGINNING if source.live => now_us.saturating_sub(source.idle_us),
                BEGINNING => continue,
                then => then.saturating_add(now_us.saturating_sub(since).saturating_sub(source.idle_us)).min(END - 1),
            };
            if goes_on < known.max(source.told).saturating_add(STEP_US) {
                continue;
            }
            source.told = goes_on;
            let (upstream, replica) = (source.port.number(), self.replica);
            records.push(record::tick(&Tick { upstream, replica, time: goes_on, sent_us: now_us }));
        }
        records
    }
}
