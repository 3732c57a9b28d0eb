//! `sentryweb-1`: the CPU and the memory of one scheduler, and how late it fires, from a hundred monitors to a million, each
//! checked once a minute. The document's scheduler publishes and forgets; ours is measured as that, and again with every
//! outcome settled and written to the history, which the document's does not keep.

use clap::Args;

use super::scheduler::{Found, Kept};
use crate::report::{Goal, Report};
use crate::services::{Backend, Servers};

#[derive(Args)]
pub struct Options {
    /// Monitors, each every 60 s.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000, 25_000, 100_000, 1_000_000])]
    monitors: Vec<u32>,
    /// How long each is measured.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// What it runs on.
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
}

/// Table 1 of the document: monitors, millicores, MiB.
const DOCUMENT: [(u32, f64, f64); 9] = [
    (100, 2.0, 80.0),
    (500, 4.0, 80.0),
    (1_000, 6.0, 80.0),
    (2_000, 12.0, 80.0),
    (5_000, 25.0, 90.0),
    (10_000, 47.0, 90.0),
    (15_000, 75.0, 100.0),
    (20_000, 100.0, 100.0),
    (25_000, 115.0, 105.0),
];

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new(options.backend.named("sentryweb-1", "sentryweb-1-distributed"));
    report.note(
        "CPU is of the scheduler's threads, the store's in the same process included, and not of who takes the checks",
    );
    report.note("the document: a pod of Kubernetes, its Table 1; it publishes and keeps no outcome");
    for monitors in &options.monitors {
        let document = DOCUMENT.iter().find(|(many, ..)| many == monitors);
        if let Some((_, millicores, mib)) = document {
            report.row(format!("{monitors} monitors: the document"), *millicores, "millicores");
            report.row(format!("  {monitors}: memory, the document"), *mib, "MiB");
        }
        for kept in [Kept::No, Kept::Yes] {
            let found = measure(&options, *monitors, kept)?;
            rows(&mut report, *monitors, kept, &found);
        }
    }
    Ok(report)
}

fn measure(options: &Options, monitors: u32, kept: Kept) -> anyhow::Result<Found> {
    let words = |kept: Kept| if kept == Kept::Yes { "yes" } else { "no" };
    let mut args: Vec<String> = vec!["part".into(), "scheduler".into()];
    args.extend(["--monitors".into(), monitors.to_string(), "--seconds".into(), options.seconds.to_string()]);
    args.extend(["--outcomes".into(), words(kept).into()]);
    // New for each, so that nobody pays for what another left behind.
    let servers = (options.backend == Backend::Distributed).then(Servers::start).transpose()?;
    if let Some(servers) = &servers {
        args.extend([
            "--amqp".into(),
            servers.rabbitmq.url().into(),
            "--postgres".into(),
            servers.postgres.url().into(),
        ]);
    }
    super::found(&args)
}

fn rows(report: &mut Report, monitors: u32, kept: Kept, found: &Found) {
    let with = if kept == Kept::Yes { "with outcomes kept" } else { "scheduling alone" };
    let what = format!("{monitors} monitors: {with}");
    if (monitors, kept) == (25_000, Kept::No) {
        report.goal(what, found.millicores, "millicores", Goal::AtMost(12.0));
    } else {
        report.row(what, found.millicores, "millicores");
    }
    for (thread, millicores) in found.threads.iter().filter(|(_, millicores)| *millicores >= 0.5) {
        report.row(format!("  {monitors}, {with}: threads \"{thread}\""), *millicores, "millicores of it");
    }
    report.row(format!("  {monitors}, {with}: memory of the whole process"), found.memory_mib, "MiB");
    report.row(format!("  {monitors}, {with}: fired"), found.checks_per_s, "checks/s");
    report.row(format!("  {monitors}, {with}: lateness, half are below"), found.late_p50_ms as f64, "ms");
    let p99 = format!("  {monitors}, {with}: lateness, 99 % are below");
    if monitors == 1_000_000 {
        report.goal(p99, found.late_p99_ms as f64, "ms", Goal::AtMost(100.0));
    } else {
        report.row(p99, found.late_p99_ms as f64, "ms");
    }
    report.row(format!("  {monitors}, {with}: lateness, the most"), found.late_max_ms as f64, "ms");
}
