//! How flows and their runs look.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_flows::foreman::explaining::{At, StepExplained};
use mutirao_flows::view::{FlowView, RunExplained, RunLine, RunState, RunView};
use mutirao_nodes::routing::{Overflow, Place};
use serde_json::Value;

use super::{ago, facts, one_line, or_dash, rough, table};

/// Of an output, so much is shown in a table.
const OUTPUT_CHARS: usize = 80;
/// Who watches a run is told so many things that it waits for; `flow explain` has them all.
const WAITS_TOLD: usize = 3;

pub fn flows(views: &[FlowView], now: Timestamp) -> String {
    if views.is_empty() {
        return "there are no flows; `mutirao flow apply -f FILE` makes one".into();
    }
    let row = |view: &FlowView| {
        let definition = &view.definition;
        vec![
            definition.name.clone(),
            definition.steps.len().to_string(),
            view.revision.to_string(),
            ago(view.changed_at, now),
            view.changed_by.clone(),
        ]
    };
    table(vec!["FLOW", "STEPS", "REVISION", "CHANGED", "BY"], views.iter().map(row))
}

pub fn flow(view: &FlowView, now: Timestamp) -> String {
    let definition = &view.definition;
    let head = facts(&[
        ("flow", definition.name.clone()),
        ("revision", format!("{}, {} ago by {}", view.revision, ago(view.changed_at, now), view.changed_by)),
        ("timeout", or_dash(definition.timeout)),
        ("output", or_dash(definition.output.as_deref())),
    ]);
    let row = |step: &mutirao_flows::definition::StepSpec| {
        vec![
            step.name.clone(),
            step.action.clone(),
            or_dash((!step.after.is_empty()).then(|| step.after.join(", "))),
            place(&step.on),
            or_dash(step.retries),
            or_dash(step.timeout),
            or_dash(step.when.as_deref().map(one_line)),
            or_dash(step.each.as_deref().map(one_line)),
        ]
    };
    let heading = vec!["STEP", "ACTION", "AFTER", "ON", "RETRIES", "TIMEOUT", "WHEN", "EACH"];
    format!("{head}\n\n{}", table(heading, definition.steps.iter().map(row)))
}

/// Where a step may go: `edge only, zone=north`.
fn place(on: &Place) -> String {
    let only = if on.overflow == Overflow::Never { " only" } else { "" };
    let layer = on.layer.map(|layer| format!("{}{only}", format!("{layer:?}").to_lowercase()));
    let labels = on.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let all: Vec<String> =
        layer.into_iter().chain(labels).chain(on.node.as_ref().map(|node| format!("node {node}"))).collect();
    or_dash((!all.is_empty()).then(|| all.join(", ")))
}

pub fn runs(lines: &[RunLine], now: Timestamp) -> String {
    if lines.is_empty() {
        return "there are no runs; `mutirao flow run NAME` begins one".into();
    }
    let row = |line: &RunLine| {
        let took = line.ended_at.unwrap_or(now).since(line.started_at);
        vec![
            line.run.to_string(),
            line.flow.clone(),
            state(line.state).into(),
            ago(line.started_at, now),
            rough(took),
            line.owner.clone(),
        ]
    };
    table(vec!["RUN", "FLOW", "STATE", "BEGAN", "TOOK", "BY"], lines.iter().map(row))
}

pub fn run(view: &RunView, now: Timestamp) -> String {
    let took = view.ended_at.unwrap_or(now).since(view.started_at);
    let mut known = vec![
        ("run", view.run.to_string()),
        ("flow", view.flow.clone()),
        ("state", state(view.state).into()),
        ("took", rough(took)),
    ];
    if let Some(step) = &view.failed_step {
        known.push(("failed at", step.clone()));
    }
    if let Some(reason) = &view.reason {
        known.push(("reason", reason.clone()));
    }
    if let Some(output) = &view.output {
        known.push(("output", short(output)));
    }
    let rows = steps(view).into_iter().map(|(name, step)| {
        vec![
            name,
            text(&step["state"]),
            text(&step["node"]),
            text(&step["tries"]),
            step["took_ms"].as_u64().map_or("-".into(), |ms| rough(Duration::from_millis(ms))),
            short(if step["reason"].is_null() { &step["output"] } else { &step["reason"] }),
        ]
    });
    let steps = table(vec!["STEP", "STATE", "NODE", "IN VAIN", "TOOK", "OUTPUT"], rows);
    format!("{}\n\n{steps}", facts(&known))
}

/// What a run gave, for whoever waited for it.
pub fn run_end(view: &RunView) -> String {
    match (view.state, &view.output) {
        (RunState::Done, Some(Value::String(text))) => text.clone(),
        (RunState::Done, output) => serde_json::to_string_pretty(output).unwrap_or_default(),
        (RunState::Failed, _) => {
            let at = view.failed_step.as_ref().map_or(String::new(), |step| format!(" at {step}"));
            format!("run {} failed{at}: {}", view.run, view.reason.as_deref().unwrap_or("nobody said why"))
        }
        (other, _) => format!("run {}: {}", view.run, state(other)),
    }
}

/// Those that have ended, each with a line of its own.
pub fn steps_ended(view: &RunView) -> Vec<(String, String)> {
    let line = |(name, step): (String, Value)| {
        let (on, took) = (text(&step["node"]), step["took_ms"].as_u64().unwrap_or_default());
        let said = match step["state"].as_str() {
            Some("skipped") => format!("{name}: skipped"),
            Some("ok") => format!("{name}: ok on {on} in {}", rough(Duration::from_millis(took))),
            _ if step["node"].is_null() => format!("{name}: failed: {}", text(&step["reason"])),
            _ => format!("{name}: failed on {on}: {}", text(&step["reason"])),
        };
        (name, said)
    };
    steps(view).into_iter().map(line).collect()
}

