//! The lab: experiments as programs. Each prints a table and writes the same figures as JSON and SVG, with the machine
//! and the command they come from. Speeds are given beside a raw limit or a peer measured in the same run, because a
//! figure alone says more about the machine than about us.
//!
//! `cargo run --release -p lab -- list`

mod experiments;
mod ledger;
mod machine;
mod peers;
mod plot;
mod proc;
mod raw;
mod report;
mod services;
mod span;

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
    /// A day of bursts by each elastic policy: waits, node-hours, cost, starts and stops; simulated, or real on local nodes.
    Arrebol(experiments::arrebol::Options),
    /// Many short commands and no-op tasks on both backends, beside xargs, GNU parallel, HyperQueue, Celery and Dramatiq.
    Batch(experiments::batch::Options),
    /// What a task costs each process in CPU, as a ratio to the committed budget.
    Budget(experiments::budget::Options),
    /// What is seen of a live move: a stage that remembers much goes to and fro between two hosts.
    Moving(experiments::esp::moving::Options),
    /// Who moves where, simulated: the document's 13 scenarios beside its figures, and ours in the same worlds.
    #[command(name = "esp-2")]
    Esp2(experiments::esp::two::Options),
    /// Who moves where, simulated: noise only, a slow host, large states, a lost host, a hundred hosts.
    #[command(name = "esp-3")]
    Esp3(experiments::esp::three::Options),
    /// What an overload of CPU, memory, its bandwidth, the network or the disk does to an operator's latency.
    #[command(name = "esp-1")]
    Esp1(experiments::esp::one::Options),
    /// Events/s and core of filter, map and keyed windows, beside timely and Bytewax; sliding windows by width.
    #[command(name = "esp-4")]
    Esp4(experiments::esp::four::Options),
    /// PUTs from 255 clients, how fast they are applied, every key read back; beside a re-creation of the original.
    #[command(name = "kv-1")]
    Kv1(experiments::kv::Options),
    /// From an append to the one who waits at the log's end, embedded, by the link and by RabbitMQ, beside the raw way there.
    #[command(name = "esp-5")]
    Esp5(experiments::esp::five::Options),
    /// GETs that the cache has and has not, beside a re-creation of the original.
    #[command(name = "kv-2")]
    Kv2(experiments::kv::Options),
    /// How fast what was accepted is applied, beside a re-creation of the original and PostgreSQL alone.
    #[command(name = "kv-3")]
    Kv3(experiments::kv::Options),
    /// No-op tasks end to end: tasks/s, CPU by process, memory with a million waiting, the cost of logging.
    Overhead(experiments::overhead::Options),
    /// The round trip of one action, beside the raw one through the same listener.
    #[command(name = "sapparchi-1")]
    Sapparchi1(experiments::sapparchi::one::Options),
    /// A manager killed with nodes registered and runs under way: when all are back, whether all runs end.
    #[command(name = "sapparchi-2")]
    Sapparchi2(experiments::sapparchi::two::Options),
    /// One node of eleven slowed to two seconds: calls answered within one, by turns and as learned.
    #[command(name = "sapparchi-3")]
    Sapparchi3(experiments::sapparchi::three::Options),
    /// Forty light steps one after the other, beside the published figures of workflow engines.
    #[command(name = "sapparchi-4")]
    Sapparchi4(experiments::sapparchi::four::Options),
    /// A thousand nodes by MQTT on one machine: memory and CPU a node.
    #[command(name = "sapparchi-5")]
    Sapparchi5(experiments::sapparchi::five::Options),
    /// One scheduler from 100 to 1,000,000 monitors: CPU, memory and lateness, with the document's figures.
    #[command(name = "sentryweb-1")]
    Sentryweb1(experiments::sentryweb::one::Options),
    /// A second scheduler joins, leaves, is killed and is frozen: probes and outcomes, doubled and missing.
    #[command(name = "sentryweb-2")]
    Sentryweb2(experiments::sentryweb::two::Options),
    /// One checker on fast, slow and varied endpoints, beside blackbox_exporter and 50 threads in Python.
    #[command(name = "sentryweb-3")]
    Sentryweb3(experiments::sentryweb::three::Options),
    /// 50, 70, 100, 400 and 20 checks a second with the pool following: what waits and how many checkers, over time.
    #[command(name = "sentryweb-4")]
    Sentryweb4(experiments::sentryweb::four::Options),
    /// What an experiment starts in a process of its own.
    #[command(subcommand, hide = true)]
    Part(Part),
    /// Real /bin/true processes: tasks/s beside the raw posix_spawn rate.
    Spawn(experiments::spawn::Options),
}

#[derive(Subcommand)]
enum Part {
    Checker(experiments::sentryweb::checker::Options),
    Endpoint(experiments::sentryweb::endpoint::Options),
    Scheduler(experiments::sentryweb::scheduler::Options),
}

fn run_part(part: Part) -> anyhow::Result<()> {
    use experiments::sentryweb::{checker, endpoint, scheduler};
    match part {
        Part::Checker(options) => println!("{}", serde_json::to_string(&checker::run(options)?)?),
        Part::Endpoint(options) => endpoint::run(options)?,
        Part::Scheduler(options) => println!("{}", serde_json::to_string(&scheduler::run(options)?)?),
    }
    Ok(())
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
        What::Arrebol(options) => experiments::arrebol::run(options)?,
        What::Batch(options) => experiments::batch::run(options)?,
        What::Budget(options) => experiments::budget::run(options)?,
        What::Moving(options) => experiments::esp::moving::run(options)?,
        What::Esp2(options) => experiments::esp::two::run(options)?,
        What::Esp3(options) => experiments::esp::three::run(options)?,
        What::Esp1(options) => experiments::esp::one::run(options)?,
        What::Esp4(options) => experiments::esp::four::run(options)?,
        What::Esp5(options) => experiments::esp::five::run(options)?,
        What::Kv1(options) => experiments::kv::one::run(options)?,
        What::Kv2(options) => experiments::kv::two::run(options)?,
        What::Kv3(options) => experiments::kv::three::run(options)?,
        What::Overhead(options) => experiments::overhead::run(options)?,
        What::Part(part) => return run_part(part),
        What::Sapparchi1(options) => experiments::sapparchi::one::run(options)?,
        What::Sapparchi2(options) => experiments::sapparchi::two::run(options)?,
        What::Sapparchi3(options) => experiments::sapparchi::three::run(options)?,
        What::Sapparchi4(options) => experiments::sapparchi::four::run(options)?,
        What::Sapparchi5(options) => experiments::sapparchi::five::run(options)?,
        What::Sentryweb1(options) => experiments::sentryweb::one::run(options)?,
        What::Sentryweb2(options) => experiments::sentryweb::two::run(options)?,
        What::Sentryweb3(options) => experiments::sentryweb::three::run(options)?,
        What::Sentryweb4(options) => experiments::sentryweb::four::run(options)?,
        What::Spawn(options) => experiments::spawn::run(options)?,
    };
    report.publish(&cli.out)?;
    anyhow::ensure!(report.experiment != "budget" || report.is_met(), "over budget");
    Ok(())
}
