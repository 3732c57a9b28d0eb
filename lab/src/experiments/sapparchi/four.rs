//! `sapparchi-4`: forty light steps one after the other, as engines of workflows are compared by. Each step is durable before
//! the next begins. And runs of one step, for what a run costs by itself.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::{Bench, now, percentile, runtime};
use crate::proc;
use crate::report::{Goal, Report};
use crate::services::Backend;

/// Per step, as Windmill publishes them for its own and other engines.
const PUBLISHED: [(&str, f64); 3] = [("Windmill", 52.0), ("Temporal", 74.0), ("Airflow", 2_906.0)];
/// Not counted.
const WARM: usize = 3;

#[derive(Args)]
pub struct Options {
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// Runs, one after the other.
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// Runs of one step, one after the other.
    #[arg(long, default_value_t = 1_000)]
    single: usize,
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new(options.backend.named("sapparchi-4", "sapparchi-4-distributed"));
    let (forty, one) = runtime()?.block_on(measured(&options))?;
    let goal = match options.backend {
        Backend::Embedded => 2.0,
        Backend::Distributed => 4.0,
    };
    let per_step: Vec<f64> = forty.took.iter().map(|ms| ms / options.steps as f64).collect();
    report.goal("mutirao, a step: half of the runs within", percentile(&per_step, 0.5), "ms", Goal::AtMost(goal));
    report.row("  the slowest run", percentile(&per_step, 1.0), "ms");
    report.row("  CPU of the manager, a step", forty.cpu_us / options.steps as f64, "µs");
    report.row("  CPU of the manager, a run", forty.cpu_us, "µs");
    report.row("a run of one step: half within", percentile(&one.took, 0.5), "ms");
    report.row("  CPU of the manager, a run", one.cpu_us, "µs");
    for (who, ms) in PUBLISHED {
        report.row(format!("{who}, as published, on other machines"), ms, "ms");
    }
    report
        .note("each step is a CEL expression in the manager's process; what it gave is durable before the next begins");
    Ok(report)
}

struct Measured {
    /// Milliseconds of each run, sorted.
    took: Vec<f64>,
    /// Of the manager, for each of them.
    cpu_us: f64,
}

async fn measured(options: &Options) -> anyhow::Result<(Measured, Measured)> {
    let bench = Bench::start(options.backend)?;
    let forty = sequence(&bench, "forty", options.steps, options.runs).await?;
    Ok((forty, sequence(&bench, "one", 1, options.single).await?))
}

async fn sequence(bench: &Bench, name: &str, steps: usize, runs: usize) -> anyhow::Result<Measured> {
    let step = |n: usize| {
        let from = if n == 0 { "input".to_owned() } else { format!("steps.s{}.output", n - 1) };
        json!({"name": format!("s{n}"), "action": "builtin.cel", "input": {"expression": "'input + 1'", "input": from}})
    };
    let all: Vec<Value> = (0..steps).map(step).collect();
    bench.declare_when_known(json!({"name": name, "steps": all})).await?;
    let (mut took, mut cpu) = (Vec::new(), Duration::ZERO);
    for n in 0..runs + WARM {
        if n == WARM {
            cpu = proc::cpu(bench.up.pid());
        }
        let begun = now();
        let view = bench.ended(bench.begin(name, json!(0)).await?).await?;
        anyhow::ensure!(view["output"] == json!(steps), "it gave something else: {view}");
        if n >= WARM {
            took.push(now().since(begun).as_secs_f64() * 1_000.0);
        }
    }
    let cpu_us = (proc::cpu(bench.up.pid()) - cpu).as_secs_f64() * 1e6 / runs.max(1) as f64;
    took.sort_by(f64::total_cmp);
    Ok(Measured { took, cpu_us })
}
