//! `sentryweb-4`: 50, 70, 100, 400 and 20 checks a second, with the pool of checkers following: how many checks wait and how many
//! checkers there are, over time. The whole product as a user has it: a manager, its resource manager, and checkers as
//! processes, each as large as a worker of the document.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use mutirao_core::{Clock, Mono, SystemClock};
use mutirao_testkit::Installation;
use serde::Deserialize;

use super::endpoint;
use crate::plot::Line;
use crate::report::{Goal, Report};
use crate::services::{Backend, Servers};
use crate::span::pause;

#[derive(Args)]
pub struct Options {
    /// Checks a second, one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [50, 70, 100, 400, 20])]
    rates: Vec<u32>,
    /// How long each rate lasts. The pool is let down over two minutes, so the last takes longer.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// How long a service takes: with 64 slots a checker makes 75 checks a second of such.
    #[arg(long, default_value_t = 850)]
    latency_ms: u32,
    /// What it runs on.
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
}

const POOL: &str = "_checkers";
/// Each monitor is checked once in it.
const EVERY_S: u32 = 10;
/// The least that a checker has. The document's workers have 50.
const SLOTS: u32 = 64;
const CHECKERS_MAX: u32 = 10;
/// Of the document: its backlog at the highest, and the minutes until its ten replicas had made up for it.
const DOCUMENT_BACKLOG: f64 = 20_000.0;
const DOCUMENT_MINUTES: f64 = 5.0;
const FLAPS_AT: u32 = 70;
/// Beyond a step, until a pool that was let down has gone.
const LET_DOWN: Duration = Duration::from_secs(240);

/// One look.
struct Sight {
    at_s: f64,
    offered: f64,
    ready: f64,
    under_way: f64,
    checkers: f64,
    wanted: f64,
}

#[derive(Deserialize)]
struct Status {
    queues: Vec<Queue>,
}

#[derive(Deserialize)]
struct Queue {
    queue: String,
    wanted: Option<u32>,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new(options.backend.named("sentryweb-4", "sentryweb-4-distributed"));
    report.note(format!(
        "each monitor every {EVERY_S} s, on services that take {} ms; a checker has {SLOTS} slots (the document's 50)",
        options.latency_ms
    ));
    report.note(
        "what waits is due and not begun, in the broker or with a checker, as the resource manager sees it each second",
    );
    report.note("the document: ten replicas, its section 6.3; at 70/s its autoscaler went up and down without end");
    let servers = (options.backend == Backend::Distributed).then(Servers::start).transpose()?;
    let (_endpoint, port) = endpoint::start()?;
    let setup = Installation::setup()
        .workers(0)
        .env("MUTIRAO_LOG", "warn")
        // The experiment makes and removes monitors by the thousand.
        .set("api.rate", "100000")
        .set("api.burst", "100000")
        .set("monitors.checker", "none")
        .set("monitors.checkers", &format!("1..{CHECKERS_MAX}"))
        .set("monitors.under_way_max", &SLOTS.to_string())
        .set("monitors.host_max", &SLOTS.to_string())
        .set("elastic.cpus", &CHECKERS_MAX.to_string());
    let setup = match &servers {
        Some(servers) => servers.fit_with_management(setup)?,
        None => setup,
    };
    let up = setup.start();
    let url = format!("http://127.0.0.1:{port}/after/{}", options.latency_ms);
    let clock = SystemClock;
    let begin = clock.monotonic();
    let (mut monitors, mut seen) = (0, Vec::new());
    let mut steps = Vec::new();
    for (n, rate) in options.rates.iter().enumerate() {
        offer(&up, &url, &mut monitors, rate * EVERY_S)?;
        let from = seen.len();
        let lasts = Duration::from_secs(options.seconds);
        let lets_down = n > 0 && *rate < options.rates[n - 1];
        let until = clock.monotonic().0 + if lets_down { lasts.max(LET_DOWN) } else { lasts };
        while clock.monotonic().0 < until {
            seen.push(look(&up, f64::from(*rate), begin)?);
            pause(Duration::from_secs(1));
        }
        steps.push((*rate, from..seen.len()));
    }
    for (rate, range) in steps {
        rows(&mut report, rate, &seen[range]);
    }
    let peak = seen.iter().map(|sight| sight.ready).fold(0.0, f64::max);
    report.row("most that waited: the document", DOCUMENT_BACKLOG, "checks");
    report.goal("most that waited", peak, "checks", Goal::AtMost(1_000.0));
    report.row("time until nothing waited at 400/s: the document", DOCUMENT_MINUTES * 60.0, "s");
    report.row("taken up too late, or never", metric(&up, "mutirao_monitors_missed_total")?, "checks");
    let line = |name: &str, figure: fn(&Sight) -> f64| Line {
        name: name.into(),
        points: seen.iter().map(|sight| (sight.at_s, figure(sight))).collect(),
    };
    report.panels = vec![
        vec![line("checks offered each second", |sight| sight.offered)],
        vec![line("checks that wait", |sight| sight.ready), line("under way", |sight| sight.under_way)],
        vec![line("checkers", |sight| sight.checkers), line("wanted", |sight| sight.wanted)],
    ];
    Ok(report)
}

