//! A small world in which parts live: logs in memory, sources that say things, sinks that write things down, and a seed that decides
//! who does what next, how much of it, and who dies.

use std::collections::{BTreeMap, VecDeque};

use super::oracle;
use crate::batch::Value;
use crate::graph::{From, Graph, Port, plan};
use crate::mark::{Origin, Place};
use crate::operator::{Piece, Whole};
use crate::part::{PartCore, Said, Saved, SinkCore, SinkRow, SourceCore};
use crate::record::{self, Tick};
use crate::reference::Word;
use crate::wire::What;

/// How often something goes wrong, each time that it could.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    pub deaths: f64,
    /// A record is appended twice.
    pub twice: f64,
    pub ticks: f64,
    /// A snapshot is damaged.
    pub damage: f64,
}

pub struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        crate::hash::int(self.0 as i64)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn chance(&mut self, share: f64) -> bool {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
    }
}

type Logs = BTreeMap<What, Vec<Vec<u8>>>;

/// What a part cut and the logs do not have yet, each log by itself.
#[derive(Default)]
struct Way {
    queues: BTreeMap<What, VecDeque<Vec<u8>>>,
    cut: BTreeMap<What, u64>,
    appended: BTreeMap<What, u64>,
}

impl Way {
    fn take(&mut self, said: Vec<Said>) {
        for Said { to, bytes, .. } in said {
            for what in to.iter() {
                self.queues.entry(*what).or_default().push_back(bytes.clone());
                *self.cut.entry(*what).or_default() += 1;
            }
        }
    }

    fn append(&mut self, most: usize, twice: f64, dice: &mut Dice, logs: &mut Logs) {
        let waiting: Vec<What> =
            self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(what, _)| *what).collect();
        if waiting.is_empty() {
            return;
        }
        let to = waiting[dice.below(waiting.len())];
        for _ in 0..most {
            let Some(record) = self.queues.get_mut(&to).and_then(VecDeque::pop_front) else { break };
            *self.appended.entry(to).or_default() += 1;
            let log = logs.entry(to).or_default();
            if dice.chance(twice) {
                log.push(record.clone());
            }
            log.push(record);
        }
    }

    fn is_empty(&self) -> bool {
        self.queues.values().all(VecDeque::is_empty)
    }

    /// Whether all is appended that was cut then.
    fn has(&self, then: &BTreeMap<What, u64>) -> bool {
        then.iter().all(|(to, cut)| self.appended.get(to).copied().unwrap_or(0) >= *cut)
    }
}

struct Replica {
    core: PartCore,
    way: Way,
    /// What was cut when the snapshot that is under way was begun; and it, once it is there.
    saving: Option<(BTreeMap<What, u64>, Option<Saved>)>,
    /// Of its chances to do something, it takes so many.
    speed: f64,
}

struct Stage {
    replicas: Vec<Option<Replica>>,
    /// The oldest first.
    snapshots: Vec<Saved>,
}

/// A writer of a source's records, and what it does not say any more once nobody listens.
struct Writer {
    core: SourceCore,
    way: Way,
    /// The message that it takes next.
    at: usize,
    /// Messages that were taken, and what was cut by then.
    unsettled: Vec<(usize, BTreeMap<What, u64>)>,
    saved: Option<(Vec<u8>, BTreeMap<What, u64>)>,
}

struct Source {
    messages: Vec<String>,
    /// Files: what can be gone back to. Others: which messages are settled.
    snapshots: Vec<Vec<u8>>,
    settled: Vec<bool>,
    epoch: u64,
    writer: Option<Writer>,
    zombie: Option<Writer>,
}

struct Sink {
    core: Option<SinkCore>,
    snapshots: Vec<Vec<u8>>,
    outside: BTreeMap<Place, SinkRow>,
}

pub struct World {
    graph: Graph,
    dice: Dice,
    trouble: Trouble,
    logs: Logs,
    sources: Vec<Source>,
    stages: Vec<Stage>,
    sinks: Vec<Sink>,
    wrong: Vec<String>,
    clock_us: i64,
}

