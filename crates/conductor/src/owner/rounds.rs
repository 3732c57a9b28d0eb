//! Rounds of a mover: what hosts say of their parts goes in, moves come out, which are asked for like anybody's. What it decides
//! by says `mutirao_movers`.
//!
//! One mover looks after all streams that this process owns. It remembers nothing that another owner would need: whoever takes a
//! shard over hears what hosts say, and has a round after a window of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mutirao_core::Mono;
use mutirao_movers::round::Asks;
use mutirao_movers::{Message, Mover, Round, Scene, Seated, Settings, Strategy, Use};
use mutirao_streams::wire::{Standing, StreamId, Usage, What};

#[cfg(test)]
mod tests;

use super::Sight;
use crate::meters;
use crate::moving::Move;
use crate::placing::{Host, HostId, Life, Refused, Wanted};

/// In whose name moves are asked for.
pub const WHO: &str = "mover";
/// A part works on one record after the other.
const CORES_MAX: f64 = 1.0;

/// What a round says of one stream.
pub struct Said {
    pub stream: StreamId,
    pub moves: Vec<Move>,
    /// In words, where it is not what was said of it last.
    pub told: Option<String>,
}

/// How each part fared, and whether a host was missing.
type Told = (Vec<(u32, u32, String)>, bool);

pub struct Rounds {
    /// None where nothing moves.
    mover: Option<Mover>,
    /// When it was first asked: rounds are told by the time since then.
    began: Option<Mono>,
    /// How often each host had been heard when its parts' messages were taken.
    beats: BTreeMap<HostId, u64>,
    /// What was told of each stream last: how each part fared, not the figures.
    told: HashMap<StreamId, Told>,
}

impl Rounds {
    pub fn of(settings: Settings) -> Self {
        let mover = (settings.strategy != Strategy::None).then(|| Mover::new(settings));
        Self { mover, began: None, beats: BTreeMap::new(), told: HashMap::new() }
    }

    /// Once more around. `now`: of this process, since clocks of hosts need not agree.
    pub(super) fn go_on(&mut self, sight: &Sight, hosts: &[Host], wanted: &[Wanted], now: Mono) -> Vec<Said> {
        let began = *self.began.get_or_insert(now);
        let now_ms = now.since(began).as_millis() as u64;
        let Some(mover) = &mut self.mover else { return Vec::new() };
        hear(mover, &mut self.beats, sight, wanted, now_ms);
        let scene = scene(sight, hosts, wanted, now_ms);
        let Some(round) = mover.round(&scene) else { return Vec::new() };
        meters::missing(round.asks_for_host.as_ref().map_or(0.0, |asks| asks.cores));
        self.told.retain(|stream, _| scene.parts.iter().any(|one| one.part.stream == *stream));
        let streams: BTreeSet<&StreamId> = round.considered.iter().map(|one| &one.part.stream).collect();
        // Whoever did well meanwhile is news again. A round that only waited for a move found nobody well.
        if round.waits_for.is_empty() {
            self.told.retain(|stream, _| streams.contains(stream));
        }
        streams.into_iter().map(|stream| self.said(sight, stream, &round)).collect()
    }

    fn said(&mut self, sight: &Sight, stream: &StreamId, round: &Round) -> Said {
        let round = Round {
            considered: round.considered.iter().filter(|one| one.part.stream == *stream).cloned().collect(),
            asks_for_host: round.asks_for_host.as_ref().and_then(|asks| asks_of(asks, stream)),
            ..round.clone()
        };
        let moves = round.considered.iter().filter_map(|one| {
            let to = round.moves().find(|chosen| chosen.part == one.part)?.to;
            let (part, why) = (one.part.clone(), one.why.to_string());
            Some(Move { part, to, begun: None, who: WHO.to_owned(), why, since: sight.now })
        });
        let moves: Vec<Move> = moves.collect();
        let fared: Vec<(u32, u32, String)> = round
            .considered
            .iter()
            .map(|one| match one.part.what {
                What::Source(n) | What::Stage(n) | What::Sink(n) => (n, one.part.replica, kind(&one.verdict)),
            })
            .collect();
        let fared = (fared, round.asks_for_host.is_some());
        let is_new = self.told.get(stream) != Some(&fared);
        let told = (is_new || !moves.is_empty()).then(|| sight.named(&round.to_string(), stream));
        self.told.insert(stream.clone(), fared);
        Said { stream: stream.clone(), moves, told }
    }
}

