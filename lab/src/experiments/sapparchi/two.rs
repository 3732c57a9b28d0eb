//! `sapparchi-2`: the manager is killed with nodes registered and runs under way. How soon every node is back, whether every
//! run ends, and whether anything counted twice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use mutirao_core::node::RunsView;
use mutirao_core::{Clock, SystemClock};
use mutirao_nodes::Layer;
use serde_json::{Value, json};

use super::devices::Fleet;
use super::{Bench, now, runtime, shared_dice};
use crate::report::{Goal, Report};
use crate::services::Backend;

#[derive(Args)]
pub struct Options {
    #[arg(long, default_value_t = 200)]
    nodes: usize,
    #[arg(long, default_value_t = 2_000)]
    runs: usize,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("sapparchi-2");
    runtime()?.block_on(measured(&mut report, &options))?;
    Ok(report)
}

async fn measured(report: &mut Report, options: &Options) -> anyhow::Result<()> {
    let mut bench = Bench::start(Backend::Embedded)?;
    let fleet = Fleet::new(&bench.mqtt, shared_dice());
    let mut devices = Vec::new();
    for n in 0..options.nodes {
        devices.push(fleet.device(&format!("d{n}"), Layer::Edge, "actions.echo", Duration::from_millis(50))?);
    }
    present(&bench, options.nodes).await?;
    let steps: Vec<Value> = (0..3)
        .map(|n| match n {
            0 => json!({"name": "s0", "action": "actions.echo"}),
            _ => json!({"name": format!("s{n}"), "action": "actions.echo", "after": [format!("s{}", n - 1)], "retries": 20}),
        })
        .collect();
    bench.declare_when_known(json!({"name": "three", "steps": steps})).await?;
    let mut runs = Vec::new();
    for n in 0..options.runs {
        runs.push(bench.begin("three", json!({"n": n})).await?);
    }
    let before = fleet.seen.answered.load(Ordering::Relaxed);
    bench.up.kill9();
    SystemClock.sleep(Duration::from_secs(1)).await;
    bench.up.restart();
    let back = now();
    // Who the address moved with it.
    bench.client = mutirao_client::Client::new(&bench.up.url(), mutirao_client::Credentials::Token(bench.up.token()))?;
    present(&bench, options.nodes).await?;
    let all_back = now().since(back).as_secs_f64();
    let (mut done, mut wrong) = (0, 0);
    for run in &runs {
        let view = bench.ended(*run).await?;
        let whole = view["steps"].as_object().is_some_and(|steps| steps.len() == 3);
        if view["state"] == "done" && whole { done += 1 } else { wrong += 1 }
    }
    report.row("tasks answered before the kill", before as f64, "tasks");
    report.goal("every node is registered again after the manager is back", all_back, "s", Goal::AtMost(5.0));
    report.goal("runs that ended well", done as f64, "runs", Goal::AtLeast(options.runs as f64));
    report.goal("runs that did not, or not whole", wrong as f64, "runs", Goal::AtMost(0.0));
    let again = fleet.seen.requests.lock().values().filter(|times| **times > 1).count();
    report.row("requests that a node was given twice", again as f64, "tasks");
    Ok(())
}

/// Until so many nodes are there.
pub async fn present(bench: &Bench, nodes: usize) -> anyhow::Result<()> {
    let begun = now();
    loop {
        let list = bench.client.nodes().await.unwrap_or_default();
        let is_there = |runs: &RunsView| runs.presence == "registered" && runs.over.iter().any(|over| over == "mqtt");
        let there = list.iter().filter(|node| node.runs.as_ref().is_some_and(is_there)).count();
        if there >= nodes {
            return Ok(());
        }
        anyhow::ensure!(now().since(begun) < Duration::from_secs(60), "only {there} of {nodes} nodes came");
        SystemClock.sleep(Duration::from_millis(50)).await;
    }
}
