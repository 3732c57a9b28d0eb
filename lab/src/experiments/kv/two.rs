//! `kv-2`: GETs of a thousand keys that are read over and over, and of keys that nobody has written.

use std::process::{Command, Stdio};

use anyhow::Context;
use mutirao_testkit::services::Service;

use super::load::{self, Address, Kind, Length};
use super::original::Original;
use super::{ORIGINAL_ROWS, OUR_WRITES, Options, Ours};
use crate::report::{Goal, Report};
use crate::services::Backend;

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new(options.backend.named("kv-2", "kv-2-distributed"));
    report.note("a thousand keys are read over and over; those that are not there are never asked for twice");
    if options.backend == Backend::Distributed {
        let folder = tempfile::tempdir()?;
        let raw = redis_gets_per_s(&Service::redis(folder.path())?, options.clients)?;
        report.row("Redis alone: GETs by as many clients", raw, "GET/s");
    }
    let original = Original::start()?;
    let rows = Some((original.servers.postgres.url(), ORIGINAL_ROWS));
    let theirs = one(&mut report, "the original", &original.address(), &options, rows)?;
    drop(original);
    let ours = Ours::start(options.backend)?;
    let address = ours.address();
    let rows = ours.backing.postgres_url().map(|postgres| (postgres, OUR_WRITES));
    let did = one(&mut report, "mutirao", &address, &options, rows)?;
    report.goal("mutirao, keys that are read over and over, as a multiple", did / theirs, "×", Goal::AtLeast(10.0));
    Ok(report)
}

/// By its own program, which asks for nothing more than the bare thing.
fn redis_gets_per_s(redis: &Service, clients: u32) -> anyhow::Result<f64> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-u", redis.url(), "-t", "get", "-n", "200000", "--csv", "-c", &clients.to_string()]);
    let out = command.stdin(Stdio::null()).output().context("cannot run redis-benchmark (Debian: redis-tools)")?;
    let said = String::from_utf8_lossy(&out.stdout);
    let rate = said.lines().find_map(|line| line.strip_prefix("\"GET\",\"")?.split('"').next()?.parse().ok());
    rate.with_context(|| format!("redis-benchmark failed: {said}{}", String::from_utf8_lossy(&out.stderr)))
}

/// Hits per second. `rows`: where, and by what query, writes show that were applied.
fn one(
    report: &mut Report,
    who: &str,
    address: &Address,
    options: &Options,
    rows: Option<(&str, &str)>,
) -> anyhow::Result<f64> {
    // Brings the keys that are read. Nobody is to be asked while it still applies them.
    let put = load::run(address, Kind::Put, options.clients, Length::Seconds(1))?;
    if let Some((postgres, query)) = rows {
        load::until(postgres, query, put.good())?;
    }
    load::run(address, Kind::Hit, options.clients, Length::Seconds(5))?;
    let hit = load::run(address, Kind::Hit, options.clients, options.span())?;
    anyhow::ensure!(hit.good() == hit.requests, "{who} did not know {} keys that were written", hit.refused);
    report.row(format!("{who}, keys that are read over and over"), hit.good_per_s(), "GET/s");
    report.row(format!("  {who}: CPU of its own processes"), hit.cpu_us(), "µs/GET");
    report.row(format!("  {who}: 99 % are answered within"), hit.p99_us / 1_000.0, "ms");
    let miss = load::run(address, Kind::Miss, options.clients, options.span())?;
    report.row(format!("{who}, keys that are not there"), miss.per_s(), "GET/s");
    report.row(format!("  {who}, not there: CPU of its own processes"), miss.cpu_us(), "µs/GET");
    report.row(format!("  {who}, not there: 99 % are answered within"), miss.p99_us / 1_000.0, "ms");
    Ok(hit.good_per_s())
}