/// An event, and the line that it comes as.
fn event(dice: &mut Dice, n: usize) -> (Vec<Value>, String) {
    let at = n as i64 * 3_000 + dice.below(60_000) as i64 - 30_000;
    let (k, s) = (dice.below(4) as i64 - 1, ["", "a", "bé", "c\"c"][dice.below(4)]);
    let x = [0.1, -0.0, 1e15, 3.25, -7.5, 1e-9][dice.below(6)] * (dice.below(9) as f64);
    let row = vec![Value::Int(k), s.into(), Value::Time(at), Value::Float(x), Value::Int(n as i64)];
    let text = serde_json::Value::from(s);
    (row, format!("{{\"s\":{text},\"k\":{k},\"at\":{at},\"x\":{x:?},\"n\":{n},\"more\":[1]}}"))
}

impl World {
    pub fn of(text: &str, seed: u64, trouble: Trouble) -> Self {
        let mut dice = Dice(seed);
        let windows = [
            "{ jump: 50ms, by: at, lateness: 10ms }",
            "{ jump: 20ms, by: at }",
            "{ slide: 60ms, every: 20ms, by: at, lateness: 20ms }",
            "{ slide: 45ms, every: 10ms, by: at }",
            "{ slide: 4 events, every: 3 events }",
        ];
        // A window behind a window goes by its end, so that one has to be by time.
        let choices = if text.contains("by: end") { 4 } else { windows.len() };
        let window = windows[dice.below(choices)];
        let text = text.replace("{window}", window).replace("{every}", ["1", "2", "5"][dice.below(3)]);
        let graph = match crate::definition::check(&text) {
            Ok(mut graphs) => graphs.remove(0),
            Err(faults) => panic!("{faults:?}"),
        };
        let count = 20 + dice.below(80);
        let sources = graph.sources.iter().map(|_| {
            let messages: Vec<String> = (0..count)
                .map(|n| match dice.chance(0.05) {
                    true => format!("{{\"n\":{n},\"k\":\"no\"}}"),
                    false => event(&mut dice, n).1,
                })
                .collect();
            let settled = vec![false; messages.len()];
            Source { messages, snapshots: Vec::new(), settled, epoch: 0, writer: None, zombie: None }
        });
        let sources = sources.collect();
        let stages = graph
            .stages
            .iter()
            .map(|stage| Stage { replicas: (0..stage.replicas).map(|_| None).collect(), snapshots: Vec::new() });
        let stages = stages.collect();
        let sinks = graph.sinks.iter().map(|_| Sink { core: None, snapshots: Vec::new(), outside: BTreeMap::new() });
        let sinks = sinks.collect();
        let logs = plan(&graph).parts.iter().map(|part| (part.what, Vec::new())).collect();
        Self { graph, dice, trouble, logs, sources, stages, sinks, wrong: Vec::new(), clock_us: 1_000_000 }
    }

    /// Until everything was said, and read by everybody.
    pub fn live(&mut self) {
        for turn in 0..60_000 {
            if self.is_quiet() {
                return;
            }
            // Nobody is slow, or dies, for ever.
            if turn == 6_000 {
                self.trouble.deaths = 0.0;
                let all = self.stages.iter_mut().flat_map(|stage| stage.replicas.iter_mut().flatten());
                all.for_each(|replica| replica.speed = 1.0);
            }
            self.clock_us += 1_000;
            match self.dice.below(10) {
                0..=1 => {
                    let n = self.dice.below(self.sources.len());
                    self.source(n);
                }
                2..=6 => {
                    let n = self.dice.below(self.stages.len());
                    let replica = self.dice.below(self.stages[n].replicas.len());
                    self.stage(n, replica);
                }
                _ => {
                    let n = self.dice.below(self.sinks.len());
                    self.sink(n);
                }
            }
            if self.dice.chance(self.trouble.ticks) {
                self.tick();
            }
        }
        panic!("the world never comes to rest: {}", self.graph.name);
    }

    fn is_quiet(&self) -> bool {
        let end = |what: What| self.logs[&what].len() as u64;
        let sources = self.sources.iter().all(|source| {
            source.zombie.is_none()
                && source.writer.as_ref().is_some_and(|writer| writer.core.has_ended() && writer.way.is_empty())
        });
        let stages = self.stages.iter().enumerate().all(|(n, stage)| {
            stage.replicas.iter().all(|replica| {
                replica.as_ref().is_some_and(|replica| {
                    let read = replica.core.next_offset() == end(What::Stage(n as u32)) && !replica.core.is_busy();
                    read && !replica.core.has_something_to_say() && replica.way.is_empty()
                })
            })
        });
        let sinks =
            self.sinks.iter().enumerate().all(|(n, sink)| {
                sink.core.as_ref().is_some_and(|core| core.next_offset() == end(What::Sink(n as u32)))
            });
        sources && stages && sinks
    }

