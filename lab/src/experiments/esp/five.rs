//! `esp-5`: how long a record is on its way from whoever appends it to a log to whoever waits at the log's end, embedded, over
//! the link and over RabbitMQ, beside the raw way there on the same disk, socket or server in the same run.

mod raw;
mod served;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use mutirao_broker::rabbit::{Config, Rabbit};
use mutirao_broker::{Limits, Memory, Shared};
use mutirao_core::{Clock, Dice, Mono, SystemClock};
use mutirao_testkit::services::Service;
use tokio::sync::mpsc;

use crate::experiments::sapparchi::runtime;
use crate::report::{Goal, Report};

#[derive(Args)]
pub struct Options {
    /// Records in each round, one on its way at a time.
    #[arg(long, default_value_t = 500)]
    records: usize,
    /// Rounds of each, ours and the raw one in turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Bytes of a record.
    #[arg(long, default_value_t = 1_024)]
    bytes: usize,
    /// Leave RabbitMQ out, where it is not installed.
    #[arg(long)]
    without_rabbitmq: bool,
}

/// Not counted, in each round.
const WARM: usize = 30;
const PATIENCE: Duration = Duration::from_secs(20);
const LOG: &str = "streams.lab.stage.0";

/// Milliseconds of one record after the other.
type Took = Vec<f64>;

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("esp-5");
    report.note(format!("records of {} bytes, one at a time; append is durable, and so is the raw way", options.bytes));
    report.note("raw embedded: write and fdatasync a file, then wake a task; raw link: a WebSocket that answers what it wrote so");
    report.note("raw RabbitMQ: published to a stream with confirmation and consumed, each on a connection of its own");
    let load = || std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    report.note(format!("load before: {}", load().trim()));
    let folder = tempfile::Builder::new().prefix("mutirao-lab.").tempdir_in(".")?;
    runtime()?.block_on(async {
        embedded(&options, folder.path(), &mut report).await?;
        link(&options, folder.path(), &mut report).await
    })?;
    if !options.without_rabbitmq {
        let services = tempfile::Builder::new().prefix("mutirao-lab.").tempdir()?;
        let server = Service::rabbitmq(services.path())?;
        runtime()?.block_on(rabbitmq(&options, server.url(), &mut report))?;
    }
    report.note(format!("load after: {}", load().trim()));
    Ok(report)
}

fn now() -> Mono {
    SystemClock.monotonic()
}

fn body(options: &Options) -> Bytes {
    vec![7; options.bytes].into()
}

async fn embedded(options: &Options, folder: &Path, report: &mut Report) -> anyhow::Result<()> {
    let broker: Shared = Memory::new(Some(folder.join("embedded")), Limits::default());
    let (mut ours, mut bare) = (Took::new(), Took::new());
    for round in 0..options.rounds {
        ours.extend(hops(options, &broker, &broker).await?);
        bare.extend(raw::file(options, &folder.join(format!("raw.{round}"))).await?);
    }
    tell(report, "embedded", ours, bare);
    Ok(())
}

async fn link(options: &Options, folder: &Path, report: &mut Report) -> anyhow::Result<()> {
    let broker: Shared = Memory::new(Some(folder.join("link")), Limits::default());
    let served = served::Served::start(broker, folder.join("raw.link")).await?;
    let (writer, reader): (Shared, Shared) = (served.link().await, served.link().await);
    let (mut ours, mut bare) = (Took::new(), Took::new());
    for _ in 0..options.rounds {
        ours.extend(hops(options, &writer, &reader).await?);
        bare.extend(raw::echo(options, &served.echo_url()).await?);
    }
    tell(report, "link", ours, bare);
    Ok(())
}

async fn rabbitmq(options: &Options, url: &str, report: &mut Report) -> anyhow::Result<()> {
    let connect = async || Rabbit::connect(Config::new(url, SystemClock::shared(), Dice::from_os().into())).await;
    let (writer, reader): (Shared, Shared) = (connect().await?, connect().await?);
    let (mut ours, mut bare, mut located) = (Took::new(), Took::new(), Took::new());
    for round in 0..options.rounds {
        ours.extend(hops(options, &writer, &reader).await?);
        bare.extend(raw::stream(options, url, &format!("raw.{round}")).await?);
        for _ in 0..options.records / 5 {
            let begun = now();
            writer.append(LOG, vec![body(options)]).await?;
            located.push(since(begun));
        }
    }
    tell(report, "RabbitMQ", ours, bare);
    located.sort_by(f64::total_cmp);
    report.row("RabbitMQ: an append that asks where the record went, half within", percentile(&located, 0.5), "ms");
    Ok(())
}

fn since(begun: Mono) -> f64 {
    now().since(begun).as_secs_f64() * 1_000.0
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn tell(report: &mut Report, over: &str, mut ours: Took, mut bare: Took) {
    ours.sort_by(f64::total_cmp);
    bare.sort_by(f64::total_cmp);
    let (half, raw_half) = (percentile(&ours, 0.5), percentile(&bare, 0.5));
    report.row(format!("{over}: half within"), half, "ms");
    report.row(format!("{over}: 99 % within"), percentile(&ours, 0.99), "ms");
    report.row(format!("{over}, raw: half within"), raw_half, "ms");
    report.row(format!("{over}, raw: 99 % within"), percentile(&bare, 0.99), "ms");
    report.goal(format!("{over}: the half beside the raw one"), half / raw_half, "times", Goal::AtMost(2.0));
}

/// From before a record is appended by one until the other has it, who waits for it.
async fn hops(options: &Options, writer: &Shared, reader: &Shared) -> anyhow::Result<Took> {
    let (_, mut at) = writer.extent(LOG).await?;
    let (arrived, mut arrivals) = mpsc::channel(16);
    let reader = reader.clone();
    let reading = tokio::spawn(async move {
        loop {
            let records = reader.read(LOG, at, 100).await?;
            let received = now();
            for record in records {
                at = record.offset + 1;
                if arrived.send(received).await.is_err() {
                    return anyhow::Ok(());
                }
            }
        }
    });
    let took = one_by_one(options, &mut arrivals, async |body| Ok(writer.add(LOG, vec![body]).await?)).await;
    reading.abort();
    took
}

/// Sends one after the other, each once the one before it was confirmed and has arrived.
async fn one_by_one(
    options: &Options,
    arrivals: &mut mpsc::Receiver<Mono>,
    mut send: impl AsyncFnMut(Bytes) -> anyhow::Result<()>,
) -> anyhow::Result<Took> {
    let body = body(options);
    let mut took = Took::with_capacity(options.records);
    for n in 0..options.records + WARM {
        let begun = now();
        let both = async { tokio::join!(send(body.clone()), arrivals.recv()) };
        let (sent, arrived) = tokio::select! {
            both = both => both,
            () = SystemClock.sleep(PATIENCE) => anyhow::bail!("a record never came"),
        };
        sent?;
        let arrived = arrived.context("whoever reads has gone")?;
        if n >= WARM {
            took.push(arrived.since(begun).as_secs_f64() * 1_000.0);
        }
    }
    Ok(took)
}
