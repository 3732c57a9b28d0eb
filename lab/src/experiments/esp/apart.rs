//! A host of streams as a process of its own, in control groups if need be.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::ensure;
use mutirao_testkit::Installation;
use serde_json::Value;

use super::moving::path;
use crate::span::{Since, pause};

const PATIENCE: Duration = Duration::from_secs(180);

pub struct Apart {
    process: Child,
    _folder: tempfile::TempDir,
}

impl Apart {
    /// Begins in these control groups, so that it finds itself there.
    pub fn start(up: &Installation, name: &str, groups: &[PathBuf]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let token = up.ok(&["worker", "invite", "--streams"]);
        let url = up.url();
        let args = ["role", "host", "--url", &url, "--dir", path(folder.path())?, "--name", name, "--threads", "1"];
        let mut command = within(groups, up.command(&args));
        command.env("MUTIRAO_ENROL_TOKEN", token.trim()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let apart = Self { process: command.spawn()?, _folder: folder };
        let since = Since::now();
        loop {
            let hosts: Value = serde_json::from_str(&up.ok(&["--json", "stream", "hosts"]))?;
            let there = |host: &Value| host["name"] == name && host["alive"] == true;
            if hosts.as_array().is_some_and(|all| all.iter().any(there)) {
                return Ok(apart);
            }
            ensure!(since.elapsed() < PATIENCE, "the host {name} does not come");
            pause(Duration::from_millis(200));
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The same command, by a shell that enters the groups and then becomes it.
fn within(groups: &[PathBuf], plain: Command) -> Command {
    if groups.is_empty() {
        return plain;
    }
    let enter = "while [ \"$1\" != -- ]; do echo $$ > \"$1/cgroup.procs\"; shift; done; shift; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-ec", enter, "enter"]).args(groups).arg("--").arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}