/// Steps, and those of lists one by one.
fn steps(view: &RunView) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (name, step) in view.steps.as_object().into_iter().flatten() {
        match step {
            Value::Array(items) => {
                let ended = items.iter().enumerate().filter(|(_, item)| !item.is_null());
                all.extend(ended.map(|(n, item)| (format!("{name}[{n}]"), item.clone())));
            }
            one => all.push((name.clone(), one.clone())),
        }
    }
    // As they went; what was skipped never began.
    all.sort_by_key(|(_, step)| step["began_at"].as_i64().unwrap_or(i64::MAX));
    all
}

pub fn run_explained(explained: &RunExplained, now: Timestamp) -> String {
    let mut lines = vec![format!("run {} of {}: {}", explained.run, explained.flow, state(explained.state))];
    if let Some(address) = &explained.owned_at {
        lines.push(format!("it is looked after at {address}"));
    }
    lines.extend(explained.steps.iter().map(|step| step_explained(step, now)));
    lines.join("\n")
}

fn step_explained(step: &StepExplained, now: Timestamp) -> String {
    let name = named(step);
    let because = |why: &Option<String>| why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    let said = match &step.at {
        At::After { waits_for } => format!("waits for {}", waits_for.join(", ")),
        At::Turn => "waits for its turn: only so many of its list go at once (at_once)".into(),
        At::Node { why } => format!("waits for a node: {why}"),
        At::Ready => "is about to be sent".into(),
        At::Sent { node, why, since, left_ms } => format!(
            "is with {} for {}{}; tried again in {} if nothing is heard",
            node.as_ref().map_or("a node".into(), ToString::to_string),
            ago(*since, now),
            because(why),
            rough(Duration::from_millis(*left_ms))
        ),
        At::Writing => "has ended; that is being written".into(),
        At::Done { node: Some(node), why } => format!("done by {node}{}", because(why)),
        At::Done { node: None, .. } => "done".into(),
        At::Failed { node, reason } => {
            format!("failed on {}: {reason}", node.as_ref().map_or("a node".into(), ToString::to_string))
        }
        At::Skipped => "skipped".into(),
        At::Open => "has begun and not ended".into(),
    };
    let tries = tried_in_vain(step).map_or(String::new(), |tries| format!("; {tries}"));
    format!("  {name}: {said}{tries}")
}

fn tried_in_vain(step: &StepExplained) -> Option<String> {
    let tries = match step.tries {
        0 => return None,
        1 => "1 try in vain".to_owned(),
        more => format!("{more} tries in vain"),
    };
    Some(match &step.last_reason {
        Some(reason) => format!("{tries}, the last: {reason}"),
        None => tries,
    })
}

/// What keeps a run from going on, for whoever watches it: no node, or tries that are in vain.
pub fn run_waits_for(explained: &RunExplained) -> Vec<String> {
    let waits = |step: &StepExplained| {
        let name = named(step);
        match &step.at {
            At::Node { why } => Some(format!("{name}: waits for a node: {why}")),
            At::Done { .. } | At::Failed { .. } | At::Skipped => None,
            _ => tried_in_vain(step).map(|tries| format!("{name}: {tries}")),
        }
    };
    explained.steps.iter().filter_map(waits).take(WAITS_TOLD).collect()
}

fn named(step: &StepExplained) -> String {
    step.item.map_or(step.step.clone(), |item| format!("{}[{item}]", step.step))
}

fn state(state: RunState) -> &'static str {
    match state {
        RunState::TimedOut => "timed out",
        other => other.as_str(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn short(value: &Value) -> String {
    let text = text(value);
    match text.char_indices().nth(OUTPUT_CHARS) {
        None => text,
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_flow_is_shown_with_where_when_and_how_often_its_steps_go() {
        let on = json!({"layer": "edge", "overflow": "never", "labels": {"zone": "north"}});
        let step = json!({"name": "read", "action": "a", "on": on, "when": "input.go", "each": "input.rows"});
        let definition = json!({"name": "f", "steps": [step, {"name": "last", "action": "b"}]});
        let view = json!({"definition": definition, "revision": 3, "changed_at": 0, "changed_by": "ana"});
        let text = flow(&serde_json::from_value(view).unwrap(), Timestamp(0));
        for part in ["edge only, zone=north", "input.go", "input.rows", "3, 0ms ago by ana"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn who_watches_a_run_is_told_what_keeps_it_and_nothing_else() {
        let steps = json!([
            {"step": "done", "state": "done", "node": "n1", "tries": 2, "last_reason": "rain"},
            {"step": "read", "state": "node", "why": "n1 is away"},
            {"step": "rows", "item": 4, "state": "ready", "tries": 1, "last_reason": "no sensor"},
            {"step": "sent", "state": "sent", "node": "n2", "since": 0, "left_ms": 10},
            {"step": "last", "state": "after", "waits_for": ["read"]},
        ]);
        let explained = json!({"run": 7, "flow": "f", "state": "running", "steps": steps});
        let explained: RunExplained = serde_json::from_value(explained).unwrap();
        let waits = ["read: waits for a node: n1 is away", "rows[4]: 1 try in vain, the last: no sensor"];
        assert_eq!(run_waits_for(&explained), waits);
    }
}
