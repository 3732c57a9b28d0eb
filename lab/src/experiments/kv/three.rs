//! `kv-3`: the drain rate. PUTs are accepted while nobody applies them; then it is measured how fast they are, from the first
//! that is in the table until the last.

use std::time::Duration;

use anyhow::Context;
use mutirao_core::{Clock, SystemClock};

use super::load::{self, Kind, Length};
use super::original::Original;
use super::{ORIGINAL_ROWS, OUR_HISTORY, OUR_WRITES, Options, Ours};
use crate::raw;
use crate::report::{Goal, Report};
use crate::services::{Backend, Servers};
use crate::span::pause;

/// Whoever has not drained by then is told by what it did.
const DRAIN_FOR: Duration = Duration::from_secs(75);
const RAW_ROWS: i64 = 100_000;
const LOOK: Duration = Duration::from_millis(100);

pub fn run(options: Options) -> anyhow::Result<Report> {
    anyhow::ensure!(options.backend == Backend::Distributed, "what is committed at once leaves nothing to drain");
    let mut report = Report::new("kv-3");
    report.note(
        "PUTs are accepted while nobody applies them: the original's consumer stands still, our PostgreSQL is stopped",
    );
    report.note("drained: from the first that is in the table until the last, or as many as were in 75 s");

    let servers = Servers::start()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let raw = runtime.block_on(raw::rows_per_s(servers.postgres.url(), RAW_ROWS))?;
    report.row("PostgreSQL alone: rows upserted a thousand at a time", raw, "rows/s");
    drop(servers);

    let original = Original::start()?;
    // Its consumer makes the table when it starts.
    load::until_answered(original.servers.postgres.url(), ORIGINAL_ROWS)?;
    original.hold_consumer();
    let seen = load::run(&original.address(), Kind::Put, options.clients, options.span())?;
    let postgres = original.servers.postgres.url().to_owned();
    let before = load::number(&postgres, ORIGINAL_ROWS)?;
    original.let_consumer_go();
    let theirs = drained(&mut report, "the original", &postgres, ORIGINAL_ROWS, before, seen.good())?;
    drop(original);

    let mut ours = Ours::start(options.backend)?;
    let address = ours.address();
    // So that the token is known, and the shards have their owner.
    load::run(&address, Kind::Put, options.clients, Length::Seconds(1))?;
    let postgres = ours.backing.postgres_url().context("it runs on PostgreSQL")?.to_owned();
    let before = load::until(&postgres, OUR_WRITES, 1).and_then(|_| load::number(&postgres, OUR_WRITES))?;
    let server = ours.backing.postgres_mut().context("it runs on PostgreSQL")?;
    server.stop();
    let seen = load::run(&address, Kind::Put, options.clients, options.span())?;
    server.restart()?;
    report.row("mutirao, accepted while PostgreSQL was away", seen.good_per_s(), "PUT/s");
    let did = drained(&mut report, "mutirao", &postgres, OUR_WRITES, before, seen.good())?;
    report.goal("mutirao, drained, as a multiple", did / theirs, "×", Goal::AtLeast(25.0));
    let beside = did / seen.good_per_s();
    report.goal("mutirao, drained, as a multiple of what it accepted", beside, "×", Goal::AtLeast(1.0));
    report.row("mutirao, rows of history", load::number(&postgres, OUR_HISTORY)? as f64, "rows");
    Ok(report)
}

/// Writes per second. The first look is taken as soon as anything has been applied; whoever was done by then is told by the
/// time since it could begin.
fn drained(
    report: &mut Report,
    who: &str,
    postgres: &str,
    rows: &str,
    before: u64,
    accepted: u64,
) -> anyhow::Result<f64> {
    anyhow::ensure!(accepted > 0, "{who} accepted nothing");
    let begun = SystemClock.monotonic();
    let mut first = None;
    let (writes, took) = loop {
        // A server that has just come back may not let anybody in yet.
        let there = load::number(postgres, rows).unwrap_or(before);
        let now = SystemClock.monotonic();
        let done = there >= before + accepted;
        if there > before && first.is_none() {
            first = Some(if done { (before, begun) } else { (there, now) });
        }
        if let Some((at, since)) = first
            && (done || now.since(since) >= DRAIN_FOR)
        {
            break (there - at, now.since(since));
        }
        let gone = there.saturating_sub(before);
        anyhow::ensure!(now.since(begun) < 2 * DRAIN_FOR, "{who}: {gone} of {accepted} were applied");
        pause(LOOK);
    };
    let rate = writes as f64 / took.max(LOOK).as_secs_f64();
    report.row(format!("{who}, waiting to be applied"), accepted as f64, "PUTs");
    report.row(format!("{who}, drained"), rate, "PUT/s");
    Ok(rate)
}
