//! `siege`, by the document's own command but for the number of repetitions, the port, and that it tells JSON.

use std::process::{Command, Stdio};

use anyhow::Context;
use serde::Deserialize;

use super::load::Address;

/// Keys that it writes in turn; its file of requests has a line for each.
const KEYS: u32 = 10_000;

#[derive(Deserialize)]
pub struct Seen {
    pub transactions: f64,
    pub transaction_rate: f64,
    pub longest_transaction: f64,
    pub failed_transactions: f64,
}

/// `siege -c255 -r5000 -b -H "Content-Type: application/json" -f urls.txt`.
pub fn run(address: &Address, clients: u32, repetitions: u32) -> anyhow::Result<Seen> {
    let folder = tempfile::tempdir()?;
    let urls = folder.path().join("urls.txt");
    let line = |n: u32| format!("{}/api PUT {{\"key\":\"s{n}\",\"value\":\"vs{n}\"}}\n", address.url);
    std::fs::write(&urls, (0..KEYS).map(line).collect::<String>())?;
    let mut command = Command::new("siege");
    command.arg(format!("-c{clients}")).arg(format!("-r{repetitions}")).args(["-b", "-j"]);
    command.args(["-H", "Content-Type: application/json", "-f"]).arg(&urls);
    // It keeps its settings, and would keep a log, at home.
    command.env("HOME", folder.path()).stdin(Stdio::null());
    let out = command.output().context("cannot run siege (Debian: apt-get install siege)")?;
    let said = String::from_utf8_lossy(&out.stdout);
    let json = said.find('{').zip(said.rfind('}')).map(|(from, to)| &said[from..=to]);
    let json = json.with_context(|| format!("siege failed: {said}{}", String::from_utf8_lossy(&out.stderr)))?;
    Ok(serde_json::from_str(json)?)
}
