//! `sapparchi-1`: one action at a time, there and back, every step durable, over MQTT, HTTP and AMQP; beside a message there
//! and back over the same without anything between. A Task goes by one protocol all the way; a run is asked for over HTTP,
//! whatever its node speaks.

use std::time::Duration;

use clap::Args;
use mutirao_nodes::Layer;
use serde_json::json;

use super::devices::Fleet;
use super::runners::Runner;
use super::{Bench, now, percentile, raw, runtime, shared_dice, tasks};
use crate::report::{Goal, Report};
use crate::services::Backend;

#[derive(Args)]
pub struct Options {
    /// Round trips of each kind.
    #[arg(long, default_value_t = 500)]
    times: usize,
    /// Where there is no RabbitMQ and no PostgreSQL: leave AMQP out.
    #[arg(long)]
    no_amqp: bool,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("sapparchi-1");
    let runtime = runtime()?;
    runtime.block_on(embedded(&mut report, options.times))?;
    if !options.no_amqp {
        runtime.block_on(distributed(&mut report, options.times))?;
    }
    report.note(
        "a Task is timed from the client's request to its answer, by the protocol that its node speaks too: twice the raw way; \
         a run from asking for it over HTTP to having what it gave. Either was accepted, and what its step gave was durable, \
         before that. The goal is twice the raw round trip and a millisecond; a run's is for HTTP on both sides",
    );
    Ok(report)
}

/// SQLite and the manager's own MQTT listener.
async fn embedded(report: &mut Report, times: usize) -> anyhow::Result<()> {
    let bench = Bench::start(Backend::Embedded)?;
    let bar = row(report, "raw, MQTT there and back with quality 1", &raw::mqtt(times).await?);
    let fleet = Fleet::new(&bench.mqtt, shared_dice());
    let device = fleet.device("d1", Layer::Edge, "actions.echo", Duration::ZERO)?;
    bench.declare_when_known(json!({"name": "echo", "steps": [{"name": "a", "action": "actions.echo"}]})).await?;
    goal(report, "a Task over MQTT, to a bare device", &tasks::mqtt(&bench, "actions.echo", times).await?, bar);
    row(report, "a run, to a bare device over MQTT", &runs(&bench, "echo", times).await?);
    drop(device);
    let mqtt = Runner::start(&bench, "lab-mqtt", "mqtt", &format!("mqtt://{}", bench.mqtt)).await?;
    row(report, "a run, to a node over MQTT that spools", &on(&bench, "lab-mqtt", times).await?);
    drop(mqtt);
    let bar = row(report, "raw, HTTP there and back, two requests", &raw::http(times).await?);
    let http = Runner::start(&bench, "lab-http", "http", &bench.up.url()).await?;
    goal(report, "a run over HTTP, to a node over HTTP that spools", &on(&bench, "lab-http", times).await?, bar);
    drop(http);
    row(report, "a run in the manager's process", &on(&bench, "manager", times).await?);
    Ok(())
}

/// PostgreSQL and RabbitMQ.
async fn distributed(report: &mut Report, times: usize) -> anyhow::Result<()> {
    let bench = Bench::start(Backend::Distributed)?;
    let Some(url) = bench.rabbit_url() else { anyhow::bail!("RabbitMQ was not started") };
    let bar = row(report, "raw, AMQP there and back, persistent and confirmed", &raw::amqp(&url, times).await?);
    goal(report, "a Task over AMQP, to a bare worker", &tasks::amqp(&bench, &url, times).await?, bar);
    let amqp = Runner::start(&bench, "lab-amqp", "amqp", &url).await?;
    row(report, "a run, to a node over AMQP that spools", &on(&bench, "lab-amqp", times).await?);
    drop(amqp);
    row(report, "a run in the manager's process, PostgreSQL", &on(&bench, "manager", times).await?);
    Ok(())
}

fn row(report: &mut Report, what: &str, took: &[f64]) -> f64 {
    report.row(format!("{what}: half within"), percentile(took, 0.5), "ms");
    report.row("  99 % within", percentile(took, 0.99), "ms");
    percentile(took, 0.5)
}

fn goal(report: &mut Report, what: &str, took: &[f64], raw: f64) {
    let goal = Goal::AtMost(raw * 2.0 + 1.0);
    report.goal(format!("{what}: half within"), percentile(took, 0.5), "ms", goal);
    report.row("  99 % within", percentile(took, 0.99), "ms");
}

/// A light action on this very node.
async fn on(bench: &Bench, node: &str, times: usize) -> anyhow::Result<Vec<f64>> {
    let flow = format!("on-{node}");
    let step = json!({"name": "a", "action": "builtin.cel", "on": {"node": node},
        "input": {"expression": "'input.n'", "input": "input"}});
    bench.declare_when_known(json!({"name": flow, "steps": [step]})).await?;
    runs(bench, &flow, times).await
}

/// Milliseconds from asking for a run to having what it gave, over HTTP, sorted.
async fn runs(bench: &Bench, flow: &str, times: usize) -> anyhow::Result<Vec<f64>> {
    let mut took = Vec::with_capacity(times);
    for n in 0..times + raw::WARM {
        let begun = now();
        let view = bench.ended(bench.begin(flow, json!({"n": n})).await?).await?;
        anyhow::ensure!(view["state"] == "done", "a run ended otherwise: {view}");
        if n >= raw::WARM {
            took.push(now().since(begun).as_secs_f64() * 1_000.0);
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}
