//! `sapparchi-3`: eleven nodes, one of them slowed to two seconds. Which share of calls is answered within a second, when
//! nodes take turns, and when it is learned who is slow.

use std::time::Duration;

use clap::Args;
use mutirao_nodes::Layer;
use serde_json::json;

use super::devices::Fleet;
use super::two::present;
use super::{Bench, now, percentile, runtime, shared_dice};
use crate::report::{Goal, Report};
use crate::services::Backend;

#[derive(Args)]
pub struct Options {
    #[arg(long, default_value_t = 20_000)]
    calls: usize,
    /// Calls by turns, which take longer: one in eleven waits for two seconds.
    #[arg(long, default_value_t = 5_000)]
    turns: usize,
    /// Calls at once.
    #[arg(long, default_value_t = 16)]
    at_once: usize,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("sapparchi-3");
    let by_turns = runtime()?.block_on(answered(&options, options.turns, "round-robin"))?;
    report.row("by turns: answered within a second", by_turns.share * 100.0, "%");
    report.row("  calls", by_turns.calls as f64, "calls");
    let learned = runtime()?.block_on(answered(&options, options.calls, "learned"))?;
    report.goal("as learned: answered within a second", learned.share * 100.0, "%", Goal::AtLeast(99.9));
    report.row("  calls", learned.calls as f64, "calls");
    report.row("  calls that took longer", learned.late as f64, "calls");
    report.row("  half within", learned.half_ms, "ms");
    report.row("  99 % within", learned.most_ms, "ms");
    Ok(report)
}

struct Answered {
    calls: usize,
    late: usize,
    share: f64,
    half_ms: f64,
    most_ms: f64,
}

async fn answered(options: &Options, calls: usize, policy: &str) -> anyhow::Result<Answered> {
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
        let (bench, next) = (bench.clone(), next.clone());
        callers.push(tokio::spawn(async move {
            let mut took = Vec::new();
            while next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < calls {
                let begun = now();
                let view = bench.ended(bench.begin("one", json!(1)).await?).await?;
                anyhow::ensure!(view["state"] == "done", "a run ended otherwise: {view}");
                took.push(now().since(begun).as_secs_f64() * 1_000.0);
            }
            anyhow::Ok(took)
        }));
    }
    let mut took = Vec::with_capacity(calls);
    for caller in callers {
        took.extend(caller.await??);
    }
    took.sort_by(f64::total_cmp);
    let late = took.iter().filter(|ms| **ms >= 1_000.0).count();
    Ok(Answered {
        calls: took.len(),
        late,
        share: (took.len() - late) as f64 / took.len().max(1) as f64,
        half_ms: percentile(&took, 0.5),
        most_ms: percentile(&took, 0.99),
    })
}
