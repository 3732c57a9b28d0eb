//! What each host will have to do in a while: the sum over its parts of how many events will come, times what one costs, and of
//! what others do there.

use std::collections::BTreeMap;

use mutirao_streams::wire::Part;

use super::peaks::Peaks;
use crate::adaptive::Asked;
use crate::message::Message;
use crate::round::Asks;
use crate::scene::{Board, Seated, Stage, stage};
use crate::settings::Terms;
use crate::trend::{Trend, median, quantile, trend};
use crate::wait::Line;

/// Fewer messages say nothing of a latency.
const MESSAGES_MIN: usize = 5;
/// The share of a host's cores above which its load explains whatever is slow there.
const BUSY: f64 = 0.85;
/// However little a host may use.
const CORES_MIN: f64 = 0.01;
/// A host whose events cost this much more than elsewhere is slow.
const SLOW: f64 = 1.3;

pub struct Forecast<'a> {
    pub parts: BTreeMap<&'a Part, Outlook<'a>>,
    pub hosts: BTreeMap<&'a str, HostOutlook>,
    pub stages: BTreeMap<Stage, Vec<&'a Part>>,
    ahead_s: f64,
}

#[derive(Clone, Debug)]
pub struct Outlook<'a> {
    pub seated: &'a Seated,
    /// Events a second: now, and as far ahead as is looked.
    pub rate: f64,
    pub rate_ahead: f64,
    /// Core-seconds of an event on a host that is not slow.
    pub cost: f64,
    /// Events that lie before it.
    pub queue: f64,
    pub memory_bytes: f64,
    pub held_back: f64,
    /// At its host, over the window; the lower quartile is below it even where single seconds are wild.
    pub latency_ms: Option<f64>,
    pub latency_low_ms: Option<f64>,
    /// What is left of it where nobody waits.
    pub base_ms: f64,
    pub goal_ms: f64,
}

#[derive(Clone, Debug, Default)]
pub struct HostOutlook {
    pub cores: f64,
    /// Cores that were busy, in all but the busiest quarter of the window.
    pub busy: f64,
    /// What is not of our parts.
    pub others: f64,
    pub memory_others: f64,
    pub memory_total: f64,
    /// How many times as much an event costs there.
    pub slowness: f64,
    /// Latency of its parts that its load does not explain.
    pub unexplained_ms: f64,
    pub load: f64,
    pub load_ahead: f64,
    pub backlog: f64,
    pub memory: f64,
    /// Events a second, ahead, and seconds of work in one.
    pub rate: f64,
    pub service: f64,
}

/// What all replicas of a stage tell of it.
#[derive(Clone, Copy, Debug, Default)]
struct StageOutlook {
    trend: Trend,
    rate_ahead: f64,
    cost: Option<f64>,
    base_ms: Option<f64>,
}

