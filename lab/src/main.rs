//! The lab: experiments as programs. Each prints a table and writes the same figures as JSON and SVG, with the machine
//! and the command they come from. Speeds are given beside a raw limit or a peer measured in the same run, because a
//! figure alone says more about the machine than about us.
//!
//! `cargo run --release -p lab -- list`

mod experiments;
mod machine;
mod peers;
mod plot;
mod proc;
mod raw;
mod report;
mod services;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "lab", about = "Measures Mutirão; each experiment prints a table and writes JSON and SVG")]
struct Cli {
    #[command(subcommand)]
    what: What,
    /// Where JSON and SVG go.
    #[arg(long, global = true, default_value = "lab/out")]
    out: PathBuf,
}

#[derive(Subcommand)]
enum What {
    /// Show the experiments.
    List,
    /// Many short commands and no-op tasks on both backends, beside xargs, GNU parallel, HyperQueue, Celery and Dramatiq.
    Batch(experiments::batch::Options),
    /// What a task costs each process in CPU, as a ratio to the committed budget.
    Budget(experiments::budget::Options),
    /// No-op tasks end to end: tasks/s, CPU by process, memory with a million waiting, the cost of logging.
    Overhead(experiments::overhead::Options),
    /// Real /bin/true processes: tasks/s beside the raw posix_spawn rate.
    Spawn(experiments::spawn::Options),
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let report = match cli.what {
        What::List => {
            for (name, about) in experiments::ALL {
                println!("{name:<10} {about}");
            }
            return Ok(());
        }
        What::Batch(options) => experiments::batch::run(options)?,
        What::Budget(options) => experiments::budget::run(options)?,
        What::Overhead(options) => experiments::overhead::run(options)?,
        What::Spawn(options) => experiments::spawn::run(options)?,
    };
    report.publish(&cli.out)?;
    anyhow::ensure!(report.experiment != "budget" || report.is_met(), "over budget");
    Ok(())
}
