//! `siege`, by the document's own command but for the number of repetitions, the port, and that it tells JSON.

use std::process::{Command, Stdio};

use anyhow::Context;
use serde::Deserialize;

use super::load::Address;

/// Each client holds its own copy of the file of requests, so it has a line for this many PUTs of each; it is read over and over.
const LINES_OF_EACH: u32 = 40;

/// How much is asked.
#[derive(Clone, Copy)]
pub struct Siege {
    pub clients: u32,
    /// PUTs by each client.
    pub repetitions: u32,
}

#[derive(Deserialize)]
pub struct Seen {
    pub transactions: f64,
    pub transaction_rate: f64,
    pub response_time: f64,
    pub longest_transaction: f64,
    pub failed_transactions: f64,
}

impl Siege {
    /// Keys that are written, `s0` and so on, each as often as the others: clients begin at even distances from each other.
    pub fn keys(self) -> u32 {
        self.clients * self.repetitions.min(LINES_OF_EACH)
    }

    /// `siege -c255 -r5000 -b -H "Content-Type: application/json" -f urls.txt`.
    pub fn lay_to(self, address: &Address) -> anyhow::Result<Seen> {
        let folder = tempfile::tempdir()?;
        let urls = folder.path().join("urls.txt");
        let line = |n: u32| format!("{}/api PUT {{\"key\":\"s{n}\",\"value\":\"vs{n}\"}}\n", address.url);
        std::fs::write(&urls, (0..self.keys()).map(line).collect::<String>())?;
        let mut command = Command::new("siege");
        command.arg(format!("-c{}", self.clients)).arg(format!("-r{}", self.repetitions)).args(["-b", "-j"]);
        command.args(["-H", "Content-Type: application/json", "-f"]).arg(&urls);
        // It keeps its settings, and would keep a log, at home.
        command.env("HOME", folder.path()).stdin(Stdio::null());
        let out = command.output().context("cannot run siege (Debian: apt-get install siege)")?;
        let said = String::from_utf8_lossy(&out.stdout);
        let json = said.find('{').zip(said.rfind('}')).map(|(from, to)| &said[from..=to]);
        let json = json.with_context(|| format!("siege failed: {said}{}", String::from_utf8_lossy(&out.stderr)))?;
        Ok(serde_json::from_str(json)?)
    }
}
