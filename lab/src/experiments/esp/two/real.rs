//! `esp-2 --real`: chapter 4 with the program itself, scaled to this machine. Six hosts are processes in control groups of their
//! own; sources, sinks and the manager share what is left of the cores. 13 operators of two replicas begin where Table 4.4 has them.
//!
//! *Scaled*: four cores of the document are a share of one here, and an event costs as much less, so that its rates stay, or come
//! down by a factor with events that cost as much more. A period is shorter; rounds are ten seconds apart, as always.
//!
//! The document's limit, `d` = 25 %, is the sensitivity of `adaptive`; moves are the product's, live, whoever decides.

mod figures;
mod quota;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use mutirao_movers::simulation::chapter::{self, Kind, Thirteen};
use mutirao_movers::simulation::{Moving, OperatorSetup};
use mutirao_testkit::Installation;
use serde_json::Value;

use super::super::apart::Apart;
use super::super::moving::{named, path};
use crate::report::{Goal, Report};
use crate::span::{Since, pause};
use figures::Figures;
use quota::Quota;

#[derive(Args)]
pub struct Options {
    /// Seconds of each of the ten periods; the document has 60.
    #[arg(long, default_value_t = 20)]
    period: u64,
    /// What a host has of a core; the document's have four.
    #[arg(long, default_value_t = 0.2)]
    share: f64,
    /// Which share of the document's events come.
    #[arg(long, default_value_t = 0.25)]
    events: f64,
    /// How often an event's text is gone through: what it costs.
    #[arg(long, default_value_t = 40)]
    passes: u32,
    /// Only these: none, random, adaptive, mutirao.
    #[arg(long, value_delimiter = ',', default_value = "none,random,adaptive,mutirao")]
    strategies: Vec<String>,
}

const STREAM: &str = "chapter";
const HOSTS: usize = 6;
/// Low load at first, in which everything is put where it begins.
const LEAD_S: u64 = 90;
const PERIODS: u64 = 10;
const PATIENCE: Duration = Duration::from_secs(120);
/// What two milliseconds on one of four cores are, in events a second of a host.
const HOST_EVENTS_S: f64 = 2_000.0;

/// Whose figure beside whose, and at most which share of it.
const GOALS: [(&str, &str, &str, f64); 8] = [
    ("adaptive", "none", "fast, mean", 0.16),
    ("adaptive", "random", "slow, mean", 1.0),
    ("adaptive", "random", "slow, p99", 1.0),
    ("mutirao", "adaptive", "fast, mean", 0.5),
    ("mutirao", "adaptive", "fast, p99", 0.5),
    ("mutirao", "adaptive", "slow, mean", 0.5),
    ("mutirao", "adaptive", "slow, p99", 0.5),
    ("mutirao", "adaptive", "moves", 1.0),
];

pub fn run(options: &Options) -> anyhow::Result<Report> {
    let known = ["none", "random", "adaptive", "mutirao"];
    for one in &options.strategies {
        ensure!(known.contains(&one.as_str()), "there is no strategy {one}: choose {}", known.join(", "));
    }
    let operators = chapter::setup(Kind::Varied, Thirteen::BeginsLow, Moving::live()).operators;
    let mut report = Report::new("esp-2-real");
    let wanted_us = options.share / (HOST_EVENTS_S * options.events) * 1e6;
    report.note(format!(
        "six hosts of {} of a core each, in control groups; {} of the document's events, ten periods of {} s",
        options.share, options.events, options.period
    ));
    report.note(format!(
        "an event is to cost {wanted_us:.0} us of a core, so that a host does {:.0} a second, as much of the document's 2,000 as of its rates; --passes sets it",
        HOST_EVENTS_S * options.events
    ));
    report.note("the manager, sources, sinks and this program have the rest of the cores");
    report.note(
        "fast and slow: of each operator and second the replica with the lower and the higher mean; p99: over seconds, of each second's p95, by its events",
    );
    let mut all = Vec::new();
    for strategy in &options.strategies {
        let seen = once(options, &operators, strategy)?;
        for (what, figure, unit) in seen.rows() {
            report.row(format!("{strategy}: {what}"), figure, unit);
        }
        report.goal(
            format!("{strategy}: events doubled, lost or out of order"),
            seen.wrong(),
            "events",
            Goal::AtMost(0.0),
        );
        report.panels.push(seen.lines(strategy));
        all.push((strategy.as_str(), seen));
    }
    goals(&mut report, &all);
    Ok(report)
}

/// What the simulator is held to, where both that are compared were run.
fn goals(report: &mut Report, all: &[(&str, Figures)]) {
    for (ours, theirs, what, most) in GOALS {
        let of = |strategy: &str| {
            let (_, seen) = all.iter().find(|(of, _)| *of == strategy)?;
            seen.rows().into_iter().find(|(of, ..)| *of == what).map(|(_, figure, _)| figure)
        };
        if let (Some(figure), Some(beside)) = (of(ours), of(theirs)) {
            let share = figure / beside.max(1e-9);
            report.goal(format!("{ours}: {what}, as a share of {theirs}"), share, "times", Goal::AtMost(most));
        }
    }
}