impl<'a> Forecast<'a> {
    pub fn new(asked: &Asked, board: &Board<'a>, terms: &Terms, peaks: &mut Peaks) -> Self {
        let now_ms = board.scene.now_ms;
        let ahead_s = terms.ahead_ms as f64 / 1_000.0;
        let mut stages: BTreeMap<Stage, StageOutlook> = BTreeMap::new();
        let mut costs: BTreeMap<&Part, f64> = BTreeMap::new();
        for seated in &board.scene.parts {
            // One second more than the window: what came in is a difference to the second before.
            let heard: Vec<&Message> = asked.memory.of(&seated.part, now_ms, asked.window_ms + 1_000).collect();
            let long: Vec<&Message> = asked.memory.of(&seated.part, now_ms, crate::memory::KEPT_MS).collect();
            let outlook = stages.entry(stage(&seated.part)).or_default();
            let trend = rates(&heard);
            if trend.level > outlook.trend.level {
                outlook.trend = trend;
            }
            let here = || long.iter().filter(|message| message.host == seated.host);
            let worked = here().filter(|message| message.events_in >= 1.0 && message.own.cpu > 0.0);
            let mut each: Vec<f64> = worked.map(|message| message.own.cpu / message.events_in).collect();
            if let Some(cost) = median(&mut each) {
                costs.insert(&seated.part, cost);
                outlook.cost = Some(outlook.cost.map_or(cost, |least| least.min(cost)));
            }
            let mut latencies: Vec<f64> = here().filter_map(|message| message.latency_ms).collect();
            if let Some(base) = quantile(&mut latencies, 0.1) {
                outlook.base_ms = Some(outlook.base_ms.map_or(base, |least| least.min(base)));
            }
        }
        for (stage, outlook) in &mut stages {
            outlook.rate_ahead = peaks.ahead(stage, &outlook.trend, now_ms, ahead_s);
        }
        let part = |seated: &'a Seated| {
            let of_stage = stages.get(&stage(&seated.part)).copied().unwrap_or_default();
            (&seated.part, outlook(asked, seated, now_ms, of_stage, terms))
        };
        let parts = board.scene.parts.iter().map(part).collect();
        let mut forecast = Self { parts, hosts: BTreeMap::new(), stages: BTreeMap::new(), ahead_s };
        for seated in &board.scene.parts {
            forecast.stages.entry(stage(&seated.part)).or_default().push(&seated.part);
        }
        forecast.look_at_hosts(asked, board, &costs);
        forecast
    }

    fn look_at_hosts(&mut self, asked: &Asked, board: &Board<'a>, costs: &BTreeMap<&Part, f64>) {
        let now_ms = board.scene.now_ms;
        for host in &board.scene.hosts {
            let there = board.scene.parts.iter().filter(|seated| seated.host == host.id);
            let (mut busy, mut memory, mut own, mut own_memory, mut dearer) = (vec![], vec![], 0.0, 0.0, vec![]);
            for seated in there {
                let heard = asked.memory.of(&seated.part, now_ms, asked.window_ms);
                let heard: Vec<&Message> = heard.filter(|message| message.host == host.id).collect();
                busy.extend(heard.iter().map(|message| message.node.busy()));
                memory.extend(heard.iter().map(|message| message.node.memory_bytes));
                let mean = |of: fn(&Message) -> f64| {
                    heard.iter().map(|message| of(message)).sum::<f64>() / heard.len().max(1) as f64
                };
                own += mean(|message| message.own.cpu);
                own_memory += mean(|message| message.own.memory_bytes);
                let least = self.parts.get(&seated.part).map(|outlook| outlook.cost).filter(|least| *least > 0.0);
                if let (Some(cost), Some(least)) = (costs.get(&seated.part), least) {
                    dearer.push(cost / least);
                }
            }
            let slowness = median(&mut dearer).filter(|times| *times >= SLOW).unwrap_or(1.0);
            // Its parts do not speak for a host that has none.
            if let Some(node) = host.node.as_ref().filter(|_| busy.is_empty()) {
                busy.push(node.busy());
                memory.push(node.memory_bytes);
            }
            let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len().max(1) as f64;
            let outlook = HostOutlook {
                cores: host.cores.max(CORES_MIN),
                busy: quantile(&mut busy.clone(), 0.75).unwrap_or(0.0),
                others: (mean(&busy) - own).max(0.0),
                memory_others: (mean(&memory) - own_memory).max(0.0),
                memory_total: host.memory_total_bytes,
                slowness,
                ..HostOutlook::default()
            };
            self.hosts.insert(&host.id, outlook);
            self.add_up(board, &host.id);
            self.unexplained(board, &host.id);
        }
    }

    /// What is asked of a host by those whom the board has there.
    fn add_up(&mut self, board: &Board<'a>, host: &str) {
        let Some(outlook) = self.hosts.get(host) else { return };
        let mut sum = HostOutlook {
            load: outlook.others,
            load_ahead: outlook.others,
            memory: outlook.memory_others,
            backlog: 0.0,
            rate: 0.0,
            ..*outlook
        };
        for part in self.parts.values().filter(|part| board.host_of(&part.seated.part) == Some(host)) {
            sum.take(part, 1.0);
        }
        self.hosts.entry(self.name(host)).and_modify(|outlook| *outlook = sum);
    }

    fn name(&self, host: &str) -> &'a str {
        self.hosts.get_key_value(host).map_or("", |(name, _)| name)
    }

    /// Half of its parts are slower than this beyond what is explained, in three of four seconds.
    fn unexplained(&mut self, board: &Board<'a>, host: &'a str) {
        // Where the cores are all busy, or were until just now, nothing else needs explaining.
        let Some(outlook) = self.hosts.get(host).filter(|host| host.busy < BUSY * host.cores) else { return };
        let wait_ms = outlook.line(outlook.load).wait(0.0) * 1_000.0;
        let there = self.parts.values().filter(|part| board.host_of(&part.seated.part) == Some(host));
        let mut more: Vec<f64> = there
            .filter(|part| part.held_back < 0.5)
            .filter_map(|part| part.latency_low_ms.map(|latency| (latency - part.base_ms - wait_ms).max(0.0)))
            .collect();
        let unexplained = median(&mut more).unwrap_or(0.0);
        self.hosts.entry(host).and_modify(|outlook| outlook.unexplained_ms = unexplained);
    }

    /// As if it were done.
    pub fn moves(&mut self, board: &mut Board<'a>, part: &Part, to: &str) {
        let Some(seated) = self.parts.get(part).map(|outlook| outlook.seated) else { return };
        let (from, to) = (board.host_of(part).unwrap_or_default(), self.name(to));
        board.moves(&seated.part, to);
        self.add_up(board, from);
        self.add_up(board, to);
    }

    /// Seconds that events will wait at a host.
    pub fn wait(&self, host: &HostOutlook) -> f64 {
        host.line(host.load_ahead).wait(self.ahead_s) + host.unexplained_ms / 1_000.0
    }

    pub fn ahead_s(&self) -> f64 {
        self.ahead_s
    }

    pub fn asks(&self, mut parts: Vec<Part>) -> Asks {
        parts.sort();
        parts.dedup();
        let cores = parts.iter().filter_map(|part| self.parts.get(part)).map(Outlook::cores).sum();
        Asks { parts, cores }
    }
}