    fn tick(&mut self) {
        let n = self.dice.below(self.stages.len());
        let ports: Vec<Port> = self
            .graph
            .hears(What::Stage(n as u32))
            .into_iter()
            .filter(|port| matches!(port, Port::Source(_)))
            .collect();
        if ports.is_empty() {
            return;
        }
        let port = ports[self.dice.below(ports.len())];
        let tick =
            Tick { upstream: port.number(), replica: 0, time: self.dice.below(300_000) as i64, sent_us: self.clock_us };
        self.logs.entry(What::Stage(n as u32)).or_default().push(record::tick(&tick));
    }

    fn source(&mut self, n: usize) {
        let Self { graph, dice, trouble, logs, sources, clock_us, .. } = self;
        let source = &mut sources[n];
        let from = &graph.sources[n].from;
        // Whoever was succeeded and does not know goes on for a while.
        if let Some(zombie) = &mut source.zombie {
            step(zombie, source.messages.as_slice(), dice, *clock_us, matches!(from, From::File { .. }));
            zombie.way.append(2, trouble.twice, dice, logs);
            if dice.chance(0.3) {
                source.zombie = None;
            }
        }
        let Some(writer) = &mut source.writer else {
            source.epoch += 1;
            let origin = match from {
                From::File { .. } => Origin::Fixed,
                From::Mqtt { .. } => Origin::Epoch(source.epoch),
                _ => Origin::Free(dice.next()),
            };
            let newest = source.snapshots.len().saturating_sub(dice.below(3));
            let restored =
                source.snapshots[..newest].last().map(|saved| SourceCore::restore(graph, n, origin, saved).unwrap());
            let (core, at) = match (from, restored) {
                (From::File { .. }, Some((core, position))) => {
                    (core, usize::from(u16::from_le_bytes([position[0], position[1]])))
                }
                // The first that is not settled: what came behind it may come twice.
                (From::File { .. }, None) => (SourceCore::of(graph, n, origin), 0),
                _ => {
                    let at = source.settled.iter().position(|settled| !settled).unwrap_or(source.messages.len());
                    (SourceCore::of(graph, n, origin), at)
                }
            };
            source.writer = Some(Writer { core, way: Way::default(), at, unsettled: Vec::new(), saved: None });
            return;
        };
        step(writer, source.messages.as_slice(), dice, *clock_us, matches!(from, From::File { .. }));
        let most = 1 + dice.below(3);
        writer.way.append(most, trouble.twice, dice, logs);
        let way = &writer.way;
        writer.unsettled.retain(|(at, cut)| {
            let done = way.has(cut);
            source.settled[*at] |= done;
            !done
        });
        // Others than files have no end of their own: this one's is when everybody has said everything.
        let all = source.settled.iter().all(|settled| *settled) && source.zombie.is_none();
        if all && !writer.core.has_ended() {
            writer.core.end(*clock_us);
            writer.way.take(writer.core.cut(*clock_us));
        }
        if writer.saved.is_none() && dice.chance(0.3) {
            writer.way.take(writer.core.cut(*clock_us));
            let saved = writer.core.snapshot(&(writer.at as u16).to_le_bytes());
            writer.saved = Some((saved, writer.way.cut.clone()));
        }
        if let Some((saved, _)) = writer.saved.take_if(|(_, cut)| writer.way.has(cut)) {
            source.snapshots.push(saved);
        }
        if dice.chance(trouble.deaths) && !writer.core.has_ended() {
            let writer = source.writer.take();
            source.zombie = writer.filter(|_| dice.chance(0.5));
        }
    }

