//! `sapparchi-4`: forty light steps one after the other, as engines of workflows are compared by. Each step is durable before
//! the next begins.

use clap::Args;
use serde_json::{Value, json};

use super::{Bench, now, percentile, runtime};
use crate::report::{Goal, Report};
use crate::services::Backend;

/// Per step, as Windmill publishes them for its own and other engines.
const PUBLISHED: [(&str, f64); 3] = [("Windmill", 52.0), ("Temporal", 74.0), ("Airflow", 2_906.0)];

#[derive(Args)]
pub struct Options {
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// Runs, one after the other.
    #[arg(long, default_value_t = 20)]
    runs: usize,
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new(options.backend.named("sapparchi-4", "sapparchi-4-distributed"));
    let per_step = runtime()?.block_on(measured(&options))?;
    let goal = match options.backend {
        Backend::Embedded => 2.0,
        Backend::Distributed => 4.0,
    };
    report.goal("mutirao, a step: half of the runs within", percentile(&per_step, 0.5), "ms", Goal::AtMost(goal));
    report.row("  the slowest run", percentile(&per_step, 1.0), "ms");
    for (who, ms) in PUBLISHED {
        report.row(format!("{who}, as published, on other machines"), ms, "ms");
    }
    report
        .note("each step is a CEL expression in the manager's process; what it gave is durable before the next begins");
    Ok(report)
}

async fn measured(options: &Options) -> anyhow::Result<Vec<f64>> {
    let bench = Bench::start(options.backend)?;
    let step = |n: usize| {
        let from = if n == 0 { "input".to_owned() } else { format!("steps.s{}.output", n - 1) };
        json!({"name": format!("s{n}"), "action": "builtin.cel", "input": {"expression": "'input + 1'", "input": from}})
    };
    let steps: Vec<Value> = (0..options.steps).map(step).collect();
    bench.declare_when_known(json!({"name": "forty", "steps": steps})).await?;
    let mut per_step = Vec::new();
    for n in 0..options.runs + 3 {
        let begun = now();
        let view = bench.ended(bench.begin("forty", json!(0)).await?).await?;
        anyhow::ensure!(view["output"] == json!(options.steps), "it gave something else: {view}");
        if n >= 3 {
            per_step.push(now().since(begun).as_secs_f64() * 1_000.0 / options.steps as f64);
        }
    }
    per_step.sort_by(f64::total_cmp);
    Ok(per_step)
}