fn once(options: &Options, operators: &[OperatorSetup], strategy: &str) -> anyhow::Result<Figures> {
    let mut up = Installation::setup().workers(0).set("streams.host", "inside").start();
    let groups: Vec<Quota> = (0..HOSTS).map(|n| Quota::make(n, options.share)).collect::<Result<_, _>>()?;
    let begin = |n: usize| Apart::start(&up, &host(n), groups[n].folders());
    let hosts: Vec<Apart> = (0..HOSTS).map(begin).collect::<Result<_, _>>()?;
    let file = up.data().join("chapter.yaml");
    std::fs::write(&file, definition(options, operators, &named(&up, "inside")?))?;
    up.ok(&["stream", "deploy", path(&file)?]);
    let deployed = Since::now();
    wait(|| Ok(parts(&up)?.iter().filter(|part| part["state"]["is"] == "running").count() >= operators.len() * 4))
        .context("not all parts run")?;
    for (n, operator) in operators.iter().enumerate() {
        place(&up, n, &operator.hosts)?;
    }
    // From here on it moves.
    std::fs::write(up.data().join("mutirao.toml"), format!("[streams]\nmover = \"{strategy}\"\n"))?;
    up.restart();
    let lead = Duration::from_secs(LEAD_S);
    ensure!(deployed.elapsed() < lead, "it took {} s to begin, more than {LEAD_S}", deployed.elapsed().as_secs());
    pause(lead.saturating_sub(deployed.elapsed()));
    let outputs: Vec<PathBuf> = (0..operators.len()).map(|n| up.data().join(format!("files/out-{n}.jsonl"))).collect();
    let mut figures = Figures::begin(&outputs);
    let (begun, all) = (Since::now(), Duration::from_secs(PERIODS * options.period));
    while begun.elapsed() < all {
        figures.second(begun.elapsed(), &parts(&up)?);
        pause(Duration::from_millis(900));
    }
    figures.in_time(&outputs);
    wait(|| Ok(health(&up)? == "ended")).context("it does not end")?;
    figures.end(&outputs)?;
    drop(hosts);
    Ok(figures)
}

fn host(n: usize) -> String {
    format!("host-{}", n + 1)
}

fn definition(options: &Options, operators: &[OperatorSetup], inside: &str) -> String {
    let (mut sources, mut stages, mut sinks) = (String::new(), String::new(), String::new());
    let period = options.period as f64;
    for (n, operator) in operators.iter().enumerate() {
        let load = &operator.load;
        let [low, high] = [load.low, load.high].map(|rate| rate * options.events);
        let mut rates = vec![format!("{{ for: {LEAD_S}s, rate: {low} }}")];
        for is_high in &load.periods {
            // A third up and a third down, as in the simulator.
            let ms = |share: f64| (period * share * 1_000.0) as u64;
            let (third, rest) = (ms(1.0 / 3.0), ms(2.0 / 3.0));
            rates.extend(match is_high {
                true => vec![
                    format!("{{ for: {rest}ms, rate: {high}, ramp: {third}ms }}"),
                    format!("{{ for: {third}ms, rate: {low}, ramp: {third}ms }}"),
                ],
                false => vec![format!("{{ for: {}ms, rate: {low} }}", ms(1.0))],
            });
        }
        let rates = rates.join(", ");
        sources += &format!(
            "  - {{ name: source-{n}, host: '{inside}', generator: {{ seed: {n}, rate: [ {rates} ], fields: {{ n: n }} }} }}\n"
        );
        let work = work(options.passes);
        stages += &format!("  - {{ name: worker-{n}, from: source-{n}, replicas: 2, add: {{ work: \"{work}\" }} }}\n");
        sinks +=
            &format!("  - {{ name: out-{n}, from: worker-{n}, host: '{inside}', file: {{ path: out-{n}.jsonl }} }}\n");
    }
    format!("kind: Stream\nname: {STREAM}\nsources:\n{sources}operators:\n{stages}sinks:\n{sinks}")
}

/// A text of a thousand letters, gone through so many times.
fn work(passes: u32) -> String {
    let begin = "text(n % 7) + 'a'".to_owned();
    let ten = |text: String| format!("replace({text}, 'a', 'aaaaaaaaaa')");
    let long = ten(ten(ten(begin)));
    let through = |text: String, pass: u32| {
        let (this, that) = if pass.is_multiple_of(2) { ('a', 'b') } else { ('b', 'a') };
        format!("replace({text}, '{this}', '{that}')")
    };
    format!("length({})", (0..passes).fold(long, through))
}

/// Puts the replicas of an operator on these hosts, whichever is where.
fn place(up: &Installation, operator: usize, hosts: &[usize]) -> anyhow::Result<()> {
    let wanted: Vec<String> = hosts.iter().map(|n| host(*n)).collect();
    let name = format!("worker-{operator}");
    let all = parts(up)?;
    let there = all.iter().filter(|part| part["kind"] == "stage" && part["name"] == name.as_str());
    let there: Vec<(String, String)> =
        there.map(|part| (part["replica"].to_string(), part["host"].as_str().unwrap_or_default().to_owned())).collect();
    let mut free = wanted.iter().filter(|host| there.iter().all(|(_, at)| at != *host));
    for (replica, _) in there.iter().filter(|(_, at)| !wanted.contains(at)) {
        let to = free.next().context("more replicas than hosts")?;
        up.ok(&["stream", "migrate", STREAM, &name, "--replica", replica, "--to", to, "--wait", "1m"]);
    }
    Ok(())
}

fn parts(up: &Installation) -> anyhow::Result<Vec<Value>> {
    Ok(show(up)?["parts"].as_array().cloned().unwrap_or_default())
}

fn health(up: &Installation) -> anyhow::Result<String> {
    Ok(show(up)?["health"].as_str().unwrap_or_default().to_owned())
}

fn show(up: &Installation) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&up.ok(&["--json", "stream", "show", STREAM]))?)
}

fn wait(mut until: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let since = Since::now();
    while !until()? {
        ensure!(since.elapsed() < PATIENCE, "not within {} s", PATIENCE.as_secs());
        pause(Duration::from_millis(500));
    }
    Ok(())
}