    fn stage(&mut self, n: usize, replica: usize) {
        let Self { graph, dice, trouble, logs, stages, wrong, clock_us, .. } = self;
        let Stage { replicas, snapshots } = &mut stages[n];
        let Some(one) = &mut replicas[replica] else {
            let mut back = snapshots.len().saturating_sub(dice.below(3));
            let core = loop {
                let Some(saved) = snapshots[..back].last() else {
                    break PartCore::of(graph, n, replica as u32).unwrap();
                };
                match PartCore::restore(graph, n, replica as u32, &saved.bytes) {
                    Ok(core) if core.next_offset() == saved.offset => break core,
                    Ok(_) => wrong.push("a snapshot is of another offset than it says".to_owned()),
                    Err(_) => {}
                }
                back -= 1;
            };
            let speed = [1.0, 0.3, 0.05][dice.below(3)];
            replicas[replica] = Some(Replica { core, way: Way::default(), saving: None, speed });
            return;
        };
        let log = &logs[&What::Stage(n as u32)];
        if dice.chance(one.speed) {
            for _ in 0..1 + dice.below(4) {
                let at = one.core.next_offset();
                if let Some(record) = log.get(at as usize) {
                    let heard = one.core.hear(at, record, *clock_us).unwrap();
                    if heard.lost > 0 || heard.passed_over.as_ref().is_some_and(|why| !why.contains("epoch")) {
                        wrong.push(format!("stage {n} lost something: {heard:?}"));
                    }
                }
                if dice.chance(0.7) {
                    while one.core.is_busy() {
                        one.core.go_on(*clock_us).unwrap();
                    }
                }
                if dice.chance(0.5) {
                    one.way.take(one.core.cut(*clock_us));
                }
            }
        }
        if dice.chance(0.3) {
            while one.core.is_busy() {
                one.core.go_on(*clock_us).unwrap();
            }
            one.way.take(one.core.cut(*clock_us));
        }
        let most = 1 + dice.below(4);
        one.way.append(most, trouble.twice, dice, logs);
        match &mut one.saving {
            None if dice.chance(0.2) && !one.core.is_busy() => {
                one.way.take(one.core.cut(*clock_us));
                assert!(one.core.begin_snapshot());
                one.saving = Some((one.way.cut.clone(), None));
            }
            Some((_, saved @ None)) => *saved = one.core.advance_snapshot(1 + dice.below(6)),
            _ => {}
        }
        if let Some((_, Some(mut saved))) = one.saving.take_if(|(cut, saved)| saved.is_some() && one.way.has(cut)) {
            if dice.chance(trouble.damage) {
                let at = dice.below(saved.bytes.len());
                saved.bytes[at] ^= 1 << dice.below(8);
            }
            snapshots.push(saved);
        }
        if dice.chance(trouble.deaths) {
            replicas[replica] = None;
        }
    }

    fn sink(&mut self, n: usize) {
        let Self { graph, dice, trouble, logs, sinks, wrong, .. } = self;
        let Sink { core, snapshots, outside } = &mut sinks[n];
        let Some(one) = core else {
            let back = snapshots.len().saturating_sub(dice.below(3));
            let restored = snapshots[..back].last().map(|saved| SinkCore::restore(graph, n, saved).unwrap().0);
            *core = Some(restored.unwrap_or_else(|| SinkCore::of(graph, n)));
            return;
        };
        let at = one.next_offset();
        if let Some(record) = logs[&What::Sink(n as u32)].get(at as usize) {
            let mut rows = Vec::new();
            one.hear(at, record, &mut rows).unwrap();
            for row in rows {
                // A row that is handed over again is the same row.
                if let Some(before) = outside.insert(row.place, row.clone())
                    && before != row
                {
                    wrong.push(format!("{:?} was handed over, and then {row:?}", before));
                }
            }
        }
        if dice.chance(0.2) {
            snapshots.push(one.snapshot(&[]));
        }
        if dice.chance(trouble.deaths) {
            *core = None;
        }
    }

    /// What each sink got, in order.
    pub fn sunk(&self) -> Vec<Vec<String>> {
        let lines = |sink: &Sink| {
            let rows = sink.outside.values();
            rows.map(|row| format!("{:?} {}", row.name, String::from_utf8_lossy(&row.value))).collect()
        };
        self.sinks.iter().map(lines).collect()
    }

