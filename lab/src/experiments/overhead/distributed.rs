//! The same on RabbitMQ and PostgreSQL, beside the peers on the same broker and the raw limits of both services.

use std::path::Path;

use mutirao_testkit::Installation;

use super::process::{one_run, wait_for_workers};
use super::{OVER_RABBITMQ, Options, middle};
use crate::ledger::Ledger;
use crate::peers::{self, Peer, Peers};
use crate::raw;
use crate::report::Report;
use crate::services::Servers;

const WORKERS: u32 = 2;
/// The peers are slower by an order: fewer tasks say as much.
const PEER_SHARE: u32 = 10;

pub fn run(options: &Options) -> anyhow::Result<Report> {
    let mut report = Report::new("overhead-distributed");
    report
        .note("timed from before the submission until the last end is in PostgreSQL; RabbitMQ confirms every message");
    report
        .note("peers: as many worker processes, persistent messages, no results; timed until the last effect is there");
    let servers = Servers::start()?;
    measure(options, &servers, &mut report)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let messages = runtime.block_on(raw::messages_per_s(servers.rabbitmq.url(), options.tasks as usize))?;
    report.row("raw RabbitMQ, a message a task", messages, "messages/s");
    let rows = runtime.block_on(raw::rows_per_s(servers.postgres.url(), i64::from(options.tasks)))?;
    report.row("raw PostgreSQL, a row a task", rows, "rows/s");
    let peers = Peers::prepare(Path::new(peers::FOLDER))?;
    for peer in Peer::ALL {
        let tasks = (options.tasks / PEER_SHARE).max(1);
        let run = |_| peers.rate(peer, servers.rabbitmq.url(), tasks, WORKERS as usize);
        let rates = (0..options.runs).map(run).collect::<anyhow::Result<Vec<_>>>()?;
        report.row(format!("{}, {WORKERS} worker processes", peer.name()), middle(rates), "tasks/s");
    }
    Ok(report)
}

pub fn measure(options: &Options, servers: &Servers, report: &mut Report) -> anyhow::Result<()> {
    let (mut rates, mut spent) = (Vec::new(), Ledger::default());
    for _ in 0..options.runs {
        let mut up = servers.fit(Installation::setup().workers(WORKERS).env("MUTIRAO_LOG", "warn")).start();
        wait_for_workers(&up, WORKERS as usize)?;
        let before = Ledger::now(&up, Some(servers));
        rates.push(one_run(&up, options.tasks)?);
        spent = spent.plus(Ledger::now(&up, Some(servers)).since(&before));
        // In order, or whoever comes next to these servers waits for the leases of the dead.
        up.terminate();
    }
    report.goal("worker processes over RabbitMQ", middle(rates), "tasks/s", OVER_RABBITMQ);
    spent.tell(f64::from(options.tasks) * options.runs as f64, report);
    Ok(())
}
