//! Which move spares most waiting.

use std::collections::BTreeMap;

use mutirao_streams::wire::Part;

use super::forecast::{Forecast, HostOutlook, Outlook};
use super::proof::Trials;
use crate::adaptive::Asked;
use crate::round::{Considered, Fit, Resource, Verdict, Why};
use crate::scene::{Board, HostId};
use crate::settings::Terms;

/// Seconds that a move takes beside what it carries.
const SET_UP_S: f64 = 0.5;
/// Above it a part is not slow, but those after it.
const HELD_BACK: f64 = 0.5;

#[derive(Clone, Debug)]
pub struct Best {
    pub part: Part,
    pub to: HostId,
    /// Foreseen for it where it is.
    pub foreseen_ms: f64,
    /// Seconds of waiting that are spared in a second.
    pub spared: f64,
}

pub struct Found {
    pub best: Option<Best>,
    /// All of hosts that gave cause.
    pub considered: Vec<Considered>,
    /// Those for which no host has room.
    pub nowhere: Vec<Part>,
}

struct Asking<'a, 'b> {
    asked: &'a Asked<'a>,
    board: &'a Board<'b>,
    terms: &'a Terms,
    trials: &'a Trials,
    forecast: &'a Forecast<'b>,
    /// Seconds, of each host as it is.
    waits: BTreeMap<&'a str, f64>,
}

pub fn look(asked: &Asked, board: &Board, terms: &Terms, trials: &Trials, forecast: &Forecast) -> Found {
    let waits = forecast.hosts.iter().map(|(host, outlook)| (*host, forecast.wait(outlook))).collect();
    let asking = Asking { asked, board, terms, trials, forecast, waits };
    let mut found = Found { best: None, considered: Vec::new(), nowhere: Vec::new() };
    for (host, outlook) in &forecast.hosts {
        let there = || forecast.parts.values().filter(|part| board.host_of(&part.seated.part) == Some(host));
        if there().all(|part| foreseen_ms(forecast, outlook, part) <= part.goal_ms) {
            continue;
        }
        let (mut helped, mut movable) = (false, Vec::new());
        for part in there().filter(|part| part.rate_ahead > 0.0) {
            let (considered, best) = consider(&asking, outlook, part);
            if let Some(best) = best {
                helped = true;
                if found.best.as_ref().is_none_or(|so_far| best.spared > so_far.spared) {
                    found.best = Some(best);
                }
            } else if considered.verdict == Verdict::NoTarget {
                movable.push(part.seated.part.clone());
            }
            found.considered.push(considered);
        }
        if !helped {
            found.nowhere.extend(movable);
        }
    }
    found
}

/// For one that is on a host as this.
fn foreseen_ms(forecast: &Forecast, host: &HostOutlook, part: &Outlook) -> f64 {
    part.base_ms + forecast.wait(host) * 1_000.0
}

fn consider(asking: &Asking, here: &HostOutlook, part: &Outlook) -> (Considered, Option<Best>) {
    let Asking { asked, board, terms, trials, forecast, .. } = asking;
    let seated = part.seated;
    let mut considered = Considered {
        part: seated.part.clone(),
        from: seated.host.clone(),
        why: why(forecast, here, part),
        tried: Vec::new(),
        verdict: Verdict::NoTarget,
    };
    if let Some(verdict) = stays(asked, board, terms, part) {
        considered.verdict = verdict;
        return (considered, None);
    }
    let mut best: Option<Best> = None;
    for host in board.scene.hosts.iter().filter(|host| host.id != seated.host) {
        let fit = match forecast.hosts.get(host.id.as_str()) {
            None => Fit::Unknown,
            _ if !host.takes => Fit::TakesNone,
            _ if seated.barred.contains(&host.id) => Fit::Barred,
            _ if trials.bars(&seated.part, &host.id, board.scene.now_ms) => Fit::Barred,
            _ if board.has_replica(&host.id, &seated.part) => Fit::HasReplica,
            Some(there) => fit(asking, here, there, part, &host.id),
        };
        if let Fit::Spares { spared, .. } = fit
            && best.as_ref().is_none_or(|so_far| spared > so_far.spared)
        {
            let foreseen_ms = foreseen_ms(forecast, here, part);
            best = Some(Best { part: seated.part.clone(), to: host.id.clone(), foreseen_ms, spared });
        }
        considered.tried.push((host.id.clone(), fit));
    }
    if best.is_some() {
        considered.verdict = Verdict::AnotherHelps;
    }
    (considered, best)
}

