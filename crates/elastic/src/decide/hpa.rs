//! The horizontal autoscaler of Kubernetes, in full: a proposal for each metric, the largest taken, held within what was
//! recommended lately, limited by rates, floor and ceiling.
//!
//! Two things differ, on purpose. There, a target with no replica at all and a floor above none is switched off; here it is
//! brought to its floor, since pausing is a state of its own. And there, a figure for the whole while no replica is ready
//! asks for none; here it is not used.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::quantity::Span;

use super::usage::{Aim, Tolerance, usage};
use super::{State, Verdict, rules};
use crate::measure::{Load, Source};
use crate::policy::{Behaviour, Hpa, Metric, Rate, Rules, Target};

/// Where no behaviour is given: down by the highest recommendation of this long…
const WINDOW_DOWN: Duration = Duration::from_secs(300);
/// …and up to twice as many, or to this many.
const UP_TO_MIN: u32 = 4;

pub struct Range {
    pub was: u32,
    pub min: u32,
    pub max: u32,
}

/// What one metric asks for.
struct Proposal {
    count: u32,
    said: String,
}

impl Hpa {
    /// How long changes are to be remembered.
    pub(super) fn period_longest(&self) -> Duration {
        let rates = self.behaviour.iter().flat_map(|b| b.up.policies.iter().chain(&b.down.policies));
        rates.map(|rate| rate.per.0).max().unwrap_or_default()
    }

    fn tolerances(&self) -> Tolerance {
        let of = |rules: Option<&Rules>| rules.and_then(|r| r.tolerance).unwrap_or(self.tolerance);
        Tolerance { up: of(self.behaviour.as_ref().map(|b| &b.up)), down: of(self.behaviour.as_ref().map(|b| &b.down)) }
    }
}

pub fn verdict(policy: &Hpa, state: &mut State, load: &Load, range: &Range, now: Timestamp) -> Verdict {
    let was = range.was;
    let mut because = Vec::new();
    let mut largest: Option<u32> = None;
    let mut missing = false;
    for metric in &policy.metrics {
        match propose(policy, metric, load, was) {
            Ok(proposal) => {
                largest = largest.max(Some(proposal.count));
                because.push(proposal.said);
            }
            Err(why) => {
                missing = true;
                because.push(format!("{}: {why}", metric.source.name()));
            }
        }
    }
    let Some(proposed) = largest else {
        because.push(format!("stays at {was}: no metric can be read"));
        return Verdict { count: was, because };
    };
    if missing && proposed < was {
        because.push(format!("stays at {was}: a metric that cannot be read might need them"));
        return Verdict { count: was, because };
    }
    state.recent.begin(was, now);
    let count = match &policy.behaviour {
        Some(behaviour) => with_behaviour(behaviour, state, proposed, range, now, &mut because),
        None => without_behaviour(state, proposed, range, now, &mut because),
    };
    Verdict { count, because }
}

fn propose(policy: &Hpa, metric: &Metric, load: &Load, current: u32) -> Result<Proposal, String> {
    let name = metric.source.name();
    let tolerance = policy.tolerances();
    let of_workers = |of: fn(&crate::measure::Sample) -> crate::measure::Use, aim, settle| {
        let usage = usage(&load.samples, of, aim, current, tolerance, settle)?;
        let (unit, value) = match aim {
            Aim::Percent(value) => (" %", value),
            Aim::Each(value) => ("", value),
        };
        let unknown = if usage.unknown > 0 { format!(" ({} not known)", usage.unknown) } else { String::new() };
        let said = format!(
            "{name} of {} workers{unknown} is {}{unit} of {value}{unit}: {}",
            usage.known, usage.figure, usage.count
        );
        Ok(Proposal { count: usage.count, said })
    };
    match (metric.source, metric.target) {
        // Memory has no start-up peak that would go away.
        (Source::Cpu, Target::Percent(value)) => of_workers(|s| s.cpu, Aim::Percent(value), policy.settle.0),
        (Source::Cpu, Target::PerWorker(value)) => of_workers(|s| s.cpu, Aim::Each(value), policy.settle.0),
        (Source::Memory, Target::Percent(value)) => of_workers(|s| s.memory, Aim::Percent(value), Duration::ZERO),
        (Source::Memory, Target::PerWorker(value)) => of_workers(|s| s.memory, Aim::Each(value), Duration::ZERO),
        (source, Target::PerWorker(each)) => {
            let figure = load.gauge(source).ok_or("no figure")?;
            let standing = load.workers.standing();
            let ratio = figure / (each * f64::from(standing));
            let count = if tolerance.covers(ratio) { standing } else { (figure / each).ceil() as u32 };
            Ok(Proposal {
                count,
                said: format!("{name} is {figure} over {standing} workers, {each} each wanted: {count}"),
            })
        }
        (source, Target::Total(total) | Target::Percent(total)) => whole(load, source, total, tolerance, current),
        (source, Target::Wait(wait)) => whole(load, source, wait.0.as_secs_f64(), tolerance, current),
    }
}

