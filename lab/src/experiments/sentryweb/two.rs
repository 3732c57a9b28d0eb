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
        "outcomes are counted in PostgreSQL, by the gaps between those of one monitor; one instant has one at most",
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
    wait(phase + Duration::from_secs(15));
    let begin = SystemClock.now();
    let mut watch = Watch { port, before: endpoint::counted(port)? };
    anyhow::ensure!(watch.before.probes > 0, "nothing is checked: the checker was not let in, or is gone");

    wait(phase);
    watch.row(&mut report, "one scheduler", Goal::AtMost(0.0))?;
    let mut second = manager()?;
    wait(phase);
    watch.row(&mut report, "a second one joins", Goal::AtMost(0.0))?;
    second.terminate();
    wait(phase);
    watch.row(&mut report, "it leaves", Goal::AtMost(0.0))?;
    let mut third = manager()?;
    wait(phase);
    third.kill9();
    wait(phase);
    watch.row(&mut report, "another joins and is killed", Goal::AtMost(0.0))?;
    let mut fourth = manager()?;
    wait(phase);
    freeze(fourth.pid(), Signal::STOP)?;
    wait(FROZEN);
    freeze(fourth.pid(), Signal::CONT)?;
    wait(phase);
    watch.row(&mut report, "another joins, and stands still past its lease", Goal::AtMost(f64::INFINITY))?;
    fourth.terminate();
    wait(Duration::from_secs(10));

    let until = SystemClock.now();
    let whole = format!("at >= {} AND at < {}", begin.0, until.0 - 10_000);
    let count = format!("SELECT count(*) FROM monitor_outcomes WHERE {whole}");
    let missing = format!(
        "SELECT coalesce(sum(round((at - before) / {INTERVAL_MS}.0) - 1), 0)::bigint FROM
         (SELECT at, lag(at) OVER (PARTITION BY monitor ORDER BY at) AS before FROM monitor_outcomes WHERE {whole}) AS each
         WHERE before IS NOT NULL"
    );
    let postgres = servers.postgres.url();
    report.row("outcomes in all", load::number(postgres, &count)? as f64, "outcomes");
    report.goal("instants without an outcome", load::number(postgres, &missing)? as f64, "outcomes", Goal::AtMost(0.0));
    Ok(report)
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

fn wait(span: Duration) {
    #[allow(clippy::disallowed_methods, reason = "lets other processes do their work")]
    std::thread::sleep(span);
}
