//! `mutirao kv export`: a JSON object a line, which is an operation of a batch as it is, so that what was exported can be imported.

use std::io::IsTerminal;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mutirao_client::Client;
use mutirao_client::kv::Read;
use mutirao_core::Timestamp;
use mutirao_kv::view::{EntriesView, EntryView, Operation};
use serde_json::json;

use super::super::out::{Out, Shape};
use super::PAGE_ROWS;
use super::hour::Ahead;
use crate::failure::Failure;

const REDRAWS_PER_S_MAX: u8 = 10;

/// As a list shows it.
pub fn shown(key: &str, read: &Read) -> serde_json::Value {
    let mut value = json!({
        "key": key, "revision": read.revision, "changed_at": read.changed_at, "content_type": read.content_type,
        "bytes": read.bytes.len(),
    });
    if let Some(at) = read.expires_at {
        value["expires_at"] = json!(at);
    }
    match std::str::from_utf8(&read.bytes) {
        Ok(text) => value["value"] = text.into(),
        Err(_) => value["base64"] = STANDARD.encode(&read.bytes).into(),
    }
    value
}

pub async fn export(client: &Client, prefix: &str, out: Out) -> Result<(), Failure> {
    // Where the lines themselves are looked at, they show how far it is.
    let bar = if std::io::stdout().is_terminal() { ProgressBar::hidden() } else { bar(out, "entries") };
    let ahead = Ahead::ask(client).await;
    let mut cursor = None;
    loop {
        let page: EntriesView = client.entries(prefix, true, cursor.as_deref(), Some(PAGE_ROWS)).await?;
        let now = ahead.now();
        let lines = page.entries.iter().map(|entry| serde_json::to_string(&operation(entry, now)));
        let lines = lines.collect::<Result<Vec<_>, _>>().map_err(|error| Failure::failed(error.to_string()))?;
        if !lines.is_empty() {
            out.line(lines.join("\n"))?;
        }
        bar.inc(page.entries.len() as u64);
        cursor = page.next;
        if cursor.is_none() {
            bar.finish_and_clear();
            return Ok(());
        }
    }
}

fn operation(entry: &EntryView, now: Timestamp) -> Operation {
    let lasts = entry.expires_at.map(|at| at.since(now).max(Duration::from_millis(1)));
    Operation {
        key: entry.key.clone(),
        value: entry.value.clone(),
        base64: entry.base64.clone(),
        content_type: Some(entry.content_type.clone()),
        ttl: lasts.map(|lasts| format!("{}ms", lasts.as_millis())),
        ..Operation::default()
    }
}

pub(super) fn bar(out: Out, what: &'static str) -> ProgressBar {
    if out.shape == Shape::Json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S_MAX));
    let style = "{spinner} {pos} {msg} {per_sec}";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
