//! `sapparchi-2`: the manager is killed with nodes registered and runs under way. How soon every node is back, whether every
//! run ends, and whether any step counted twice, by the nodes' own account of what they did.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mutirao_core::node::RunsView;
use mutirao_core::quantity::Span;
use mutirao_core::{Clock, SystemClock};
use mutirao_nodes::Layer;
use serde_json::{Value, json};

use super::devices::Fleet;
use super::effects::found;
use super::{Bench, now, runtime, shared_dice};
use crate::report::{Goal, Report};
use crate::services::Backend;

/// Requests at once, to begin runs and to ask how they ended.
const AT_ONCE: usize = 16;
const STEPS: u64 = 3;

#[derive(Args)]
pub struct Options {
    #[arg(long, default_value_t = 200)]
    nodes: usize,
    #[arg(long, default_value_t = 2_000)]
    runs: usize,
    /// What each step takes: long enough that all runs are under way when the manager is killed.
    #[arg(long, default_value = "4s")]
    takes: Span,
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new(options.backend.named("sapparchi-2", "sapparchi-2-distributed"));
    runtime()?.block_on(measured(&mut report, &options))?;
    Ok(report)
}

async fn measured(report: &mut Report, options: &Options) -> anyhow::Result<()> {
    let mut bench = Bench::start(options.backend)?;
    let fleet = Fleet::accounting(&bench.mqtt, shared_dice());
    let mut devices = Vec::new();
    for n in 0..options.nodes {
        devices.push(fleet.device(&format!("d{n}"), Layer::Edge, "actions.mark", options.takes.0)?);
    }
    present(&bench, options.nodes).await?;
    let step = |n: u64| {
        let mut input = json!({"run": "input.run", "step": n.to_string()});
        if n > 0 {
            input["after"] = json!(format!("steps.s{}.output.mark", n - 1));
        }
        json!({"name": format!("s{n}"), "action": "actions.mark", "input": input, "retries": 20})
    };
    let steps: Vec<Value> = (0..STEPS).map(step).collect();
    bench.declare_when_known(json!({"name": "marks", "steps": steps})).await?;
    let begun = now();
    let runs = each(&bench, (0..options.runs as u64).collect(), async |bench, n| {
        Ok((bench.begin("marks", json!({"run": n})).await?, n))
    });
    let runs: HashMap<u64, u64> = runs.await?.into_iter().collect();
    let took = now().since(begun).as_secs_f64();
    let account = || fleet.seen.effects.as_ref().map(|effects| effects.account()).unwrap_or_default();
    let (answered, ended) =
        (fleet.seen.answered.load(Ordering::Relaxed), account().keys().filter(|key| key.1 + 1 == STEPS).count());
    bench.up.kill9();
    let at_work = account().values().map(|done| done.marks.len()).sum::<usize>() - answered as usize;
    SystemClock.sleep(Duration::from_secs(1)).await;
    let returns = now();
    bench.up.restart();
    let answers = now();
    // Its address moved with it.
    bench.client = mutirao_client::Client::new(&bench.up.url(), mutirao_client::Credentials::Token(bench.up.token()))?;
    present(&bench, options.nodes).await?;
    let (since_start, since_answer) = (now().since(returns).as_secs_f64(), now().since(answers).as_secs_f64());
    let views = each(&bench, runs.keys().copied().collect(), async |bench, run| Ok((run, bench.ended(run).await?)));
    let views: HashMap<u64, Value> = views.await?.into_iter().collect();
    let done = views.values().filter(|view| view["state"] == "done").count();
    let marks = views.iter().map(|(run, view)| (runs[run], view["output"]["mark"].clone())).collect();
    let found = found(&account(), STEPS, &marks);
    report.row("runs that were begun before the kill", runs.len() as f64, "runs");
    report.row("  in", took, "s");
    report.row("  of them at their last step, or past it", ended as f64, "runs");
    report.row("tasks that nodes were at when the manager was killed", at_work as f64, "tasks");
    report.row("every node is registered again after the manager answers", since_answer, "s");
    report.goal("  after it was started", since_start, "s", Goal::AtMost(5.0));
    report.goal("runs that ended well", done as f64, "runs", Goal::AtLeast(options.runs as f64));
    report.goal(
        "steps that no node did, or that nobody believed, of those",
        found.missing as f64,
        "steps",
        Goal::AtMost(0.0),
    );
    report.goal("steps of which two doings were believed", found.counted_twice as f64, "steps", Goal::AtMost(0.0));
    report.goal("steps that nodes did again", found.done_again as f64, "steps", Goal::AtMost(0.0));
    report.note("what was done is the nodes' own account: each doing has a mark, and what comes after is given it");
    Ok(())
}

/// Asks for each, several at once.
async fn each<T: Copy + Send, R: Send>(
    bench: &Bench,
    what: Vec<T>,
    ask: impl AsyncFn(&Bench, T) -> anyhow::Result<R>,
) -> anyhow::Result<Vec<R>> {
    let (next, what) = (AtomicUsize::new(0), Arc::new(what));
    let asker = async || {
        let mut answers = Vec::new();
        while let Some(one) = what.get(next.fetch_add(1, Ordering::Relaxed)) {
            answers.push(ask(bench, *one).await?);
        }
        anyhow::Ok(answers)
    };
    let all = futures_util::future::join_all((0..AT_ONCE).map(|_| asker())).await;
    let answers: anyhow::Result<Vec<Vec<R>>> = all.into_iter().collect();
    Ok(answers.context("a request failed")?.into_iter().flatten().collect())
}

/// Until this node is there.
pub async fn registered(bench: &Bench, name: &str, over: &str) -> anyhow::Result<()> {
    let begun = now();
    loop {
        let list = bench.client.nodes().await.unwrap_or_default();
        let is_there = |runs: &RunsView| runs.presence == "registered" && runs.over.iter().any(|one| one == over);
        if list.iter().any(|node| node.name == name && node.runs.as_ref().is_some_and(is_there)) {
            return Ok(());
        }
        anyhow::ensure!(now().since(begun) < Duration::from_secs(60), "the node {name} did not register");
        SystemClock.sleep(Duration::from_millis(50)).await;
    }
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
