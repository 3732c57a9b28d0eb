//! `/bin/true`, many times.

use std::path::Path;
use std::process::Command;

use mutirao_core::{Clock, SystemClock};

use super::{Ground, Options, WORKERS, down, on};
use crate::experiments::overhead::{middle, run_job};
use crate::experiments::spawn::{raw_rate, true_job, xargs_rate};
use crate::peers::{self, Peers};
use crate::report::{Goal, Report};
use crate::services::Backend;

const SHARE_OF_RAW: Goal = Goal::AtLeast(65.0);
const TIMES_HYPERQUEUE: Goal = Goal::AtLeast(2.5);

pub fn measure(options: &Options, ground: &Ground, report: &mut Report) -> anyhow::Result<()> {
    let peers = Peers::prepare(Path::new(peers::FOLDER))?;
    let Options { tasks, runs, .. } = *options;
    let cores = ground.cores;
    let embedded = ground.up(Backend::Embedded, WORKERS)?;
    let distributed = ground.up(Backend::Distributed, WORKERS)?;
    // In turn, so that a drift of the machine hits all alike.
    let mut rates: [Vec<f64>; 6] = Default::default();
    for _ in 0..runs {
        let round = [
            raw_rate(cores, tasks / cores as u32)?,
            run_job(&embedded, &true_job(tasks))?,
            run_job(&distributed, &true_job(tasks))?,
            xargs_rate(cores, tasks)?,
            parallel_rate(cores, tasks)?,
            peers.hyperqueue_rate(tasks, cores)?,
        ];
        for (all, one) in rates.iter_mut().zip(round) {
            all.push(one);
        }
    }
    down(embedded);
    down(distributed);
    let [raw, ours, ours_distributed, xargs, parallel, hyperqueue] = rates.map(middle);
    report.row(format!("raw posix_spawn and wait, {cores} threads"), raw, "processes/s");
    report.row("mutirao, embedded", ours, "processes/s");
    report.row("mutirao, distributed", ours_distributed, "processes/s");
    report.row(format!("xargs -P{cores}"), xargs, "processes/s");
    report.row(format!("GNU parallel -j{cores}"), parallel, "processes/s");
    report.row(format!("HyperQueue, {cores} cores"), hyperqueue, "processes/s");
    report.goal("embedded, of raw", ours / raw * 100.0, "%", SHARE_OF_RAW);
    report.goal("distributed, of raw", ours_distributed / raw * 100.0, "%", SHARE_OF_RAW);
    report.goal("embedded, times HyperQueue", ours / hyperqueue, "×", TIMES_HYPERQUEUE);
    report.goal("distributed, times HyperQueue", ours_distributed / hyperqueue, "×", TIMES_HYPERQUEUE);
    Ok(())
}

/// Once each: the others would take hours.
pub fn measure_many(options: &Options, ground: &Ground, report: &mut Report) -> anyhow::Result<()> {
    let raw = raw_rate(ground.cores, options.many / ground.cores as u32)?;
    report.row(format!("raw, {} processes", options.many), raw, "processes/s");
    for backend in [Backend::Embedded, Backend::Distributed] {
        let up = ground.up(backend, WORKERS)?;
        let rate = run_job(&up, &true_job(options.many))?;
        down(up);
        let what = format!("{}, {} processes, of raw", on(backend), options.many);
        report.goal(what, rate / raw * 100.0, "%", SHARE_OF_RAW);
    }
    Ok(())
}

fn parallel_rate(cores: usize, tasks: u32) -> anyhow::Result<f64> {
    let begin = SystemClock.monotonic();
    let line = format!("seq {tasks} | parallel --will-cite -j{cores} -n0 /bin/true");
    let status = Command::new("sh").args(["-c", &line]).status()?;
    anyhow::ensure!(status.success(), "GNU parallel failed: {status} (Debian: apt-get install parallel)");
    Ok(f64::from(tasks) / SystemClock.monotonic().since(begin).as_secs_f64())
}
