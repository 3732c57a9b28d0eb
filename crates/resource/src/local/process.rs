//! How a worker is started as a child: its arguments, its environment, and the line over which it gets its token. Used by
//! `up` for its fixed crew and by a node's agent for the rest.
//!
//! Each child holds the reading end of a pipe from its parent. The first line is its one-time token, when it needs one; its
//! end tells the worker that the parent is gone, however it went.

use std::path::Path;
use std::process::Stdio;

use mutirao_core::QueueName;
use mutirao_core::check::{MANAGERS, POOL, SCHEDULERS};
use mutirao_core::quantity::{Bytes, Cpus, Span};
use tokio::process::Command;

pub struct WorkerProcess<'a> {
    pub url: &'a str,
    pub queue: &'a QueueName,
    /// A folder of its own.
    pub dir: &'a Path,
    /// Where the certificate of that address is, when it has one.
    pub pin: &'a Path,
    pub cpus: Cpus,
    pub memory: Bytes,
    /// How it reaches the broker.
    pub way: &'a str,
    /// Authorities that it believes besides the system's.
    pub ca: Option<&'a Path>,
    /// Where its traces go.
    pub collector: Option<&'a str>,
    pub idle_end: Option<Span>,
    /// Of a checker, a scheduler or a manager: more that it is started with.
    pub flags: &'a [String],
}

impl WorkerProcess<'_> {
    /// Its stdin is piped; the token is the first line on it.
    pub fn command(&self) -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        match self.queue.as_str() {
            POOL => drop(self.a_client_of_the_manager(command.args(["role", "checker"]).args(self.flags))),
            // It asks no manager for anything.
            SCHEDULERS => drop(command.args(["role", "scheduler"]).args(self.flags)),
            MANAGERS => drop(command.args(["role", "manager"]).args(self.flags)),
            queue => {
                command
                    .args(["role", "worker", "--queue", queue])
                    .args(["--set", &format!("worker.cpus={}", self.cpus)])
                    .args(["--set", &format!("worker.memory={}", self.memory)])
                    .args(self.idle_end.iter().flat_map(|span| ["--idle-end".into(), span.to_string()]));
                self.a_client_of_the_manager(&mut command);
            }
        }
        command
            .arg("--launched")
            .arg("--dir")
            .arg(self.dir)
            .args(self.ca.iter().flat_map(|ca| ["--set".into(), format!("tls.ca={}", ca.display())]))
            .envs(self.collector.iter().map(|url| ("MUTIRAO_TELEMETRY_OTLP", url)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A group of its own: Ctrl-C is for the parent, which sends its workers home in order.
            .process_group(0);
        Ok(without_secrets(command))
    }

    fn a_client_of_the_manager<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let way = format!("worker.way={}", self.way);
        command.args(["--url", self.url]).arg("--pin").arg(self.pin).args(["--set", &way])
    }
}

/// Workers and nodes never open the database, have a user of their own at the broker, and run what should find no password.
pub fn without_secrets(mut command: Command) -> Command {
    for name in [
        "MUTIRAO_TOKEN",
        "MUTIRAO_URL",
        "MUTIRAO_DATABASE",
        "MUTIRAO_BROKER",
        "MUTIRAO_BROKER_MANAGEMENT",
        "MUTIRAO_CACHE",
        "MUTIRAO_ENROL_TOKEN",
        "MUTIRAO_NODE_PASSWORD",
        "MUTIRAO_NODE_SERVER",
    ] {
        command.env_remove(name);
    }
    command
}
