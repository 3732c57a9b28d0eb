//! Moves are looked at afterwards. One that made things worse is undone, and not made again for a while.

use std::collections::BTreeMap;

use mutirao_streams::wire::Part;

use super::choosing::Best;
use super::forecast::Forecast;
use crate::round::Why;
use crate::scene::{Board, HostId, Stage, stage};
use crate::settings::Terms;

/// Worse is more than this many times what was to be expected without the move.
const WORSE: f64 = 1.5;

#[derive(Clone, Debug, Default)]
pub struct Trials {
    open: BTreeMap<Part, Trial>,
    /// Until when no part of a stage is moved to a host.
    barred: BTreeMap<(Stage, HostId), u64>,
}

#[derive(Clone, Debug)]
struct Trial {
    from: HostId,
    to: HostId,
    at_ms: u64,
    foreseen_ms: f64,
}

pub struct Undone {
    pub part: Part,
    pub from: HostId,
    pub to: HostId,
    pub why: Why,
}

impl Trials {
    pub(super) fn begin(&mut self, best: &Best, from: &str, at_ms: u64) {
        let trial = Trial { from: from.into(), to: best.to.clone(), at_ms, foreseen_ms: best.foreseen_ms };
        self.open.insert(best.part.clone(), trial);
    }

    pub fn bars(&self, part: &Part, host: &str, now_ms: u64) -> bool {
        self.barred.get(&(stage(part), host.to_owned())).is_some_and(|until| now_ms < *until)
    }
}

/// Those to be undone now, at most so many.
pub fn look(trials: &mut Trials, forecast: &Forecast, board: &Board, terms: &Terms, most: u32) -> Vec<Undone> {
    let now_ms = board.scene.now_ms;
    trials.barred.retain(|_, until| now_ms < *until);
    trials.open.retain(|_, trial| now_ms <= trial.at_ms + terms.proof_ms.1);
    let mut undone = Vec::new();
    for (part, trial) in &trials.open {
        if now_ms < trial.at_ms + terms.proof_ms.0 || board.host_of(part) != Some(&trial.to) {
            continue;
        }
        // Two replicas that both did badly go back one after the other.
        if undone.iter().any(|one: &Undone| stage(&one.part) == stage(part)) || undone.len() as u32 >= most {
            continue;
        }
        if let Some(why) = worse(part, trial, forecast, board, terms) {
            undone.push(Undone { part: part.clone(), from: trial.to.clone(), to: trial.from.clone(), why });
        }
    }
    for one in &undone {
        trials.open.remove(&one.part);
        trials.barred.insert((stage(&one.part), one.from.clone()), now_ms + terms.barred_ms);
    }
    undone
}

fn worse(part: &Part, trial: &Trial, forecast: &Forecast, board: &Board, terms: &Terms) -> Option<Why> {
    let outlook = forecast.parts.get(part)?;
    let latency_ms = outlook.latency_low_ms?;
    if latency_ms <= outlook.goal_ms || latency_ms <= WORSE * trial.foreseen_ms {
        return None;
    }
    let takes = board.scene.hosts.iter().any(|host| host.id == trial.from && host.takes);
    if !takes || outlook.seated.fixed.is_some() || outlook.seated.barred.contains(&trial.from) {
        return None;
    }
    if board.has_replica(&trial.from, part) || board.replica_moves(part) {
        return None;
    }
    let mut back = forecast.hosts.get(trial.from.as_str())?.clone();
    back.take(outlook, 1.0);
    let there_ms = outlook.base_ms + forecast.wait(&back) * 1_000.0;
    let fits = back.load_ahead <= back.cores * terms.full && there_ms * WORSE < latency_ms;
    let (moved_from, before_ms) = (trial.from.clone(), trial.foreseen_ms);
    fits.then_some(Why::Worse { moved_from, before_ms, latency_ms })
}