    /// What the sinks would have got had the file been read in one place.
    pub fn in_one_place(&self) -> Vec<Vec<String>> {
        let mut core = SourceCore::of(&self.graph, 0, Origin::Fixed);
        core.lines(self.sources[0].messages.iter().map(String::as_bytes), 0);
        core.end(0);
        let mut whole = Whole::of(&self.graph).unwrap();
        let mut sunk = Vec::new();
        let mut log: BTreeMap<Port, Vec<Vec<u8>>> = BTreeMap::new();
        core.cut(0).into_iter().for_each(|said| log.entry(said.port).or_default().push(said.bytes));
        for (port, records) in &log {
            for (_, word) in oracle::words(&self.graph, records) {
                let piece = match word {
                    Word::Time(time) => Piece::Watermark(time),
                    Word::Event(event) => {
                        let mut batch = crate::Batch::new(self.graph.flows(*port));
                        batch.push_row(&event).unwrap();
                        Piece::Rows(crate::operator::Port::Main, batch)
                    }
                };
                whole.say(*port, piece, &mut sunk).unwrap();
            }
        }
        let mut lines = vec![Vec::new(); self.graph.sinks.len()];
        let cores: Vec<SinkCore> = (0..self.graph.sinks.len()).map(|n| SinkCore::of(&self.graph, n)).collect();
        for (sink, piece) in sunk {
            if let Piece::Rows(_, batch) = piece {
                let mut rows = Vec::new();
                cores[sink].rows_of(&batch, Place { offset: 0, row: 0 }, 0, &mut rows);
                let shown = |row: SinkRow| format!("{:?} {}", row.name, String::from_utf8_lossy(&row.value));
                lines[sink].extend(rows.into_iter().map(shown));
            }
        }
        lines
    }

    /// Everything that is not as it ought to be.
    pub fn wrong(&mut self) -> Vec<String> {
        let mut wrong = std::mem::take(&mut self.wrong);
        let graph = &self.graph;
        let heard: BTreeMap<What, Vec<(Port, Word)>> =
            self.logs.iter().map(|(what, log)| (*what, oracle::words(graph, log))).collect();
        for n in 0..graph.stages.len() {
            for (port, wanted) in oracle::stage(graph, n, &heard[&What::Stage(n as u32)]) {
                for to in graph.readers(port) {
                    wrong.extend(oracle::differs(graph, port, to, &heard[&to], &wanted));
                }
            }
        }
        for (n, source) in self.sources.iter().enumerate() {
            let mut core = SourceCore::of(graph, n, Origin::Fixed);
            core.lines(source.messages.iter().map(String::as_bytes), 0);
            let mut records: BTreeMap<Port, Vec<Vec<u8>>> = BTreeMap::new();
            core.cut(0).into_iter().for_each(|said| records.entry(said.port).or_default().push(said.bytes));
            for port in [Port::Source(n), Port::Unfit(n)] {
                let said = oracle::words(graph, records.get(&port).map_or(&[], Vec::as_slice));
                let wanted = oracle::lines(graph, port, said.iter().map(|(_, word)| word));
                for to in graph.readers(port) {
                    let found = heard[&to].iter().filter(|(of, _)| *of == port).map(|(_, word)| word);
                    let found = oracle::lines(graph, port, found);
                    let fine = match graph.sources[n].from {
                        From::File { .. } => found == wanted,
                        // What cannot be read twice may come twice, and nothing is lost.
                        _ => {
                            wanted.iter().all(|line| found.contains(line))
                                && found.iter().all(|line| wanted.contains(line))
                        }
                    };
                    if !fine {
                        wrong
                            .push(format!("{} in the log of {to:?}:\n{found:?} and not\n{wanted:?}", graph.port(port)));
                    }
                }
            }
        }
        for (n, sink) in self.sinks.iter().enumerate() {
            let what = What::Sink(n as u32);
            let port = graph.sinks[n].input;
            let wanted = oracle::lines(graph, port, heard[&what].iter().map(|(_, word)| word));
            let found: Vec<String> =
                sink.outside.values().map(|row| String::from_utf8_lossy(&row.value).into_owned()).collect();
            let whole = !matches!(graph.sinks[n].to, crate::graph::To::Kv { value: Some(_), .. });
            if whole && found != wanted || found.len() != wanted.len() {
                wrong.push(format!("sink {n}: {found:?} and not {wanted:?}"));
            }
        }
        wrong
    }
}

/// A writer of a source takes some messages, and cuts what it has now and then.
fn step(writer: &mut Writer, messages: &[String], dice: &mut Dice, now_us: i64, file: bool) {
    let to = messages.len().min(writer.at + dice.below(4));
    let taken = writer.at..to;
    let lines = messages[taken.clone()].iter().map(String::as_bytes);
    if file {
        writer.core.lines(lines, now_us);
    } else {
        for message in lines {
            writer.core.message(message, now_us);
        }
    }
    writer.at = to;
    if file && to == messages.len() && !writer.core.has_ended() {
        writer.core.end(now_us);
    }
    if dice.chance(0.6) || !taken.is_empty() && !file {
        writer.way.take(writer.core.cut(now_us));
        writer.unsettled.extend(taken.map(|at| (at, writer.way.cut.clone())));
    }
}