fn rows(report: &mut Report, rate: u32, seen: &[Sight]) {
    let highest = |figure: fn(&Sight) -> f64| seen.iter().map(figure).fold(0.0, f64::max);
    report.row(format!("{rate}/s: most that waited"), highest(|sight| sight.ready), "checks");
    report.row(format!("  {rate}/s: most checkers"), highest(|sight| sight.checkers), "checkers");
    report.row(format!("  {rate}/s: checkers at the end"), seen.last().map_or(0.0, |sight| sight.checkers), "checkers");
    let waited = seen.iter().rposition(|sight| sight.ready > f64::from(rate));
    let until = waited.map_or(0.0, |last| seen[last].at_s - seen[0].at_s);
    report.row(format!("  {rate}/s: until less than a second's worth waited"), until, "s");
    // The first half belongs to the change before it.
    let settled = &seen[seen.len() / 2..];
    let changes = settled.windows(2).filter(|two| two[0].wanted != two[1].wanted).count() as f64;
    let what = format!("  {rate}/s: changes of mind in its second half");
    match rate {
        FLAPS_AT => report.goal(what, changes, "changes", Goal::AtMost(0.0)),
        _ => report.row(what, changes, "changes"),
    }
}

/// As many monitors as this, from as many as there are.
fn offer(up: &Installation, url: &str, monitors: &mut u32, wanted: u32) -> anyhow::Result<()> {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
    for n in *monitors..wanted {
        writeln!(file, "---\nkind: Monitor\nname: m{n}\nevery: {EVERY_S}s\ntimeout: 5s\nhttp: {{ url: '{url}' }}")?;
    }
    if *monitors < wanted {
        up.ok(&["apply", "-f", &file.path().display().to_string()]);
    }
    for n in wanted..*monitors {
        let answer = up.request(&format!("DELETE /v1/monitors/m{n}"), b"");
        anyhow::ensure!(answer.status < 300, "m{n} cannot be removed: {}", answer.text());
    }
    *monitors = wanted;
    Ok(())
}

fn look(up: &Installation, offered: f64, begin: Mono) -> anyhow::Result<Sight> {
    let status: Status = serde_json::from_slice(&up.request("GET /v1/elastic/status", b"").body)?;
    let pool = status.queues.into_iter().find(|queue| queue.queue == POOL);
    Ok(Sight {
        at_s: SystemClock.monotonic().since(begin).as_secs_f64(),
        offered,
        ready: metric(up, "mutirao_checks_ready")?,
        under_way: metric(up, "mutirao_checks_under_way")?,
        checkers: metric(up, "mutirao_checkers")?,
        wanted: pool.and_then(|pool| pool.wanted).map_or(0.0, f64::from),
    })
}

/// The sum over all labels.
fn metric(up: &Installation, name: &str) -> anyhow::Result<f64> {
    let page = up.request("GET /metrics", b"").text();
    let of_it = |line: &&str| line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{"));
    let figures = page.lines().filter(of_it).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(figures.sum())
}
