//! `sapparchi-3`: eleven nodes, one of them slowed to two seconds. Which share of calls is answered within a second, when
//! nodes take turns, and when it is learned who is slow.

use std::time::Duration;

use clap::Args;
use mutirao_nodes::Layer;
use serde_json::json;

use super::devices::Fleet;
use super::two::present;
use super::{Bench, now, runtime, shared_dice};
use crate::report::{Goal, Report};
use crate::services::Backend;

#[derive(Args)]
pub struct Options {
    #[arg(long, default_value_t = 4_000)]
    calls: usize,
    /// Calls at once.
    #[arg(long, default_value_t = 16)]
    at_once: usize,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("sapparchi-3");
    let by_turns = runtime()?.block_on(share(&options, "round-robin"))?;
    report.row("by turns: answered within a second", by_turns * 100.0, "%");
    let learned = runtime()?.block_on(share(&options, "learned"))?;
    report.goal("as learned: answered within a second", learned * 100.0, "%", Goal::AtLeast(99.9));
    Ok(report)
}

async fn share(options: &Options, policy: &str) -> anyhow::Result<f64> {
    let bench = Bench::start_with(Backend::Embedded, |setup| setup.set("nodes.routing", policy))?;
    let fleet = Fleet::new(&bench.mqtt, shared_dice());
    let mut devices = Vec::new();
    for n in 0..11 {
        let takes = if n == 0 { Duration::from_secs(2) } else { Duration::from_millis(10) };
        devices.push(fleet.device(&format!("d{n}"), Layer::Edge, "actions.echo", takes)?);
    }
    present(&bench, 11).await?;
    bench.declare_when_known(json!({"name": "one", "steps": [{"name": "a", "action": "actions.echo"}]})).await?;
    let (bench, next) = (std::sync::Arc::new(bench), std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let mut callers = Vec::new();
    for _ in 0..options.at_once {
        let (bench, next, calls) = (bench.clone(), next.clone(), options.calls);
        callers.push(tokio::spawn(async move {
            let mut soon = 0;
            while next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < calls {
                let begun = now();
                let view = bench.ended(bench.begin("one", json!(1)).await?).await?;
                anyhow::ensure!(view["state"] == "done", "a run ended otherwise: {view}");
                soon += usize::from(now().since(begun) < Duration::from_secs(1));
            }
            Ok(soon)
        }));
    }
    let mut soon = 0;
    for caller in callers {
        soon += caller.await??;
    }
    Ok(soon as f64 / options.calls as f64)
}