/// For the parts of a stream: those of others are not its readers' business.
fn asks_of(asks: &Asks, stream: &StreamId) -> Option<Asks> {
    let parts: Vec<_> = asks.parts.iter().filter(|part| part.stream == *stream).cloned().collect();
    (!parts.is_empty()).then_some(Asks { parts, cores: asks.cores })
}

/// What hosts have said since it was looked at last.
fn hear(mover: &mut Mover, beats: &mut BTreeMap<HostId, u64>, sight: &Sight, wanted: &[Wanted], now_ms: u64) {
    for (row, life) in &sight.hosts {
        let before = beats.insert(row.host.id.clone(), row.beats);
        if *life == Life::Gone || before == Some(row.beats) {
            continue;
        }
        for report in &row.reports {
            let here = wanted.iter().any(|one| {
                one.part == report.part
                    && one.epoch == report.epoch
                    && one.seat.as_ref().is_some_and(|seat| seat.host == row.host.id)
            });
            if here {
                let id = row.host.id.clone();
                mover.hear(now_ms, Message::of(report.part.clone(), id, now_ms, &report.measures, &row.node));
            }
        }
    }
    beats.retain(|id, _| sight.hosts.iter().any(|(row, _)| row.host.id == *id));
}

/// What became of a part, without figures: the same fate once more is no news.
fn kind(verdict: &mutirao_movers::round::Verdict) -> String {
    let text = format!("{verdict:?}");
    text.split([' ', '{']).next().unwrap_or_default().to_owned()
}

fn scene(sight: &Sight, hosts: &[Host], wanted: &[Wanted], now_ms: u64) -> Scene {
    let alive = hosts.iter().filter(|host| host.life == Life::Alive);
    // Whoever has hosts apart wants managers free: nothing is moved into one.
    let any_apart = hosts.iter().any(|host| host.life == Life::Alive && host.standing == Standing::Apart);
    let nodes: HashMap<&str, &Usage> = sight.hosts.iter().map(|(row, _)| (row.host.id.as_str(), &row.node)).collect();
    let seated = |one: &Wanted| {
        let seat = one.seat.as_ref()?;
        let report = sight.said(&seat.host, &one.part, one.epoch);
        let fixed = match (&one.part.what, &one.needs.pin, one.needs.inside) {
            (What::Source(_) | What::Sink(_), ..) => Some(Refused::OnlyStages.to_string()),
            (_, Some(pin), _) => Some(format!("it is pinned to {pin}")),
            (_, _, Some(what)) => Some(format!("it needs {what}")),
            _ => None,
        };
        Some(Seated {
            part: one.part.clone(),
            host: seat.host.clone(),
            fixed,
            barred: BTreeSet::new(),
            state_bytes: report.map_or(0.0, |report| report.measures.memory_bytes as f64),
            cores_max: CORES_MAX,
            goal_ms: None,
            // All that passes between parts goes through logs at the broker, so that a neighbour spares nothing.
            links: Vec::new(),
        })
    };
    Scene {
        now_ms,
        hosts: alive
            .map(|host| {
                let node = nodes.get(host.id.as_str());
                let all = f64::from(host.cores.max(1));
                mutirao_movers::Host {
                    id: host.id.clone(),
                    memory_total_bytes: node.map_or(0.0, |node| node.memory_total_bytes as f64),
                    cores: node.map(|node| node.cores).filter(|cores| *cores > 0.0).map_or(all, |cores| cores.min(all)),
                    node: node.map(|node| Use::of(node)),
                    takes: host.standing == Standing::Apart || !any_apart,
                }
            })
            .collect(),
        parts: wanted.iter().filter_map(seated).collect(),
        moving: sight.held.moves.iter().map(|one| one.part.clone()).collect(),
    }
}

impl Sight {
    /// With hosts and parts called as people know them.
    fn named(&self, text: &str, stream: &StreamId) -> String {
        let mut text = text.to_owned();
        let parts = self.held.parts.iter().map(|row| &row.part).filter(|part| part.stream == *stream);
        for part in parts {
            let called = match part.what {
                What::Source(n) => format!("{stream} source {n} "),
                What::Stage(n) => format!("{stream} stage {n} replica {} ", part.replica),
                What::Sink(n) => format!("{stream} sink {n} "),
            };
            text = text.replace(&called, &format!("{} ", self.shown(part)));
        }
        for (row, _) in &self.hosts {
            text = text.replace(&row.host.id, &row.host.name);
        }
        text
    }
}
