//! `sapparchi-1`: one action at a time, there and back, every step durable; beside a message there and back through the same
//! listener without anything between.

use std::time::Duration;

use clap::Args;
use mutirao_core::SystemClock;
use mutirao_mqtt::client::{Client, Options as MqttOptions};
use mutirao_mqtt::{Qos, TopicFilter, TopicName};
use mutirao_nodes::Layer;
use serde_json::json;

use super::devices::Fleet;
use super::{Bench, now, percentile, runtime, shared_dice};
use crate::report::{Goal, Report};
use crate::services::Backend;

#[derive(Args)]
pub struct Options {
    /// Round trips of each kind.
    #[arg(long, default_value_t = 500)]
    times: usize,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("sapparchi-1");
    runtime()?.block_on(measured(&mut report, &options))?;
    report.note("MQTT and in the manager's own process; AMQP and HTTP are measured once they carry flows");
    Ok(report)
}

async fn measured(report: &mut Report, options: &Options) -> anyhow::Result<()> {
    let bench = Bench::start(Backend::Embedded)?;
    let fleet = Fleet::new(&bench.mqtt, shared_dice());
    let raw = raw(&bench.mqtt, options.times).await?;
    report.row("raw, MQTT there and back with quality 1: half within", percentile(&raw, 0.5), "ms");
    let _device = fleet.device("d1", Layer::Edge, "actions.echo", Duration::ZERO)?;
    let echo = json!({"name": "echo", "steps": [{"name": "a", "action": "actions.echo"}]});
    bench.declare_when_known(echo).await?;
    let goal = percentile(&raw, 0.5) * 2.0 + 1.0;
    let took = runs(&bench, "echo", options.times).await?;
    report.goal("one action over MQTT, run to its end: half within", percentile(&took, 0.5), "ms", Goal::AtMost(goal));
    report.row("  99 % within", percentile(&took, 0.99), "ms");
    let here = json!({"name": "here", "steps": [{"name": "a", "action": "builtin.cel",
        "input": {"expression": "'1 + 1'", "input": "input"}}]});
    bench.declare(here).await?;
    let took = runs(&bench, "here", options.times).await?;
    report.row("one action in the manager's process: half within", percentile(&took, 0.5), "ms");
    report.row("  99 % within", percentile(&took, 0.99), "ms");
    Ok(())
}

/// Milliseconds from asking for a run to having what it gave, over HTTP, sorted.
async fn runs(bench: &Bench, flow: &str, times: usize) -> anyhow::Result<Vec<f64>> {
    let mut took = Vec::with_capacity(times);
    for n in 0..times + 20 {
        let begun = now();
        let view = bench.ended(bench.begin(flow, json!({"n": n})).await?).await?;
        anyhow::ensure!(view["state"] == "done", "a run ended otherwise: {view}");
        if n >= 20 {
            took.push(now().since(begun).as_secs_f64() * 1_000.0);
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// Two clients that only speak to each other.
async fn raw(server: &str, times: usize) -> anyhow::Result<Vec<f64>> {
    let dice = shared_dice();
    let client = |id: &str, hears: &str| -> anyhow::Result<_> {
        let mut options = MqttOptions::new(server, id, SystemClock::shared(), dice.clone());
        options.clean = true;
        options.subscriptions = vec![(TopicFilter::new(hears)?, Qos::AtLeastOnce)];
        Ok(Client::start(options))
    };
    // Anonymous devices may say results and hear what is for them; these two are each other's node.
    let (asks, mut answers) = client("raw-1", "mutirao/node/raw-1/in")?;
    let (echo, mut asked) = client("raw-2", "mutirao/node/raw-2/in")?;
    for one in [&asks, &echo] {
        one.state().wait_for(|state| *state == mutirao_mqtt::client::State::Connected).await?;
    }
    let (to, back) = (TopicName::new("mutirao/node/raw-2/in")?, TopicName::new("mutirao/node/raw-1/in")?);
    tokio::spawn(async move {
        while let Some(message) = asked.recv().await {
            let body = message.payload.clone();
            message.accept();
            let (echo, back) = (echo.clone(), back.clone());
            tokio::spawn(async move { echo.publish(back, body, Qos::AtLeastOnce).await });
        }
    });
    let mut took = Vec::with_capacity(times);
    for n in 0..times + 20 {
        let begun = now();
        let (asks, to) = (asks.clone(), to.clone());
        tokio::spawn(async move { asks.publish(to, format!("{n}").into(), Qos::AtLeastOnce).await });
        let answer =
            mutirao_core::clock::ClockExt::timeout(&SystemClock, Duration::from_secs(10), answers.recv()).await;
        let Ok(Some(answer)) = answer else { anyhow::bail!("the raw round trip was not answered") };
        answer.accept();
        if n >= 20 {
            took.push(now().since(begun).as_secs_f64() * 1_000.0);
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}
