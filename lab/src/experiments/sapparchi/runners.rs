//! Nodes that are processes of the product's own: `mutirao role node`, by whatever they speak.

use std::process::{Child, Command, Stdio};

use anyhow::Context;
use mutirao_core::node::DeviceSpec;
use mutirao_testkit::installation::find_binary;

use super::Bench;
use super::two::registered;

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
            let spec = DeviceSpec {
                name: name.into(),
                node: None,
                requests: false,
                publish: vec![],
                subscribe: vec![],
                may: Default::default(),
            };
            let device = bench.client.add_device(&spec).await?;
            command.args(["--user", name]).env("MUTIRAO_NODE_PASSWORD", device.password);
        }
        if transport == "http" {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let runner = Self { process: command.spawn()?, _folder: folder };
        registered(bench, name, transport).await?;
        Ok(runner)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