/// A figure that more workers make smaller, though it is not divided among them.
fn whole(load: &Load, source: Source, target: f64, tolerance: Tolerance, current: u32) -> Result<Proposal, String> {
    let figure = load.gauge(source).ok_or("no figure")?;
    let ratio = figure / target;
    let ready = load.workers.running;
    let count = if current == 0 {
        ratio.ceil() as u32
    } else if tolerance.covers(ratio) {
        current
    } else if ready == 0 {
        return Err(format!("is {figure:.1} of {target}, but no worker is ready yet"));
    } else {
        (ratio * f64::from(ready)).ceil() as u32
    };
    Ok(Proposal {
        count,
        said: format!("{} is {figure:.1} of {target} with {ready} workers ready: {count}", source.name()),
    })
}

fn with_behaviour(
    behaviour: &Behaviour,
    state: &mut State,
    proposed: u32,
    range: &Range,
    now: Timestamp,
    because: &mut Vec<String>,
) -> u32 {
    let Behaviour { up, down } = behaviour;
    let lowest = state.recent.lowest(proposed, now, up.window.0);
    let highest = state.recent.highest(proposed, now, down.window.0);
    state.recent.note(proposed, now, up.window.0.max(down.window.0));
    // Inside the two there is no agreement that anything should change.
    let stable = range.was.max(lowest).min(highest);
    if stable != proposed && proposed >= range.was {
        because.push(format!("{stable}, the lowest asked for in the last {}", up.window));
    } else if stable != proposed {
        because.push(format!("{stable}, the highest asked for in the last {}", down.window));
    }
    let limited = if stable > range.was {
        stable.min(rules::up_to(up, &state.turns, range.was, now))
    } else if stable < range.was {
        stable.max(rules::down_to(down, &state.turns, range.was, now).max(range.min))
    } else {
        stable
    };
    if limited < stable.min(range.max) {
        because.push(format!("{limited}, since it may grow by {}", said(up)));
    } else if limited > stable.max(range.min) {
        because.push(format!("{limited}, since it may shrink by {}", said(down)));
    }
    limited
}

fn without_behaviour(
    state: &mut State,
    proposed: u32,
    range: &Range,
    now: Timestamp,
    because: &mut Vec<String>,
) -> u32 {
    let highest = state.recent.highest(proposed, now, WINDOW_DOWN);
    state.recent.note(proposed, now, WINDOW_DOWN);
    if highest > proposed {
        because.push(format!("{highest}, the highest asked for in the last {}", Span(WINDOW_DOWN)));
    }
    let up_to = range.was.saturating_mul(2).max(UP_TO_MIN);
    if highest > up_to && up_to < range.max {
        because.push(format!("{up_to}, since it may at most double at once"));
    }
    highest.min(up_to)
}

fn said(rules: &Rules) -> String {
    use crate::policy::Select;
    let each: Vec<String> = rules.policies.iter().map(Rate::to_string).collect();
    match rules.select {
        Select::Disabled => "nothing".into(),
        Select::Max if each.len() > 1 => format!("the larger of {}", each.join(" and ")),
        Select::Min if each.len() > 1 => format!("the smaller of {}", each.join(" and ")),
        Select::Max | Select::Min => each.join(""),
    }
}
