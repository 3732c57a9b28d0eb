//! Real processes. How much of what the kernel can do is left when each `/bin/true` is a task: accepted, dispatched, its
//! output captured, its end written durably.

use std::process::{Command, Stdio};

use clap::Args;
use mutirao_core::exec::Exec;
use mutirao_core::job::{JobSpec, Spread};
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{Clock, SystemClock};
use mutirao_testkit::Installation;

use super::overhead::{run_job, wait_for_workers};
use crate::ledger::Ledger;
use crate::report::{Goal, Report};
use crate::services::Backend;

#[derive(Args)]
pub struct Options {
    /// Tasks in each run.
    #[arg(long, default_value_t = 10_000)]
    tasks: u32,
    /// Rounds of raw, ours and xargs, in turn; the middle one counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// What it runs on.
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new(options.backend.named("spawn", "spawn-distributed"));
    report.note("raw and xargs capture no output and keep no record; ours does both, durably");
    let cores = std::thread::available_parallelism()?.get();
    let backing = options.backend.start()?;
    let up = backing.fit(Installation::setup().workers(2).env("MUTIRAO_LOG", "warn")).start();
    wait_for_workers(&up, 2)?;
    let mut spent = Ledger::default();
    let (mut raw, mut ours, mut xargs, mut shares) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let limit = raw_rate(cores, options.tasks / cores as u32)?;
        let before = Ledger::now(&up, backing.servers());
        let rate = run_job(&up, &true_job(options.tasks))?;
        spent = spent.plus(Ledger::now(&up, backing.servers()).since(&before));
        shares.push(rate / limit * 100.0);
        raw.push(limit);
        ours.push(rate);
        xargs.push(xargs_rate(cores, options.tasks)?);
    }
    let middle = super::overhead::middle;
    report.row(format!("raw posix_spawn and wait, {cores} threads"), middle(raw), "tasks/s");
    report.row("mutirao, 2 workers", middle(ours), "tasks/s");
    spent.tell(f64::from(options.tasks) * options.runs as f64, &mut report);
    report.row(format!("xargs -P{cores}, output not captured"), middle(xargs), "tasks/s");
    report.goal("mutirao's share of raw", middle(shares), "%", Goal::AtLeast(65.0));
    Ok(report)
}

pub fn true_job(tasks: u32) -> JobSpec {
    let exec = Exec { command: vec!["/bin/true".into()], ..Exec::default() };
    JobSpec { spread: Spread::Array { first: 1, last: tasks }, ..JobSpec::new(TaskSpec::new(Action::Exec(exec))) }
}

pub fn raw_rate(threads: usize, each: u32) -> anyhow::Result<f64> {
    let begin = SystemClock.monotonic();
    let spawn = move || -> std::io::Result<()> {
        for _ in 0..each {
            Command::new("/bin/true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        }
        Ok(())
    };
    let threads: Vec<_> = (0..threads).map(|_| std::thread::spawn(spawn)).collect();
    let count = threads.len() as f64 * f64::from(each);
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a spawning thread panicked"))??;
    }
    Ok(count / SystemClock.monotonic().since(begin).as_secs_f64())
}

pub fn xargs_rate(cores: usize, tasks: u32) -> anyhow::Result<f64> {
    let begin = SystemClock.monotonic();
    let line = format!("seq {tasks} | xargs -P{cores} -n1 /bin/true");
    let status = Command::new("sh").args(["-c", &line]).status()?;
    anyhow::ensure!(status.success(), "xargs failed: {status}");
    Ok(f64::from(tasks) / SystemClock.monotonic().since(begin).as_secs_f64())
}
