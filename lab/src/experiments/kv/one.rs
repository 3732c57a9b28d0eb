//! `kv-1`: PUTs from 255 clients as fast as they are answered, each of a key of its own; then how long it takes until all that
//! was accepted is applied; then every key is read back from PostgreSQL and compared; then the document's own command; then
//! what logging costs.

use super::backlog::Backlog;
use super::load::{self, Address, Kind, Length, Seen};
use super::original::Original;
use super::siege::{self, Siege};
use super::{ORIGINAL_ROWS, OUR_HISTORY, OUR_WRITES, Options, Ours, logging};
use crate::raw;
use crate::report::{Goal, Report};
use crate::services::{Backend, Servers};

const RAW_MESSAGES: usize = 100_000;
const RAW_ROWS: i64 = 100_000;
/// Of the document, by `siege`, on its machine.
const DOCUMENT: f64 = 2_352.0;
/// Its longest answer.
const LONGEST_S: f64 = 0.34;
const ORIGINAL_WRONG: &str = "SELECT count(*) FROM kv_store WHERE value <> 'v' || key";
const OUR_ROWS: &str = "SELECT count(*) FROM kv_entries";
const OUR_WRONG: &str = "SELECT count(*) FROM kv_entries WHERE value IS DISTINCT FROM convert_to('v' || key, 'UTF8')";

/// How many keys from the first to the last are not in the table that `rows` counts.
fn missing(rows: &str, last: u64) -> String {
    let table = rows.rsplit(' ').next().unwrap_or(rows);
    format!(
        "SELECT count(*) FROM generate_series(1, {last}) AS n WHERE NOT EXISTS (SELECT FROM {table} WHERE key = 'k0-' || n)"
    )
}

/// What a system did.
struct Did {
    accepted_per_s: f64,
    /// All that was accepted, over the time until the last of it was applied.
    applied_per_s: f64,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new(options.backend.named("kv-1", "kv-1-distributed"));
    report
        .note("every PUT is of a key of its own; ours is answered once durable, the original asks for no confirmation");
    report.note("applied: all that was accepted, over the time from the first PUT until the last was in the table");
    report.row("the document, on its machine", DOCUMENT, "PUT/s");
    if options.backend == Backend::Distributed {
        let servers = Servers::start()?;
        let runtime = tokio::runtime::Runtime::new()?;
        let messages = runtime.block_on(raw::messages_per_s(servers.rabbitmq.url(), RAW_MESSAGES))?;
        report.row(
            "RabbitMQ alone: messages confirmed, delivered and acknowledged, 500 at a time",
            messages,
            "messages/s",
        );
        let rows = runtime.block_on(raw::rows_per_s(servers.postgres.url(), RAW_ROWS))?;
        report.row("PostgreSQL alone: rows upserted a thousand at a time", rows, "rows/s");
    }
    let original = Original::start()?;
    let postgres = original.servers.postgres.url().to_owned();
    let table = Some((&*postgres, ORIGINAL_ROWS, ORIGINAL_WRONG));
    let theirs = one(&mut report, "the original", &original.address(), table, options.clients, options.span())?;
    sieged(&mut report, "the original", &original.address(), options.siege())?;
    drop(original);
    ours(&mut report, &options, &theirs)?;
    logging::compare(&mut report, &options)?;
    Ok(report)
}

fn ours(report: &mut Report, options: &Options, theirs: &Did) -> anyhow::Result<()> {
    let ours = Ours::start(options.backend)?;
    let address = ours.address();
    let postgres = ours.backing.postgres_url();
    let table = postgres.map(|url| (url, OUR_ROWS, OUR_WRONG));
    let backlog = (options.backend == Backend::Distributed).then(|| Backlog::of(&ours.up));
    let did = one(report, "mutirao", &address, table, options.clients, options.our_length())?;
    let accepted = did.accepted_per_s / theirs.accepted_per_s;
    report.goal("mutirao, accepted, as a multiple", accepted, "×", Goal::AtLeast(12.0));
    if options.backend == Backend::Distributed {
        let drained = did.applied_per_s / theirs.applied_per_s;
        report.goal("mutirao, applied, as a multiple", drained, "×", Goal::AtLeast(25.0));
    }
    let before = postgres.map(|url| load::number(url, OUR_WRITES)).transpose()?;
    let seen = sieged(report, "mutirao", &address, options.our_siege())?;
    if let Some((postgres, before)) = postgres.zip(before) {
        read_back(report, postgres, before, &seen, options.our_siege())?;
        report.row("mutirao, rows of history", load::number(postgres, OUR_HISTORY)? as f64, "rows");
    }
    if let Some(backlog) = backlog {
        backlog.end(report);
    }
    Ok(())
}

