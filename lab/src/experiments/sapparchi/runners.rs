//! Nodes that are processes of the product's own: `mutirao role node`, by whatever they speak.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use mutirao_core::node::DeviceSpec;
use mutirao_core::{Clock, SystemClock};
use mutirao_testkit::installation::find_binary;

use super::{Bench, now};

/// One node; gone when dropped, its folder too.
pub struct Runner {
    process: Child,
    _folder: tempfile::TempDir,
}

impl Runner {
    /// Started, let in, and registered.
    pub async fn start(bench: &Bench, name: &str, transport: &str, server: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let binary = find_binary().context("no mutirao binary beside this one: build it, or set MUTIRAO_BIN")?;
        let mut command = Command::new(binary);
        command.args(["role", "node", "--id", name, "--layer", "edge", "--transport", transport]);
        command.arg("--dir").arg(folder.path().join("node"));
        command
            .env("MUTIRAO_NODE_SERVER", server)
            .env("MUTIRAO_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if transport != "amqp" {
            let spec = DeviceSpec { name: name.into(), node: None, requests: false };
            let device = bench.client.add_device(&spec).await?;
            command.args(["--user", name]).env("MUTIRAO_NODE_PASSWORD", device.password);
        }
        if transport == "http" {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let runner = Self { process: command.spawn()?, _folder: folder };
        let begun = now();
        loop {
            let there = bench.client.nodes().await.unwrap_or_default();
            let here = |runs: &mutirao_core::node::RunsView| runs.presence == "registered";
            if there.iter().any(|node| node.name == name && node.runs.as_ref().is_some_and(here)) {
                return Ok(runner);
            }
            anyhow::ensure!(now().since(begun) < Duration::from_secs(60), "the node {name} did not register");
            SystemClock.sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