impl Outlook<'_> {
    /// Those that it will need on a host that is not slow.
    pub fn cores(&self) -> f64 {
        self.rate_ahead * self.cost
    }
}

impl HostOutlook {
    fn line(&self, load: f64) -> Line {
        Line { cores: self.cores, load, backlog: self.backlog, service: self.service }
    }

    /// With a part more, or (`sign` -1) less.
    pub fn take(&mut self, part: &Outlook, sign: f64) {
        let cost = part.cost * self.slowness;
        // It uses no more, however much it would need.
        let used = |rate: f64| (rate * cost).min(part.seated.cores_max);
        self.load = (self.load + sign * used(part.rate)).max(0.0);
        self.load_ahead = (self.load_ahead + sign * used(part.rate_ahead)).max(0.0);
        self.backlog = (self.backlog + sign * part.queue * cost).max(0.0);
        self.memory = (self.memory + sign * part.memory_bytes).max(0.0);
        self.rate = (self.rate + sign * part.rate_ahead).max(0.0);
        self.service = if self.rate > 0.0 { (self.load_ahead - self.others).max(0.0) / self.rate } else { cost };
    }
}

fn outlook<'a>(asked: &Asked, seated: &'a Seated, now_ms: u64, of_stage: StageOutlook, terms: &Terms) -> Outlook<'a> {
    let heard = asked.memory.of(&seated.part, now_ms, asked.window_ms);
    let heard: Vec<&Message> = heard.filter(|message| message.host == seated.host).collect();
    let mut latencies: Vec<f64> = heard.iter().filter_map(|message| message.latency_ms).collect();
    let enough = latencies.len() >= MESSAGES_MIN;
    let mut held_back: Vec<f64> = heard.iter().map(|message| message.held_back).collect();
    Outlook {
        seated,
        rate: of_stage.trend.level,
        rate_ahead: of_stage.rate_ahead,
        cost: of_stage.cost.unwrap_or(0.0),
        queue: heard.last().map_or(0.0, |message| message.queue),
        memory_bytes: heard.last().map_or(0.0, |message| message.own.memory_bytes),
        held_back: median(&mut held_back).unwrap_or(0.0),
        latency_ms: median(&mut latencies).filter(|_| enough),
        latency_low_ms: quantile(&mut latencies, 0.25).filter(|_| enough),
        base_ms: of_stage.base_ms.unwrap_or(0.0),
        goal_ms: seated.goal_ms.unwrap_or(terms.goal_ms),
    }
}

/// Events that come in a second, whether they were read or lie there.
fn rates(heard: &[&Message]) -> Trend {
    let came = heard.windows(2).filter(|pair| pair[0].host == pair[1].host).map(|pair| {
        let (before, now) = (pair[0], pair[1]);
        let seconds = (now.at_ms - before.at_ms) as f64 / 1_000.0;
        let grown = (now.queue - before.queue) / seconds.max(0.001);
        (now.at_ms as f64 / 1_000.0, (now.events_in + grown).max(0.0))
    });
    let found = trend(&came.collect::<Vec<_>>()).unwrap_or_default();
    Trend { level: found.level.max(0.0), ..found }
}
