//! Private PostgreSQL, RabbitMQ and Redis servers: each a process of its own, on ports of its own, with its data in a
//! folder of its own, to be killed, frozen and started again at will. Also where the shared ones of a test run are.
//!
//! `scripts/test` starts its services through this module as well (`src/bin/services.rs`): there is one way.
//!
//! What is *not* here: clients. A crate that speaks to a service brings its own.

mod postgres;
mod rabbitmq;
mod redis;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::Context;
use mutirao_core::Dice;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::certificates::Pair;
use crate::launch::{self, Launch};
use crate::wait;

/// Where a run's shared services are, for whoever tests against them.
pub const POSTGRES_VARIABLE: &str = "MUTIRAO_TEST_POSTGRES";
pub const AMQP_VARIABLE: &str = "MUTIRAO_TEST_AMQP";
/// Where RabbitMQ's management API is.
pub const AMQP_MANAGEMENT_VARIABLE: &str = "MUTIRAO_TEST_AMQP_MANAGEMENT";
pub const REDIS_VARIABLE: &str = "MUTIRAO_TEST_REDIS";

/// The Erlang virtual machine on two busy cores is the slowest of them.
const READY_WITHIN: Duration = Duration::from_secs(180);
const STOPPED_WITHIN: Duration = Duration::from_secs(20);
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// A start fails when somebody snatched the port, or when a killed server's children are still on their way out.
const STARTS_MAX: u32 = 5;
const LOG_TAIL_BYTES: usize = 4 << 10;

/// The address of a shared service. `None`, with a notice, when the run has none (`./scripts/test --fast`): the test
/// then has nothing to stand on and returns.
pub fn shared(variable: &str) -> Option<String> {
    let address = std::env::var(variable).ok().filter(|address| !address.is_empty());
    if address.is_none() {
        eprintln!("skipped: {variable} is not set; run ./scripts/test without --fast");
    }
    address
}

/// A server of our own. Killed and forgotten on drop.
pub struct Service {
    name: &'static str,
    url: String,
    /// A second address, of RabbitMQ's management API.
    management: Option<String>,
    port: u16,
    folder: PathBuf,
    launch: Launch,
    /// What makes it stop at once and still clear away what would outlive it.
    stops_on: Signal,
    greeting: Greeting,
    child: Option<Child>,
    /// A process it leans on (RabbitMQ's name server), which lives through its kills.
    beside: Option<Box<Service>>,
}

/// What to say to a server on its port, and how the answer of a ready one begins.
struct Greeting {
    say: Vec<u8>,
    hear: &'static [u8],
}

impl Service {
    /// A PostgreSQL cluster of its own under `folder`, durable as in production.
    pub fn postgres(folder: &Path) -> anyhow::Result<Service> {
        first_that_starts("postgres", folder, postgres::prepare)
    }

    /// A RabbitMQ node of its own under `folder`, with its own name, cookie and name server, and the management plugin.
    pub fn rabbitmq(folder: &Path) -> anyhow::Result<Service> {
        first_that_starts("rabbitmq", folder, rabbitmq::prepare)
    }

    /// One that speaks TLS with this certificate, under the name `localhost`.
    pub fn rabbitmq_with_tls(folder: &Path, pair: &Pair) -> anyhow::Result<Service> {
        first_that_starts("rabbitmq", folder, |own, dice| rabbitmq::prepare_with_tls(own, dice, pair))
    }

    /// One with its MQTT plugin, where guests come in by their user and password: [`Service::mqtt_address`].
    pub fn rabbitmq_with_mqtt(folder: &Path) -> anyhow::Result<Service> {
        first_that_starts("rabbitmq", folder, rabbitmq::prepare_with_mqtt)
    }

    /// A Redis of its own, in memory only.
    pub fn redis(folder: &Path) -> anyhow::Result<Service> {
        first_that_starts("redis", folder, redis::prepare)
    }