/// By the document's own command, which cannot ask for more than about 9,000 a second.
fn sieged(report: &mut Report, who: &str, address: &Address, siege: Siege) -> anyhow::Result<siege::Seen> {
    let seen = siege.lay_to(address)?;
    report.row(format!("{who}, by siege"), seen.transaction_rate, "PUT/s");
    report.row(format!("  {who}, by siege: answered"), seen.transactions, "PUTs");
    report.row(format!("  {who}, by siege: answered within, in the mean"), seen.response_time * 1_000.0, "ms");
    longest(report, &format!("{who}, by siege"), seen.longest_transaction);
    report.goal(format!("  {who}, by siege: failed"), seen.failed_transactions, "PUTs", Goal::AtMost(0.0));
    Ok(seen)
}

fn longest(report: &mut Report, who: &str, seconds: f64) {
    let what = format!("  {who}: longest answer");
    if who.starts_with("mutirao") {
        report.goal(what, seconds, "s", Goal::AtMost(LONGEST_S));
    } else {
        report.row(what, seconds, "s");
    }
}

/// Each answered PUT took a revision, and each key is as it was written last.
fn read_back(report: &mut Report, postgres: &str, before: u64, seen: &siege::Seen, siege: Siege) -> anyhow::Result<()> {
    let answered = seen.transactions as u64;
    load::until(postgres, OUR_WRITES, before + answered)?;
    let lost = (before + answered).saturating_sub(load::number(postgres, OUR_WRITES)?);
    report.goal("  mutirao, by siege: answered and not applied", lost as f64, "PUTs", Goal::AtMost(0.0));
    let wrong = format!(
        "SELECT count(*) FROM generate_series(0, {} - 1) AS n WHERE NOT EXISTS
         (SELECT FROM kv_entries WHERE key = 's' || n AND value = convert_to('vs' || n, 'UTF8'))",
        siege.keys()
    );
    report.row("  mutirao, by siege: keys read back", f64::from(siege.keys()), "keys");
    let wrong = load::number(postgres, &wrong)? as f64;
    report.goal("  mutirao, by siege: not there, or with another value", wrong, "keys", Goal::AtMost(0.0));
    Ok(())
}

fn one(
    report: &mut Report,
    who: &str,
    address: &Address,
    table: Option<(&str, &str, &str)>,
    clients: u32,
    length: Length,
) -> anyhow::Result<Did> {
    let seen: Seen = load::run(address, Kind::Put, clients, length)?;
    anyhow::ensure!(seen.good() > 0, "{who} accepted nothing");
    let accepted_per_s = seen.good_per_s();
    report.row(format!("{who}, accepted"), accepted_per_s, "PUT/s");
    report.row(format!("  {who}: PUTs that were"), seen.good() as f64, "PUTs");
    report.row(format!("  {who}: CPU of its own processes"), seen.cpu_us(), "µs/PUT");
    report.row(format!("  {who}: half are answered within"), seen.p50_us / 1_000.0, "ms");
    report.row(format!("  {who}: 99 % are answered within"), seen.p99_us / 1_000.0, "ms");
    report.row(format!("  {who}: 99.9 % are answered within"), seen.p999_us / 1_000.0, "ms");
    longest(report, who, seen.max_us / 1e6);
    report.row(format!("  {who}: refused or unanswered"), (seen.refused + seen.broken) as f64, "PUTs");
    let Some((postgres, rows, wrong)) = table else { return Ok(Did { accepted_per_s, applied_per_s: accepted_per_s }) };
    let behind = load::until(postgres, rows, seen.good())?.as_secs_f64();
    let applied_per_s = seen.good() as f64 / (seen.seconds() + behind);
    report.row(format!("{who}, applied"), applied_per_s, "PUT/s");
    report.row(format!("  {who}: behind when the last was accepted"), behind, "s");
    let lost = seen.good().saturating_sub(load::number(postgres, rows)?);
    report.goal(format!("  {who}: accepted and not there"), lost as f64, "PUTs", Goal::AtMost(0.0));
    // That alone does not see what is made up for by writes that were under way when the clients left. So each key that was answered
    // by then is looked for by its name.
    let missing = load::number(postgres, &missing(rows, seen.settled))?.saturating_sub(seen.refused + seen.broken);
    report.row(format!("  {who}: keys looked for by name"), seen.settled as f64, "keys");
    report.goal(format!("  {who}: of these, answered and not there"), missing as f64, "keys", Goal::AtMost(0.0));
    report.goal(
        format!("  {who}: there with another value"),
        load::number(postgres, wrong)? as f64,
        "PUTs",
        Goal::AtMost(0.0),
    );
    Ok(Did { accepted_per_s, applied_per_s })
}
