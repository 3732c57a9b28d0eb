//! The CPU ledger as a budget: what a task may cost each process, committed in `lab/budget.json`, so that a regression
//! shows as a ratio. Machines differ, so each figure is kept as a multiple of a yardstick measured in the same run: the
//! CPU time to hash a mebibyte.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::overhead;
use crate::proc;
use crate::report::{Goal, Report};

/// Over this it is no noise.
const RATIO_MAX: f64 = 1.3;
const YARDSTICK_MIB: u32 = 512;
const CPU: &str = "µs/task";

#[derive(Args)]
pub struct Options {
    /// Tasks in each run.
    #[arg(long, default_value_t = 200_000)]
    tasks: u32,
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Write what was found as the new budget instead of comparing with it.
    #[arg(long)]
    write: bool,
}

#[derive(Serialize, Deserialize)]
struct Budget {
    /// Of the machine on which it was written, for whoever wonders.
    yardstick_us_per_mib: f64,
    /// CPU time of a task in yardsticks, by whose it is.
    yardsticks_per_task: BTreeMap<String, f64>,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("budget.json");
    let yardstick = yardstick_us();
    let mut found = BTreeMap::new();
    for (backend, report) in overhead::ledgers(options.tasks, options.runs)? {
        for row in report.rows.iter().filter(|row| row.unit == CPU) {
            found.insert(format!("{backend}: {}", row.what.trim().trim_start_matches("CPU, ")), row.figure / yardstick);
        }
    }
    let mut report = Report::new("budget");
    report.row("yardstick: hashing a mebibyte", yardstick, "µs");
    if options.write {
        let budget = Budget { yardstick_us_per_mib: yardstick, yardsticks_per_task: found };
        std::fs::write(&path, serde_json::to_string_pretty(&budget)? + "\n")?;
        report.note("the budget was written anew");
        return Ok(report);
    }
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let budget: Budget = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    for (what, cost) in found {
        let allowed = budget.yardsticks_per_task.get(&what);
        let allowed = allowed.with_context(|| format!("the budget has no \"{what}\": run with --write"))?;
        report.goal(what, cost / allowed, "of budget", Goal::AtMost(RATIO_MAX));
    }
    Ok(report)
}

fn yardstick_us() -> f64 {
    let mebibyte = vec![7u8; 1 << 20];
    let before = proc::cpu(std::process::id());
    let mut hash = Sha256::new();
    for _ in 0..YARDSTICK_MIB {
        hash.update(&mebibyte);
    }
    std::hint::black_box(hash.finalize());
    (proc::cpu(std::process::id()) - before).as_secs_f64() * 1e6 / f64::from(YARDSTICK_MIB)
}
