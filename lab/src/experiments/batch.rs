//! A batch as people run one: many short commands, and many tasks that do nothing, on both backends, beside those that
//! people run them with today. Everything in one run on one machine, so that the ratios mean something.
//!
//! - [`processes`]: `/bin/true`, beside the raw spawn rate, xargs, GNU parallel and HyperQueue.
//! - [`nothing`]: no-op tasks, beside Celery and Dramatiq on the same RabbitMQ.
//! - [`million`]: how long a million take to be accepted, and what handing one out costs when a million wait.

mod million;
mod nothing;
mod processes;

use clap::{Args, ValueEnum};
use mutirao_testkit::Installation;

use super::overhead::wait_for_workers;
use crate::report::Report;
use crate::services::{Backend, Servers};

const WORKERS: u32 = 2;

#[derive(Args)]
pub struct Options {
    /// Processes of each round, and tasks of each peer.
    #[arg(long, default_value_t = 10_000)]
    tasks: u32,
    /// Tasks of what is about many.
    #[arg(long, default_value_t = 1_000_000)]
    many: u32,
    /// Rounds of each kind; the middle one counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Also run that many processes once on each backend, which takes a quarter of an hour each.
    #[arg(long)]
    many_processes: bool,
    /// Measure only this; may be repeated.
    #[arg(long, value_enum)]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// `/bin/true`.
    Processes,
    /// No-op tasks.
    Nothing,
    /// What is about many tasks.
    Million,
}

impl Options {
    fn want(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Our own installations on both backends, made anew for each measurement.
struct Ground {
    servers: Servers,
    cores: usize,
}

impl Ground {
    fn up(&self, backend: Backend, workers: u32) -> anyhow::Result<Installation> {
        let setup = Installation::setup().workers(workers).env("MUTIRAO_LOG", "warn");
        let up = match backend {
            Backend::Embedded => setup,
            Backend::Distributed => self.servers.fit(setup),
        }
        .start();
        wait_for_workers(&up, workers as usize)?;
        Ok(up)
    }
}

/// Stops it in order, or whoever comes next to the same servers waits for the leases of the dead.
fn down(mut up: Installation) {
    up.terminate();
}

fn on(backend: Backend) -> &'static str {
    backend.named("embedded", "distributed")
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let ground = Ground { servers: Servers::start()?, cores: std::thread::available_parallelism()?.get() };
    let mut report = Report::new("batch");
    report.note("ours: timed from before the submission until the last end is durable, outputs captured");
    report.note("raw, xargs and HyperQueue keep neither output nor record here; GNU parallel keeps output only");
    if options.want(Part::Processes) {
        processes::measure(&options, &ground, &mut report)?;
    }
    if options.want(Part::Nothing) {
        nothing::measure(&options, &ground, &mut report)?;
    }
    if options.want(Part::Million) {
        million::measure(&options, &ground, &mut report)?;
    }
    if options.many_processes {
        processes::measure_many(&options, &ground, &mut report)?;
    }
    Ok(report)
}
