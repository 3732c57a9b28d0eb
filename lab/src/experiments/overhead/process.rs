//! The real thing: `mutirao up` with worker processes that reach it over the link.

use std::time::Duration;

use anyhow::Context;
use mutirao_client::{Client, Credentials};
use mutirao_core::exec::Exec;
use mutirao_core::job::{JobSpec, Spread};
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{Clock, SystemClock};
use mutirao_testkit::Installation;

use super::{LOGGING, MEMORY, OVER_LINK, Options, middle, noop_job};
use crate::proc;
use crate::report::Report;

/// Between two looks whether a job has ended.
const LOOK_FIRST: Duration = Duration::from_millis(5);
const LOOK_LAST: Duration = Duration::from_millis(100);

pub fn measure_link(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let mut rates = Vec::new();
    let mut ledger = [0.0, 0.0];
    for _ in 0..options.runs {
        let up = Installation::setup().workers(2).env("MUTIRAO_LOG", "warn").start();
        wait_for_workers(&up, 2)?;
        let workers = up.worker_pids();
        let before = (proc::cpu(up.pid()), workers.iter().map(|pid| proc::cpu(*pid)).sum::<Duration>());
        rates.push(one_run(&up, options.tasks)?);
        let after = (proc::cpu(up.pid()), workers.iter().map(|pid| proc::cpu(*pid)).sum::<Duration>());
        let runs_tasks = f64::from(options.tasks) * options.runs as f64;
        ledger[0] += (after.0 - before.0).as_secs_f64() * 1e6 / runs_tasks;
        ledger[1] += (after.1 - before.1).as_secs_f64() * 1e6 / runs_tasks;
    }
    report.goal("worker processes over the link", middle(rates), "tasks/s", OVER_LINK);
    report.row("  CPU, manager process", ledger[0], "µs/task");
    report.row("  CPU, both worker processes", ledger[1], "µs/task");
    Ok(())
}

/// Pairs of runs, one silent and one at info, taken in turn so that a drift of the machine hits both.
pub fn measure_logging(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (mut silent, mut info) = (Vec::new(), Vec::new());
    for _ in 0..options.runs.max(5) {
        for (level, rates) in [("off", &mut silent), ("info", &mut info)] {
            let up = Installation::setup().workers(2).env("MUTIRAO_LOG", level).start();
            wait_for_workers(&up, 2)?;
            rates.push(one_run(&up, options.tasks)?);
        }
    }
    let (silent, info) = (middle(silent), middle(info));
    report.goal("logging at info costs", (silent / info - 1.0) * 100.0, "%", LOGGING);
    Ok(())
}

/// A manager without workers, and distinct tasks that wait.
pub fn measure_memory(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    const PER_JOB: u32 = 100_000;
    let up = Installation::setup().workers(0).start();
    let empty = proc::memory(up.pid()).0;
    let clock = SystemClock::shared();
    let begin = clock.monotonic();
    let client = client(&up)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut left = options.waiting;
    while left > 0 {
        let some = left.min(PER_JOB);
        let command = |n: u32| {
            vec!["process-one".to_owned(), format!("--input=/data/set-{n:08}.csv"), format!("--seed={}", n * 31)]
        };
        let commands = (left - some..left).map(command).collect();
        let spec = JobSpec {
            spread: Spread::Commands(commands),
            ..JobSpec::new(TaskSpec::new(Action::Exec(Exec::default())))
        };
        runtime.block_on(client.submit(&spec))?;
        left -= some;
    }
    let took = clock.monotonic().since(begin).as_secs_f64();
    let (now, peak) = proc::memory(up.pid());
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    report.row("manager's memory, nothing waiting", megabytes(empty), "MB");
    report.goal(format!("manager's memory, {} distinct waiting", options.waiting), megabytes(now), "MB", MEMORY);
    report.goal("  at its highest, while they came in", megabytes(peak), "MB", MEMORY);
    report.row("  taking them in", took, "s");
    Ok(())
}

pub fn client(up: &Installation) -> anyhow::Result<Client> {
    Client::new(&up.url(), Credentials::Token(up.token())).context("cannot make a client")
}

pub fn wait_for_workers(up: &Installation, n: usize) -> anyhow::Result<()> {
    let client = client(up)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        while client.workers().await?.len() < n {
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    })
}

/// Tasks per second from before the submission until every end is written.
pub fn one_run(up: &Installation, tasks: u32) -> anyhow::Result<f64> {
    run_job(up, &noop_job(tasks))
}

pub fn run_job(up: &Installation, spec: &JobSpec) -> anyhow::Result<f64> {
    let client = client(up)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let begin = SystemClock.monotonic();
        let job = client.submit(spec).await?;
        loop {
            let view = client.job(job.id).await?;
            if view.finished_at.is_some() {
                anyhow::ensure!(view.counts.ok == view.tasks, "not every task ended ok: {:?}", view.counts);
                return Ok(view.tasks as f64 / SystemClock.monotonic().since(begin).as_secs_f64());
            }
            // To look is work for the manager as well: the longer it takes, the more seldom, and never too late to matter.
            let looks_apart = SystemClock.monotonic().since(begin) / 100;
            SystemClock.sleep(looks_apart.clamp(LOOK_FIRST, LOOK_LAST)).await;
        }
    })
}
