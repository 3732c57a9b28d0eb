//! What a task costs when it does nothing. Every task is accepted durably, dispatched, run, reported and its end written
//! durably: the clock runs from before the submission to after the last end is in the store.

mod distributed;
mod embedded;
mod process;

pub use process::{client, one_run, run_job, wait_for_workers};

use clap::Args;
use mutirao_core::job::{JobSpec, Spread};
use mutirao_core::task::{Action, TaskSpec};

use crate::report::{Goal, Report};
use crate::services::{Backend, Servers};

#[derive(Args)]
pub struct Options {
    /// Tasks in each run.
    #[arg(long, default_value_t = 400_000)]
    tasks: u32,
    /// Runs of each kind; the middle one counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Distinct tasks that wait while memory is measured.
    #[arg(long, default_value_t = 1_000_000)]
    waiting: u32,
    /// What it runs on.
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    if options.backend == Backend::Distributed {
        return distributed::run(&options);
    }
    let mut report = Report::new("overhead");
    report.note("timed from before the submission until the last end is in the store; every write is synced");
    embedded::measure(&options, &mut report)?;
    process::measure_link(&options, &mut report)?;
    process::measure_logging(&options, &mut report)?;
    process::measure_memory(&options, &mut report)?;
    Ok(report)
}

/// Only what tasks cost in CPU, on both backends.
pub fn ledgers(tasks: u32, runs: usize) -> anyhow::Result<Vec<(&'static str, Report)>> {
    let options = Options { tasks, runs, waiting: 0, backend: Backend::Embedded };
    let (mut embedded, mut distributed) = (Report::new("overhead"), Report::new("overhead-distributed"));
    process::measure_link(&options, &mut embedded)?;
    distributed::measure(&options, &Servers::start()?, &mut distributed)?;
    Ok(vec![("embedded", embedded), ("distributed", distributed)])
}

pub fn noop_job(tasks: u32) -> JobSpec {
    let spread = Spread::Array { first: 1, last: tasks };
    JobSpec { spread, ..JobSpec::new(TaskSpec::new(Action::Noop {})) }
}

pub fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

const IN_PROCESS: Goal = Goal::AtLeast(50_000.0);
const OVER_LINK: Goal = Goal::AtLeast(30_000.0);
const OVER_RABBITMQ: Goal = Goal::AtLeast(15_000.0);
const MEMORY: Goal = Goal::AtMost(600.0);
const LOGGING: Goal = Goal::AtMost(5.0);
