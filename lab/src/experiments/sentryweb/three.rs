//! `sentryweb-3`: what one checker costs by the checks it is offered each second, on an endpoint that answers at once; then on
//! one that takes two seconds, and on a hundred of varied latency. Beside it blackbox_exporter and the document's worker in
//! Python, on the same endpoint in the same run. Every check has a connection of its own.

use std::path::Path;

use clap::Args;

use super::checker::Found;
use super::endpoint::{self, Target};
use super::peers;
use crate::peers::{FOLDER, Peers};
use crate::report::{Goal, Report};
use crate::services::Servers;

#[derive(Args)]
pub struct Options {
    /// Checks offered each second on the endpoint that answers at once.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 50, 100, 250, 1_000, 5_000, 10_000])]
    offered: Vec<u64>,
    /// Checks offered each second on slow and on varied endpoints.
    #[arg(long, default_value_t = 400)]
    slow: u64,
    /// How long each is measured.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
}

/// Table 2 of the document: checks offered each second, millicores.
const DOCUMENT: [(u64, f64); 9] = [
    (5, 21.0),
    (20, 73.0),
    (50, 160.0),
    (70, 240.0),
    (100, 380.0),
    (120, 450.0),
    (150, 510.0),
    (200, 640.0),
    (250, 900.0),
];
/// What the document's worker did on one slow remote, and on a hundred varied ones.
const DOCUMENT_SLOW: f64 = 20.0;
const DOCUMENT_VARIED: f64 = 60.0;
/// One host gets all of the slow checks, so the bound for one host must not be what is measured.
const HOST_MAX: usize = 10_000;
/// The document's worker does no more than this.
const PYTHON_OFFERED: u64 = 250;

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("sentryweb-3");
    report.note("every check has a connection of its own; CPU is of who checks, not of who is checked or who offers");
    report.note("the document: a pod of Kubernetes, its Table 2 and the text after it; its slow and varied endpoints are remote");
    let (_endpoint, port) = endpoint::start()?;
    let mut best = 0.0_f64;
    for offered in &options.offered {
        if let Some((_, millicores)) = DOCUMENT.iter().find(|(rate, _)| rate == offered) {
            report.row(format!("{offered} checks/s: the document"), *millicores, "millicores");
        }
        let found = measure(Target::Local, port, *offered, options.seconds)?;
        report.row(format!("{offered} checks/s: one checker"), found.millicores, "millicores");
        report.row(format!("  {offered}: made"), found.checks_per_s, "checks/s");
        report.row(format!("  {offered}: told, 99 % within"), found.told_p99_ms as f64, "ms");
        report.row(format!("  {offered}: memory of the whole process"), found.memory_mib, "MiB");
        best = best.max(found.checks_per_s / found.millicores * 1_000.0);
    }
    let blackbox = peers::blackbox(port, options.seconds)?;
    report.row("one checker, for each core it uses", best, "checks/s");
    report.row("blackbox_exporter, for each core it uses", blackbox.per_core(), "checks/s");
    report.row("  blackbox_exporter, as fast as it can", blackbox.checks_per_s, "checks/s");
    report.goal("one checker, as a multiple of blackbox_exporter", best / blackbox.per_core(), "×", Goal::AtLeast(4.0));

    let servers = Servers::start()?;
    let python = Peers::prepare(Path::new(FOLDER))?;
    let amqp = servers.rabbitmq.url();
    let worker = |target, rate| peers::python(&python, amqp, target, port, rate, options.seconds);
    let local = worker(Target::Local, PYTHON_OFFERED)?;
    report.row(format!("50 threads in Python, {PYTHON_OFFERED} offered"), local.checks_per_s, "checks/s");
    report.row("  50 threads in Python, for each core it uses", local.per_core(), "checks/s");
    for (target, document) in [(Target::Slow, DOCUMENT_SLOW), (Target::Varied, DOCUMENT_VARIED)] {
        let (word, offered) = (target.word(), options.slow);
        report.row(format!("{word}, {offered} offered: the document's worker, there"), document, "checks/s");
        report.row(
            format!("{word}, {offered} offered: 50 threads in Python"),
            worker(target, offered)?.checks_per_s,
            "checks/s",
        );
        let found = measure(target, port, offered, options.seconds)?;
        let whole = Goal::AtLeast(offered as f64 * 0.99);
        report.goal(format!("{word}, {offered} offered: one checker"), found.checks_per_s, "checks/s", whole);
        report.row(format!("  {word}: millicores of the checker"), found.millicores, "millicores");
        report.row(format!("  {word}: bad"), found.bad as f64, "checks");
        report.row(format!("  {word}: taken up too late"), found.missed as f64, "checks");
    }
    Ok(report)
}

fn measure(target: Target, port: u16, offered: u64, seconds: u64) -> anyhow::Result<Found> {
    let pairs = [
        ("--target", target.word().to_owned()),
        ("--port", port.to_string()),
        ("--offered", offered.to_string()),
        ("--seconds", seconds.to_string()),
        ("--host-max", HOST_MAX.to_string()),
    ];
    let mut args: Vec<String> = vec!["part".into(), "checker".into()];
    args.extend(pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
    super::found(&args)
}
