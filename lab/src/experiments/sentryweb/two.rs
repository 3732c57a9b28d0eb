//! `sentryweb-2`: 25,000 monitors on RabbitMQ and PostgreSQL; a second scheduler joins, leaves, joins again and is killed, joins
//! again and is frozen past its lease. Probes are counted where they arrive, outcomes in PostgreSQL.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mutirao_core::{Clock, SystemClock};
use mutirao_store::{Database, Postgres};
use mutirao_testkit::Installation;
use rustix::process::Signal;

use super::endpoint::{self, Counted};
use super::{Running, scheduler};
use crate::experiments::kv::load;
use crate::report::{Goal, Report};
use crate::services::Servers;
use crate::span::pause;

#[derive(Args)]
pub struct Options {
    /// Monitors, each every 60 s.
    #[arg(long, default_value_t = 25_000)]
    monitors: u32,
    /// How long each state of affairs lasts: more than an interval.
    #[arg(long, default_value_t = 75)]
    seconds: u64,
}

const INTERVAL_MS: u64 = 60_000;
/// Longer than a lease.
const FROZEN: Duration = Duration::from_secs(25);

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("sentryweb-2");
    report.note("probes are counted where they arrive: doubled is one of the same monitor within half an interval");
    report.note(
        "outcomes are counted in PostgreSQL, from the end of the first state to the last: missing by the gaps between those of \
         one monitor and at both ends, doubled by two within half an interval",
    );
    report.note("the document: two schedulers share by hash of the uuid, and re-divide all of it on every change");
    let servers = Servers::start()?;
    let (_endpoint, port) = endpoint::start()?;
    let manager = || {
        let setup = Installation::setup().manager_alone().env("MUTIRAO_LOG", "warn");
        Ok::<_, anyhow::Error>(servers.fit_with_management(setup.set("monitors.checker", "none"))?.start())
    };
    let first = manager()?;
    let folder = tempfile::tempdir()?;
    let _checker = checker(&first, folder.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let database = Database::from(Postgres::open(servers.postgres.url(), &[]).await?);
        let url = |n| format!("http://127.0.0.1:{port}/monitor/{n}");
        scheduler::seed(&database, options.monitors, url, &SystemClock).await
    })?;
    let phase = Duration::from_secs(options.seconds);
    // Until the change is seen, and every monitor was checked once.
    pause(phase + Duration::from_secs(15));
    let begin = SystemClock.now();
    let mut watch = Watch { port, before: endpoint::counted(port)? };
    anyhow::ensure!(watch.before.probes > 0, "nothing is checked: the checker was not let in, or is gone");

    pause(phase);
    watch.row(&mut report, "one scheduler", Goal::AtMost(0.0))?;
    let mut second = manager()?;
    pause(phase);
    watch.row(&mut report, "a second one joins", Goal::AtMost(0.0))?;
    second.terminate();
    pause(phase);
    watch.row(&mut report, "it leaves", Goal::AtMost(0.0))?;
    let mut third = manager()?;
    pause(phase);
    third.kill9();
    pause(phase);
    watch.row(&mut report, "another joins and is killed", Goal::AtMost(0.0))?;
    let mut fourth = manager()?;
    pause(phase);
    freeze(fourth.pid(), Signal::STOP)?;
    pause(FROZEN);
    freeze(fourth.pid(), Signal::CONT)?;
    pause(phase);
    watch.row(&mut report, "another joins, and stands still past its lease", Goal::AtMost(f64::INFINITY))?;
    fourth.terminate();
    pause(Duration::from_secs(10));

    // What was due in the last seconds may not be written yet.
    let outcomes = Outcomes { begin: begin.0, until: SystemClock.now().0 - 10_000, url: servers.postgres.url() };
    report.row("outcomes in all", outcomes.count()? as f64, "outcomes");
    report.goal("doubled outcomes", outcomes.doubled()? as f64, "outcomes", Goal::AtMost(0.0));
    let missing = outcomes.missing(options.monitors)? as f64;
    report.goal("instants without an outcome", missing, "outcomes", Goal::AtMost(0.0));
    Ok(report)
}

/// What PostgreSQL has of the time between these.
struct Outcomes<'a> {
    begin: i64,
    until: i64,
    url: &'a str,
}

impl Outcomes<'_> {
    fn ask(&self, what: &str) -> anyhow::Result<u64> {
        let Self { begin, until, url } = self;
        let each = format!(
            "(SELECT monitor, at, lag(at) OVER (PARTITION BY monitor ORDER BY at) AS before
              FROM monitor_outcomes WHERE at >= {begin} AND at < {until}) AS each"
        );
        load::number(url, &format!("SELECT coalesce({what}, 0)::bigint FROM {each}"))
    }

    fn count(&self) -> anyhow::Result<u64> {
        self.ask("count(*)")
    }

    /// No two instants of a monitor are closer than its interval, whoever fires them.
    fn doubled(&self) -> anyhow::Result<u64> {
        self.ask(&format!("count(*) FILTER (WHERE at - before < {INTERVAL_MS} / 2)"))
    }

    /// Between two outcomes of one monitor, before its first, after its last, and of those that have none at all.
    fn missing(&self, monitors: u32) -> anyhow::Result<u64> {
        let Self { begin, until, url } = self;
        let between =
            self.ask(&format!("sum(round((at - before) / {INTERVAL_MS}.0) - 1) FILTER (WHERE before IS NOT NULL)"))?;
        let each = format!(
            "(SELECT min(at) AS first, max(at) AS last FROM monitor_outcomes WHERE at >= {begin} AND at < {until}
              GROUP BY monitor) AS each"
        );
        let ends = format!(
            "SELECT coalesce(sum((first - {begin}) / {INTERVAL_MS} + ({until} - 1 - last) / {INTERVAL_MS}), 0)::bigint FROM {each}"
        );
        let heard_of = load::number(url, &format!("SELECT count(*) FROM {each}"))?;
        let due_of_each = (until - begin).unsigned_abs() / INTERVAL_MS;
        Ok(between + load::number(url, &ends)? + u64::from(monitors).saturating_sub(heard_of) * due_of_each)
    }
}

/// Counts from one state of affairs to the next.
struct Watch {
    port: u16,
    before: Counted,
}

impl Watch {
    fn row(&mut self, report: &mut Report, what: &str, doubled: Goal) -> anyhow::Result<()> {
        let now = endpoint::counted(self.port)?;
        report.row(format!("{what}: probes"), (now.probes - self.before.probes) as f64, "probes");
        let twice = (now.doubled - self.before.doubled) as f64;
        match doubled {
            Goal::AtMost(most) if most.is_infinite() => report.row(format!("{what}: doubled"), twice, "probes"),
            goal => report.goal(format!("{what}: doubled"), twice, "probes", goal),
        }
        self.before = now;
        Ok(())
    }
}

/// A checker of its own, let in by this manager.
fn checker(manager: &Installation, folder: &std::path::Path) -> anyhow::Result<Running> {
    let invited = manager.ok(&["worker", "invite", "--checks", "http", "--json"]);
    let invited: serde_json::Value = serde_json::from_str(&invited)?;
    let token = invited["token"].as_str().context("an invitation without a token")?;
    let dir = folder.join("checker").display().to_string();
    let mut command = manager.command(&["role", "checker", "--url", &manager.url(), "--dir", &dir]);
    command.env("MUTIRAO_ENROL_TOKEN", token).env("MUTIRAO_MONITORS_HOST_MAX", "10000");
    Ok(Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

fn freeze(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid as i32).context("a process without an id")?;
    Ok(rustix::process::kill_process(pid, signal)?)
}
