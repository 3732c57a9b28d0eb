//! The same with Bytewax, one worker, in a process of its own.

use anyhow::Context;

use super::four::Done;
use super::load::{self, KeyKind};
use crate::peers::Peers;

pub fn jumping(peers: &Peers, keys: KeyKind, events: u64) -> anyhow::Result<(f64, Done)> {
    let mut command = peers.python("bytewax_windows.py");
    let kind = if keys == KeyKind::Int { "int" } else { "text" };
    command.args([kind, &events.to_string(), &load::BATCH.to_string()]);
    command.args([load::STEP_US, load::WINDOW_US, load::KEYS as i64].map(|figure| figure.to_string()));
    let out = command.output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    let figure = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        line.with_context(|| format!("Bytewax failed: {}", String::from_utf8_lossy(&out.stderr)))
    };
    let done = Done { count: figure("count")? as u64, sum: figure("sum")? };
    Ok((events as f64 / figure("seconds")?, done))
}
