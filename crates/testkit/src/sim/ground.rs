//! What everybody in the simulated world stands on: real time, chance, the mail, the one who checks, and the record of
//! what happened. Everything that will happen is an [`Event`] in one heap, so that a seed decides the whole history.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use mutirao_core::Dice;
use mutirao_shards::MemberId;

use super::flaw::Flaw;
use super::oracle::Oracle;
use super::weather::{Climate, Weather};
use super::wire::{Answer, Call, ConnId, FromBroker, NoAnswer, Pid, Request, Response, ToBroker};
use super::worker::Alarm;

/// The last lines of the record that are kept.
const RECORD_LINES_MAX: usize = 400;

pub const MS: u64 = 1_000;
pub const SECOND: u64 = 1_000_000;

#[derive(Debug)]
pub enum Event {
    AtBroker(ConnId, ToBroker),
    FromBroker(ConnId, FromBroker),
    /// What was published under this number has reached the broker's disk.
    Durable(ConnId, u64),
    /// The broker notices that a connection is dead.
    Buried(ConnId),
    AtStore(Call),
    /// A transaction of this life of the store ends.
    Commit(Call, u32),
    Answered(Pid, u64, Result<Answer, NoAnswer>),
    Asked(Pid, u64, Request),
    Responded(u64, Response),
    Tick(Pid),
    Thaw(Pid),
    Alarm(Pid, Alarm),
    Disaster,
    HireManager,
    /// A manager that was killed starts again, in its folder and so under its name.
    RestartManager(MemberId),
    HireWorker(usize),
    /// Somebody saw a worker process die.
    SeenDying(Pid),
    ClientTick,
}

struct Scheduled {
    at_us: u64,
    seq: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at_us, self.seq) == (other.at_us, other.seq)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    /// The earliest is the greatest: the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_us, other.seq).cmp(&(self.at_us, self.seq))
    }
}

/// The two services that processes reach over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    Store,
    Broker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    Off,
    On,
}

pub struct Ground {
    pub now_us: u64,
    pub dice: Dice,
    pub weather: Weather,
    pub flaw: Option<Flaw>,
    pub oracle: Oracle,
    /// Disasters are over.
    pub calm: bool,
    /// Connections over which nothing arrives any more.
    pub doomed: BTreeSet<ConnId>,
    cuts: BTreeMap<(Pid, Service), u64>,
    /// When the last letter of a lane arrives: a connection keeps the order.
    lanes: BTreeMap<(ConnId, Heading), u64>,
    heap: BinaryHeap<Scheduled>,
    seq: u64,
    record: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Heading {
    ToBroker,
    FromBroker,
}

impl Ground {
    pub fn new(seed: u64, climate: Climate, flaw: Option<Flaw>, recording: Recording) -> Self {
        let dice = Dice::seeded(seed);
        let weather = Weather::of(&dice);
        let weather = match climate {
            Climate::Stormy => weather,
            Climate::Fair => weather.fair(),
            Climate::Slow => weather.slow(),
        };
        Self {
            now_us: 1_000 * SECOND,
            oracle: Oracle::of(&weather),
            weather,
            dice,
            flaw,
            calm: false,
            doomed: BTreeSet::new(),
            cuts: BTreeMap::new(),
            lanes: BTreeMap::new(),
            heap: BinaryHeap::new(),
            seq: 0,
            record: (recording == Recording::On).then(Vec::new),
        }
    }

    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub fn chance(&self, percent: u64) -> bool {
        self.dice.below(100) < percent
    }

    /// Misfortune of this likelihood, while it lasts.
    pub fn bad_luck(&self, per_mille: u64) -> bool {
        !self.calm && self.dice.below(1_000) < per_mille
    }

    pub fn between(&self, from: u64, to: u64) -> u64 {
        from + self.dice.below(to.saturating_sub(from))
    }

    /// Writes a line of the record, if one is kept.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(record) = &mut self.record {
            if record.len() == 2 * RECORD_LINES_MAX {
                record.drain(..RECORD_LINES_MAX);
            }
            let at_us = self.now_us - 1_000 * SECOND;
            record.push(format!("{:>9.3} s  {}", at_us as f64 / 1e6, line()));
        }
    }

    pub fn record(self) -> Vec<String> {
        let mut record = self.record.unwrap_or_default();
        record.drain(..record.len().saturating_sub(RECORD_LINES_MAX));
        record
    }

    // ── what will happen ─────────────────────────────────────────────────────────────────────────────────────────

    pub fn after(&mut self, wait_us: u64, event: Event) {
        self.at(self.now_us + wait_us, event);
    }

    pub fn at(&mut self, at_us: u64, event: Event) {
        self.seq += 1;
        self.heap.push(Scheduled { at_us, seq: self.seq, event });
    }

    /// Time goes on to what happens next.
    pub fn next(&mut self) -> Option<Event> {
        let next = self.heap.pop()?;
        self.now_us = self.now_us.max(next.at_us);
        Some(next.event)
    }

    // ── the network ──────────────────────────────────────────────────────────────────────────────────────────────

    pub fn cut(&mut self, pid: Pid, service: Service, for_us: u64) {
        let until = self.cuts.entry((pid, service)).or_default();
        *until = (*until).max(self.now_us + for_us);
    }

    pub fn heal(&mut self) {
        self.cuts.clear();
    }

    fn cut_until(&self, pid: Pid, service: Service) -> Option<u64> {
        self.cuts.get(&(pid, service)).copied().filter(|until| *until > self.now_us)
    }

    fn latency_us(&self) -> u64 {
        let weather = &self.weather;
        match self.dice.below(1_000) {
            n if !self.calm && n < weather.slow_letters_per_mille => self.dice.below(weather.slow_letter_us),
            _ => 200 + self.dice.below(2 * MS),
        }
    }

    pub fn tell_broker(&mut self, conn: ConnId, letter: ToBroker) {
        self.carry(conn, Heading::ToBroker, Event::AtBroker(conn, letter));
    }

    pub fn tell_process(&mut self, conn: ConnId, letter: FromBroker) {
        self.carry(conn, Heading::FromBroker, Event::FromBroker(conn, letter));
    }

    /// A connection delivers in order or, once doomed, not at all. A short cut only delays.
    fn carry(&mut self, conn: ConnId, heading: Heading, event: Event) {
        if self.doomed.contains(&conn) {
            return;
        }
        let from_us = self.cut_until(conn.pid, Service::Broker).unwrap_or(self.now_us);
        let last = self.lanes.get(&(conn, heading)).copied().unwrap_or_default();
        let at_us = (from_us + self.latency_us()).max(last);
        self.lanes.insert((conn, heading), at_us);
        self.at(at_us, event);
    }

    /// Questions travel over many connections: they may overtake each other, and a cut swallows them.
    pub fn ask_store(&mut self, call: Call) {
        if self.cut_until(call.pid, Service::Store).is_some() || self.bad_luck(self.weather.lost_calls_per_mille) {
            self.note(|| format!("lost on its way to the store: {call:?}"));
            return;
        }
        self.after(self.latency_us(), Event::AtStore(call));
    }

    pub fn answer(&mut self, pid: Pid, id: u64, answer: Result<Answer, NoAnswer>) {
        if self.cut_until(pid, Service::Store).is_some() || self.bad_luck(self.weather.lost_calls_per_mille) {
            self.note(|| format!("lost on its way from the store to {pid:?}: {answer:?}"));
            return;
        }
        self.after(self.latency_us(), Event::Answered(pid, id, answer));
    }
}