    /// A Redis that writes snapshots into its folder, and begins with the last.
    pub fn redis_that_saves(folder: &Path) -> anyhow::Result<Service> {
        first_that_starts("redis", folder, redis::prepare_that_saves)
    }

    /// A Redis that speaks TLS too, with this certificate.
    pub fn redis_with_tls(folder: &Path, pair: &Pair) -> anyhow::Result<Service> {
        first_that_starts("redis", folder, |own, dice| redis::prepare_with_tls(own, dice, pair))
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where RabbitMQ's management API is; other services have none.
    pub fn management_url(&self) -> Option<&str> {
        self.management.as_deref()
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Makes a folder the server's own, for whatever else it is to keep there.
    pub fn give(&self, folder: &Path) -> anyhow::Result<()> {
        let owner = std::fs::metadata(&self.folder)?;
        std::os::unix::fs::chown(folder, Some(owner.uid()), Some(owner.gid()))
            .with_context(|| folder.display().to_string())
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Its log, whole.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_file()).unwrap_or_default()).into_owned()
    }

    /// SIGKILL, as by a person or the out-of-memory killer. Returns when it is gone.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
    }

    /// Starts it again after [`kill9`](Self::kill9) or [`stop`](Self::stop), on the same port and data.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.stop();
        let mut tries = 1;
        loop {
            match self.run() {
                Err(_) if tries < STARTS_MAX => tries += 1,
                done => return done,
            }
        }
    }

    /// It stays, and keeps its connections, but does nothing: a machine that hangs.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            launch::stop(&mut child, self.stops_on, STOPPED_WITHIN);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            let _ = kill_process_group(Pid::from_child(child), signal);
        }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    fn run(&mut self) -> anyhow::Result<()> {
        if let Some(beside) = self.beside.as_mut().filter(|b| b.child.is_none()) {
            beside.run()?;
        }
        let mut child = self.launch.spawn(&self.folder, &self.log_file()).context(self.name)?;
        let mut ended = None;
        let ready = wait::holds_within(READY_WITHIN, || {
            let answered = self.greeting.is_answered(self.address());
            // Looked at afterwards, so that a stranger's answer on a snatched port is not taken for ours.
            ended = child.try_wait().ok().flatten();
            answered || ended.is_some()
        });
        if let Some(status) = ended {
            anyhow::bail!("{} ended while starting ({status}):\n{}", self.name, self.log_tail());
        }
        self.child = Some(child);
        anyhow::ensure!(ready, "{} was not ready after {READY_WITHIN:?}:\n{}", self.name, self.log_tail());
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let from = (log.len().saturating_sub(LOG_TAIL_BYTES)..=log.len()).find(|at| log.is_char_boundary(*at));
        log[from.unwrap_or(0)..].to_owned()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Greeting {
    fn is_answered(&self, at: SocketAddr) -> bool {
        self.converse(at).is_ok_and(|answer| answer == self.hear)
    }

    fn converse(&self, at: SocketAddr) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&at, ANSWERS_WITHIN)?;
        stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
        stream.write_all(&self.say)?;
        let mut answer = vec![0; self.hear.len()];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }
}

/// Prepares and starts with other ports, in another folder, until nobody is in the way.
fn first_that_starts(
    name: &str,
    folder: &Path,
    prepare: impl Fn(PathBuf, &Dice) -> anyhow::Result<Service>,
) -> anyhow::Result<Service> {
    let dice = Dice::from_os();
    let mut tries = 1;
    loop {
        let own = folder.join(format!("{name}-{:08x}", dice.u64() as u32));
        std::fs::create_dir_all(&own)?;
        let mut service = prepare(own, &dice)?;
        match service.run() {
            Ok(()) => return Ok(service),
            // One that ended had a reason that other ports may cure; one that hangs would only hang again.
            Err(_) if tries < STARTS_MAX && service.child.is_none() => tries += 1,
            Err(error) => return Err(error),
        }
    }
}
