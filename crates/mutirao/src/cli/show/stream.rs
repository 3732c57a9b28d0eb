//! How streams and their hosts look.

use std::time::Duration;

use mutirao_conductor::store::Event;
use mutirao_conductor::view::{
    Explained, HostLine, Migrating, PartView, Pushed, StreamDeployed, StreamLine, StreamView,
};
use mutirao_core::Timestamp;
use mutirao_core::declared::Became;
use mutirao_streams::wire::{Standing, State};

use super::{ago, facts, or_dash, rough, size, table};

pub fn streams_deployed(all: &[StreamDeployed]) -> String {
    let line = |StreamDeployed { name, became, .. }: &StreamDeployed| match became {
        Became::Made => format!("stream {name} is deployed; `mutirao stream show {name}` shows it"),
        Became::Changed => format!("stream {name} takes the place of the one before, and begins anew"),
        Became::Unchanged => format!("stream {name} is deployed as it is already"),
    };
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub fn streams(lines: &[StreamLine], now: Timestamp) -> String {
    if lines.is_empty() {
        return "there are no streams; `mutirao stream deploy FILE` runs one".into();
    }
    let row = |line: &StreamLine| {
        vec![
            line.name.clone(),
            line.state.as_str().to_owned(),
            line.health.as_str().to_owned(),
            format!("{} of {}", line.running, line.wanted),
            ago(line.deployed_at, now),
            line.owner.clone(),
        ]
    };
    table(vec!["STREAM", "STATE", "HEALTH", "RUNNING", "DEPLOYED", "BY"], lines.iter().map(row))
}

pub fn stream(view: &StreamView, now: Timestamp) -> String {
    let line = &view.line;
    let some = |all: &[String]| or_dash((!all.is_empty()).then(|| all.join(", ")));
    let head = facts(&[
        ("stream", format!("{} ({})", line.name, line.id)),
        ("state", format!("{}, {}", line.state.as_str(), line.health.as_str())),
        ("deployed", format!("{} ago by {}", ago(line.deployed_at, now), line.owner)),
        ("pushed to", some(&view.pushes)),
        ("can be tapped", some(&view.ports)),
    ]);
    format!("{head}\n\n{}", parts(&view.parts))
}

fn parts(all: &[PartView]) -> String {
    let row = |part: &PartView| {
        let measures = &part.measures;
        let us = |us: u64| if us == 0 { "-".into() } else { rough(Duration::from_micros(us)) };
        vec![
            part.kind.clone(),
            part.name.clone(),
            part.replica.to_string(),
            host(part),
            state(part.state.as_ref()).into(),
            measures.events_in.to_string(),
            measures.events_out.to_string(),
            us(measures.latency_us_mean),
            us(measures.latency_us_p95),
            part.lag.to_string(),
            format!("{:.0} %", measures.cpu * 100.0),
        ]
    };
    let heading = vec!["PART", "NAME", "REPLICA", "HOST", "STATE", "IN/S", "OUT/S", "LATENCY", "P95", "LAG", "CPU"];
    table(heading, all.iter().map(row))
}

fn state(state: Option<&State>) -> &'static str {
    match state {
        None => "-",
        Some(State::Starting) => "starting",
        Some(State::Running) => "running",
        Some(State::Waiting(_)) => "waiting",
        Some(State::CatchingUp) => "catching up",
        Some(State::Ended) => "ended",
        Some(State::Failed(_)) => "failed",
    }
}

pub fn stream_explained(explained: &Explained, now: Timestamp) -> String {
    let mut out = format!("stream {} is {}, {}", explained.name, explained.state.as_str(), explained.health.as_str());
    for trouble in &explained.troubles {
        out += &format!("\n  {trouble}");
    }
    let row = |part: &PartView| {
        let host = host(part);
        vec![
            part.kind.clone(),
            part.name.clone(),
            part.replica.to_string(),
            host,
            ago(part.since, now),
            part.why.clone(),
        ]
    };
    out += "\n\n";
    out += &table(vec!["PART", "NAME", "REPLICA", "HOST", "SINCE", "WHY"], explained.parts.iter().map(row));
    if !explained.events.is_empty() {
        let row = |event: &Event| vec![ago(event.at, now), event.who.clone(), event.what.clone(), event.detail.clone()];
        out += "\n\n";
        out += &table(vec!["AGO", "WHO", "WHAT", ""], explained.events.iter().map(row));
    }
    out
}

/// Where it is, and where it is on its way to.
fn host(part: &PartView) -> String {
    let host = or_dash(part.host.as_ref());
    part.moves.as_ref().map_or(host.clone(), |moves| format!("{host} → {}", moves.to))
}

pub fn migrating(moved: &Migrating, stream: &str, waited: bool) -> String {
    let Migrating { stage, replica, to } = moved;
    match waited {
        true => format!("stage {stage}, replica {replica}, is on {to}"),
        false => format!(
            "stage {stage}, replica {replica}, moves to {to}; `mutirao stream explain {stream}` says how it goes"
        ),
    }
}

pub fn pushed(pushed: &Pushed, name: &str, source: &str) -> String {
    let events = |n: u64| if n == 1 { "1 event".to_owned() } else { format!("{n} events") };
    let unfit = match pushed.unfit {
        0 => String::new(),
        n => format!(
            "; {} did not fit, `mutirao stream tap {name} {source}.unfit` shows such where somebody reads it",
            events(n)
        ),
    };
    format!("{} taken{unfit}", events(pushed.taken))
}

pub fn stream_hosts(hosts: &[HostLine], now: Timestamp) -> String {
    if hosts.is_empty() {
        return "there are no hosts; a manager has one inside unless streams.host=none, `mutirao role host` is another"
            .into();
    }
    let row = |line: &HostLine| {
        let busy = line.node.cpus.iter().sum::<f64>() / line.node.cpus.len().max(1) as f64;
        vec![
            line.host.name.clone(),
            match line.host.standing {
                Standing::Inside => "inside a manager".into(),
                Standing::Apart => line.host.id.clone(),
            },
            if line.alive { "alive".into() } else { "silent".into() },
            ago(line.heard_at, now),
            line.parts.to_string(),
            line.host.cores.to_string(),
            format!("{:.0} %", busy * 100.0),
            format!("{} of {}", size(line.node.memory_bytes), size(line.host.memory_bytes)),
        ]
    };
    let heading = vec!["HOST", "WHERE", "STATE", "HEARD", "PARTS", "CORES", "CPU", "MEMORY"];
    table(heading, hosts.iter().map(row))
}
