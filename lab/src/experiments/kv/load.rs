//! `wrk` as the client, and what it saw; and what is in a table afterwards, by `psql`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use mutirao_core::{Clock, SystemClock};
use serde::Deserialize;

use crate::proc;
use crate::span::pause;

/// Enough to ask far more than either system answers; the other cores are theirs.
const THREADS: u32 = 1;
/// Keys that are read over and over.
pub const HOT: u32 = 1_000;
/// Long enough for the slowest to catch up; then it is an error, not a figure.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy)]
pub enum Kind {
    Put,
    /// Keys that are there, and were read before.
    Hit,
    /// Keys that nobody has written.
    Miss,
}

/// How long to ask.
#[derive(Clone, Copy)]
pub enum Length {
    Seconds(u64),
    /// Until at least so many were answered.
    Puts(u64),
}

/// Longer than any number of PUTs takes; then it is told by what it did.
const SECONDS_MAX: u64 = 1_800;
const ENOUGH: &str = "enough";

/// Whom to ask.
pub struct Address {
    pub url: String,
    /// Ours wants one, and has other routes.
    pub token: Option<String>,
    /// The system's own processes; the servers below them are not counted.
    pub pids: Vec<u32>,
}

#[derive(Deserialize)]
pub struct Seen {
    pub requests: u64,
    us: u64,
    /// Answers that were not 2xx or 3xx.
    pub refused: u64,
    /// No answer at all.
    pub broken: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Of the keys of a PUT run, numbered from 1: those up to here were answered, or never will be.
    pub settled: u64,
    /// CPU time of the system's own processes meanwhile.
    #[serde(skip)]
    cpu: Duration,
}

impl Seen {
    /// What one request costs, whatever else runs on the machine.
    pub fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests.max(1) as f64
    }

    pub fn good(&self) -> u64 {
        self.requests - self.refused
    }

    pub fn seconds(&self) -> f64 {
        self.us as f64 / 1e6
    }

    pub fn good_per_s(&self) -> f64 {
        self.good() as f64 / self.seconds()
    }

    pub fn per_s(&self) -> f64 {
        self.requests as f64 / self.seconds()
    }
}

pub fn run(address: &Address, kind: Kind, clients: u32, length: Length) -> anyhow::Result<Seen> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/kv.lua");
    let word = match kind {
        Kind::Put => "put",
        Kind::Hit => "hit",
        Kind::Miss => "miss",
    };
    let mut command = Command::new("wrk");
    command.args(["--threads", &THREADS.to_string(), "--connections", &clients.to_string()]);
    let seconds = match length {
        Length::Seconds(seconds) => seconds,
        Length::Puts(puts) => {
            // Each client waits for one answer, so when so many more were asked for, these were answered.
            command.env("PUTS", (puts + u64::from(clients)).to_string());
            SECONDS_MAX
        }
    };
    command.args(["--duration", &format!("{seconds}s"), "--timeout", "10s", "--latency", "--script"]);
    command.arg(script).arg(&address.url).env("KIND", word).env("KEYS", HOT.to_string()).stdin(Stdio::null());
    match &address.token {
        Some(token) => command.env("TOKEN", token),
        None => command.env_remove("TOKEN"),
    };
    let spent = || address.pids.iter().map(|pid| proc::cpu_of_family(*pid)).sum::<Duration>();
    let before = spent();
    let said = until_enough(command)?;
    let cpu = spent().saturating_sub(before);
    let last = said.iter().rev().find(|line| line.starts_with('{'));
    let last = last.with_context(|| format!("wrk failed: {}", said.join("\n")))?;
    Ok(Seen { cpu, ..serde_json::from_str(last)? })
}

/// What it says; ended as by Ctrl-C when it says that it is enough.
fn until_enough(mut command: Command) -> anyhow::Result<Vec<String>> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run wrk (Debian: apt-get install wrk)")?;
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().context("it has an output")?).lines() {
        let line = line?;
        if line == ENOUGH {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)?;
        }
        said.push(line);
    }
    child.wait()?;
    Ok(said)
}

/// One number of a query.
pub fn number(postgres: &str, query: &str) -> anyhow::Result<u64> {
    let out = Command::new("psql").args([postgres, "-AtXc", query]).stdin(Stdio::null()).output()?;
    anyhow::ensure!(out.status.success(), "psql: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(String::from_utf8_lossy(&out.stdout).trim().parse()?)
}

/// Until there is what a query asks for.
pub fn until_answered(postgres: &str, query: &str) -> anyhow::Result<()> {
    let begin = SystemClock.monotonic();
    while let Err(error) = number(postgres, query) {
        anyhow::ensure!(SystemClock.monotonic().since(begin) < Duration::from_secs(30), "{error:#}");
        pause(LOOK);
    }
    Ok(())
}

/// How long it takes until a query has come to rest at no less than this.
pub fn until(postgres: &str, query: &str, least: u64) -> anyhow::Result<Duration> {
    let begin = SystemClock.monotonic();
    let (mut before, mut rest) = (0, 0);
    loop {
        let now = number(postgres, query)?;
        let took = SystemClock.monotonic().since(begin);
        // What was under way when the clients left may come on top of what they saw answered.
        rest = if now == before { rest + 1 } else { 0 };
        if now >= least && rest >= 3 {
            return Ok(took.saturating_sub(3 * LOOK));
        }
        anyhow::ensure!(took < PATIENCE, "{now} of {least} were applied within {} s", PATIENCE.as_secs());
        before = now;
        pause(LOOK);
    }
}

const LOOK: Duration = Duration::from_millis(300);

/// Until something listens there.
pub fn until_there(address: std::net::SocketAddr) -> anyhow::Result<()> {
    let begin = SystemClock.monotonic();
    while std::net::TcpStream::connect(address).is_err() {
        anyhow::ensure!(SystemClock.monotonic().since(begin) < Duration::from_secs(30), "nobody listens at {address}");
        pause(Duration::from_millis(50));
    }
    Ok(())
}
