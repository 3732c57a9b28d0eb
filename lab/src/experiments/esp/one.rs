//! `esp-1`: what an overload of one resource does to latency, as in chapter 3 of the document on adaptive scheduling: CPU, memory,
//! its bandwidth, the network and the disk. A source, an operator of that cost, and nothing else, through the hosts' runtime.
//!
//! The operator is no part of the product: it stands where a manager would keep keys, so that all before it (the source, the
//! log, reading ahead, batches, back pressure and the measures themselves) is what runs in an installation.

mod link;
mod load;
mod stand;

use std::time::Duration;

use clap::Args;

use crate::experiments::sapparchi::runtime;
use crate::plot::Line;
use crate::report::Report;
use load::Load;

#[derive(Args)]
pub struct Options {
    /// How long each point is measured.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Only this resource: cpu, memory, bandwidth, network or disk.
    #[arg(long)]
    only: Option<String>,
}

/// One scenario of the document.
struct Point {
    resource: &'static str,
    load: Load,
    /// Of each operator.
    events_s: u32,
    operators: usize,
}

impl Point {
    fn all() -> Vec<Point> {
        let of = |resource, load, points: &[(u32, usize)]| -> Vec<Point> {
            points.iter().map(|&(events_s, operators)| Point { resource, load, events_s, operators }).collect()
        };
        let memory = |mb| of("memory", Load::Memory { mb }, &[(100, 1)]);
        let mut all = Vec::new();
        for mut points in [
            of("cpu", Load::Cpu, &[(100, 1), (250, 1), (500, 1), (900, 1)]),
            [256, 512, 768].into_iter().flat_map(memory).collect(),
            of("bandwidth", Load::Bandwidth, &[(100, 1), (100, 2), (100, 4)]),
            of("network", Load::Network, &[(500, 1), (1_000, 1), (1_500, 1)]),
            of("disk", Load::Disk, &[(10, 1), (10, 2)]),
        ] {
            all.append(&mut points);
        }
        all
    }

    fn named(&self) -> String {
        let Self { resource, load, events_s, operators } = self;
        let of = match load {
            Load::Memory { mb } => format!(", {mb} MB"),
            _ => String::new(),
        };
        let operators = if *operators == 1 { "1 operator".to_owned() } else { format!("{operators} operators") };
        format!("{resource}{of}, {events_s}/s, {operators}")
    }
}

/// In milliseconds.
pub struct Latency {
    pub mean: f64,
    pub p95: f64,
}

pub struct Seen {
    /// None where no batch of events ended while it was measured.
    pub latency: Option<Latency>,
    /// The share of what came.
    pub done: f64,
    /// Seconds since the beginning, and the mean of that second.
    pub course: Vec<(f64, f64)>,
    /// Of one core, by this process.
    pub cpu: f64,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("esp-1");
    report.note(
        "latency of the operator by the document's definition: from when the source had sent an event until it is done",
    );
    report.note(format!(
        "memory: {} random accesses an event; bandwidth: copies of 2 MB; disk: 256 KB read, and written with fdatasync",
        load::ACCESSES
    ));
    report.note(format!(
        "network: what the operator reads comes at {} kbit/s, in records as they lie in the log",
        link::KBIT_S
    ));
    let known = ["cpu", "memory", "bandwidth", "network", "disk"];
    if let Some(only) = &options.only {
        anyhow::ensure!(known.contains(&only.as_str()), "there is no resource {only}: choose {}", known.join(", "));
    }
    let folder = tempfile::Builder::new().prefix("mutirao-lab.").tempdir_in(".")?;
    let runtime = runtime()?;
    for resource in known.into_iter().filter(|one| options.only.as_deref().is_none_or(|only| only == *one)) {
        let mut panel = Vec::new();
        for (n, point) in Point::all().iter().filter(|point| point.resource == resource).enumerate() {
            let dir = folder.path().join(format!("{resource}-{n}"));
            let seen = runtime.block_on(stand::run(&dir, point, Duration::from_secs(options.seconds)))?;
            let named = point.named();
            match seen.latency {
                Some(Latency { mean, p95 }) => {
                    report.row(format!("{named}: mean"), mean, "ms");
                    report.row(format!("{named}: p95"), p95, "ms");
                }
                None => report.note(format!("{named}: nothing was over within {} s", options.seconds)),
            }
            report.row(format!("{named}: done of what came"), seen.done * 100.0, "%");
            report.row(format!("{named}: cores"), seen.cpu, "cores");
            panel.push(Line { name: format!("{named} (ms)"), points: seen.course });
        }
        report.panels.push(panel);
    }
    Ok(report)
}