fn why(forecast: &Forecast, here: &HostOutlook, part: &Outlook) -> Why {
    let goal_ms = part.goal_ms;
    let foreseen_ms = foreseen_ms(forecast, here, part);
    match part.latency_ms {
        Some(latency_ms) if foreseen_ms - here.unexplained_ms <= goal_ms => {
            Why::Unexplained { latency_ms, expected_ms: foreseen_ms - here.unexplained_ms, goal_ms }
        }
        latency_ms => Why::Foreseen {
            load: here.load,
            load_ahead: here.load_ahead,
            cores: here.cores,
            latency_ms,
            foreseen_ms,
            goal_ms,
        },
    }
}

/// Why it is no candidate, if so.
fn stays(asked: &Asked, board: &Board, terms: &Terms, part: &Outlook) -> Option<Verdict> {
    let seated = part.seated;
    if let Some(because) = &seated.fixed {
        return Some(Verdict::Fixed { because: because.clone() });
    }
    if board.replica_moves(&seated.part) {
        return Some(Verdict::ReplicaMoves);
    }
    if part.held_back >= HELD_BACK {
        return Some(Verdict::HeldBack { share: part.held_back });
    }
    let cores = part.rate * part.cost;
    if cores > seated.cores_max {
        return Some(Verdict::NeedsMore { cores, cores_max: seated.cores_max });
    }
    let until_ms = asked.last_moved.get(&seated.part).map_or(0, |at| at + terms.rest_ms);
    (board.scene.now_ms < until_ms).then_some(Verdict::Rests { until_ms })
}

fn fit(asking: &Asking, here: &HostOutlook, there: &HostOutlook, part: &Outlook, to: &str) -> Fit {
    let Asking { forecast, terms, .. } = asking;
    let (mut left, mut joined) = (here.clone(), there.clone());
    left.take(part, -1.0);
    joined.take(part, 1.0);
    let memory = joined.memory_total * terms.full;
    if joined.memory_total > 0.0 && joined.memory > memory {
        return Fit::Full { resource: Resource::Memory, would_be: joined.memory, limit: memory };
    }
    let limit = joined.cores * terms.full;
    let (wait_left, wait_joined) = (forecast.wait(&left), forecast.wait(&joined));
    // Where all hosts will have too much, the one that has least of it is still better than what is.
    let better = wait_joined < forecast.wait(here) / 2.0;
    if joined.load > limit || (joined.load_ahead > limit && !better) {
        return Fit::Full { resource: Resource::Cpu, would_be: joined.load_ahead.max(joined.load), limit };
    }
    let from = part.seated.host.as_str();
    let before = pain(asking, from, to, |_, host| asking.waits.get(host).copied().unwrap_or(0.0));
    let after = pain(asking, from, to, |one, host| match host {
        _ if *one == part.seated.part => wait_joined,
        host if host == from => wait_left,
        host if host == to => wait_joined,
        host => asking.waits.get(host).copied().unwrap_or(0.0),
    });
    let spared = before - after - cost(forecast, terms, part);
    let share = if before > 0.0 { spared / before } else { 0.0 };
    if share < terms.worth {
        return Fit::NotWorth { share };
    }
    Fit::Spares { wait_ms: wait_joined * 1_000.0, share, spared }
}

/// Seconds waited in a second by all events of the stages that have a part on either host. Readers take the first copy, so the
/// replica with the shortest wait counts whole, and the one with the longest as much as [`Terms::last_copy`] says.
fn pain(asking: &Asking, from: &str, to: &str, wait: impl Fn(&Part, &str) -> f64) -> f64 {
    let Asking { forecast, board, terms, .. } = asking;
    let mut sum = 0.0;
    for replicas in forecast.stages.values() {
        let host = |part: &Part| board.host_of(part).unwrap_or_default();
        if !replicas.iter().any(|part| host(part) == from || host(part) == to) {
            continue;
        }
        let waits = || replicas.iter().map(|part| wait(part, host(part)));
        let (first, last) = (waits().fold(f64::INFINITY, f64::min), waits().fold(0.0, f64::max));
        let rate = replicas.first().and_then(|part| forecast.parts.get(*part)).map_or(0.0, |part| part.rate_ahead);
        sum += rate * (first + terms.last_copy * last);
    }
    sum
}

/// Seconds that events wait for the move itself, in a second of the time looked ahead: those that come while the state is on its
/// way wait half of it, on average.
fn cost(forecast: &Forecast, terms: &Terms, part: &Outlook) -> f64 {
    let takes = SET_UP_S + part.seated.state_bytes / terms.bytes_per_s.max(1.0);
    part.rate * takes * takes / 2.0 / forecast.ahead_s().max(1.0)
}
