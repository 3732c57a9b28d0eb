//! The experiments of the SentryWeb document, with its figures beside ours. Its goal was the same on a cluster of
//! Kubernetes; where its machine matters the rows say "the document".
//!
//! - [`one`]: what a scheduler costs by the number of monitors, and how late it fires.
//! - [`two`]: a second scheduler that joins, leaves, is killed and is frozen: probes and outcomes, doubled and missing.
//! - [`three`]: what a checker costs by the number of checks, on fast, slow and varied endpoints, beside its peers.
//! - [`four`]: a load that rises and falls, and the pool of checkers that follows it.
//!
//! What is measured is the product's own code in a process of its own ([`scheduler`], [`checker`]), which this program
//! starts again as itself; [`endpoint`] is what is checked.

pub mod checker;
pub mod endpoint;
pub mod four;
pub mod one;
mod peers;
pub mod scheduler;
pub mod three;
pub mod two;

use std::process::{Child, Command, Stdio};

use anyhow::Context;
use serde::de::DeserializeOwned;

/// This program again, as one of the parts of an experiment.
fn part(args: &[String]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

/// Runs a part to its end; what it found is its last line.
fn found<T: DeserializeOwned>(args: &[String]) -> anyhow::Result<T> {
    let out = part(args)?.output()?;
    anyhow::ensure!(out.status.success(), "{args:?} ended with {}", out.status);
    let said = String::from_utf8_lossy(&out.stdout);
    let last = said.lines().last().context("a part of the experiment said nothing")?;
    Ok(serde_json::from_str(last)?)
}

/// Ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The value below which such a share of them lies.
fn percentile(sorted: &[u64], share: f64) -> u64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0)
}
