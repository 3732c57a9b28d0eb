//! `sapparchi-5`: a thousand nodes by MQTT on one machine: what each costs the manager while it only is there, and while it
//! works.

use std::time::Duration;

use clap::Args;
use mutirao_core::{Clock, SystemClock};
use mutirao_nodes::Layer;
use serde_json::json;

use super::devices::Fleet;
use super::two::present;
use super::{Bench, now, runtime, shared_dice};
use crate::proc;
use crate::report::Report;
use crate::services::Backend;

#[derive(Args)]
pub struct Options {
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    /// How long they only are there.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[arg(long, default_value_t = 5_000)]
    runs: usize,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("sapparchi-5");
    runtime()?.block_on(measured(&mut report, &options))?;
    Ok(report)
}

async fn measured(report: &mut Report, options: &Options) -> anyhow::Result<()> {
    let bench = Bench::start(Backend::Embedded)?;
    let pid = bench.up.pid();
    let fleet = Fleet::new(&bench.mqtt, shared_dice());
    SystemClock.sleep(Duration::from_secs(2)).await;
    let (alone, _) = proc::memory(pid);
    let mut devices = Vec::new();
    for n in 0..options.nodes {
        devices.push(fleet.device(&format!("d{n}"), Layer::Edge, "actions.echo", Duration::ZERO)?);
    }
    present(&bench, options.nodes).await?;
    let (with, _) = proc::memory(pid);
    let per_node = |bytes: u64| bytes.saturating_sub(alone) as f64 / 1_024.0 / options.nodes as f64;
    report.row("memory of the manager, a node", per_node(with), "KiB");
    let cpu = proc::cpu(pid);
    SystemClock.sleep(Duration::from_secs(options.seconds)).await;
    let idle = (proc::cpu(pid) - cpu).as_secs_f64() / options.seconds as f64;
    report.row("CPU of the manager while they only are there, a node", idle * 1e6 / options.nodes as f64, "µs/s");
    bench.declare_when_known(json!({"name": "one", "steps": [{"name": "a", "action": "actions.echo"}]})).await?;
    let (begun, cpu) = (now(), proc::cpu(pid));
    let mut runs = Vec::new();
    for n in 0..options.runs {
        runs.push(bench.begin("one", json!(n)).await?);
    }
    for run in runs {
        let view = bench.ended(run).await?;
        anyhow::ensure!(view["state"] == "done", "a run ended otherwise: {view}");
    }
    let took = now().since(begun).as_secs_f64();
    report.row("runs of one action, begun one by one over HTTP", options.runs as f64 / took, "runs/s");
    let each = (proc::cpu(pid) - cpu).as_secs_f64() * 1e6 / options.runs as f64;
    report.row("  CPU of the manager, a run", each, "µs");
    let (after, highest) = proc::memory(pid);
    report.row("memory of the manager after them, a node", per_node(after), "KiB");
    report.row("memory of the manager at its highest", highest as f64 / (1 << 20) as f64, "MiB");
    Ok(())
}
