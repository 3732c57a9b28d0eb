//! How things look on a terminal: tables without rulers, ages instead of dates, dashes for nothing. Pure.

mod dead;
mod flow;
mod job;
mod monitor;
mod queue;
mod stream;

use std::time::Duration;

use comfy_table::{ContentArrangement, Row, Table, presets};
use mutirao_core::auth::{KeyView, TokenView};
use mutirao_core::job::{TaskState, TaskView};
use mutirao_core::quantity::Bytes;
use mutirao_core::shard::ShardView;
use mutirao_core::{Attempt, Timestamp};

pub use dead::{dead_tasks, letters};
pub use flow::{flow, flows, run, run_end, run_explained, run_waits_for, runs, steps_ended};
pub use job::{counts, job, jobs};
pub use monitor::{alerts, channels, history, monitor, monitors, tried};
pub use queue::{explanation, queue, queues};
pub use stream::{migrating, pushed, stream, stream_explained, stream_hosts, streams, streams_deployed};

/// Columns under a heading; no borders, so that it can be cut and grepped.
pub fn table<R: Into<Row>>(heading: impl Into<Row>, rows: impl IntoIterator<Item = R>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(heading);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// `name  value` lines, the values aligned.
pub fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = facts.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect();
    lines.join("\n")
}

/// A time as its distance from now: `12s`, `5m`, `3h`, `8d`.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    rough(now.since(at))
}

/// A duration to one or two digits that matter.
pub fn rough(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{}ms", span.as_millis()),
        s @ 1..120 => format!("{s}s"),
        s @ 120..7_200 => format!("{}m", s / 60),
        s @ 7_200..172_800 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

pub fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".into(), |text| text.to_string())
}

pub fn state(state: TaskState) -> &'static str {
    match state {
        TaskState::Ready => "ready",
        TaskState::Dispatched => "dispatched",
        TaskState::Running => "running",
        TaskState::Ok => "ok",
        TaskState::Failed => "failed",
        TaskState::TimedOut => "timed out",
        TaskState::Cancelled => "cancelled",
        TaskState::Lost => "lost",
        TaskState::Dead => "dead",
    }
}

/// How a task ended, in words: `failed with exit code 42: no such program`.
pub fn fate(task: &TaskView) -> String {
    let how = match (task.exit, task.signal) {
        (Some(code), _) => format!(" with exit code {code}"),
        (None, Some(signal)) => format!(" by signal {signal}"),
        (None, None) => String::new(),
    };
    let reason = task.reason.as_deref().map(|reason| format!(": {}", one_line(reason))).unwrap_or_default();
    format!("{}{how}{reason}", state(task.state))
}

/// How the process ended: its code, or the signal.
pub fn ending(task: &TaskView) -> String {
    match (task.exit, task.signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "-".into(),
    }
}

pub fn tasks(tasks: &[TaskView]) -> String {
    if tasks.is_empty() {
        return "no such tasks".into();
    }
    let row = |task: &TaskView| {
        [
            task.id.to_string(),
            state(task.state).into(),
            ending(task),
            task.failures.to_string(),
            or_dash(task.usage.map(|usage| rough(usage.wall()))),
            or_dash(task.worker.as_deref()),
            or_dash(task.reason.as_deref().map(one_line)),
        ]
    };
    table(["ID", "STATE", "EXIT", "FAILURES", "TIME", "WORKER", "REASON"], tasks.iter().map(row))
}

pub fn task(task: &TaskView, now: Timestamp) -> String {
    let cpu = task.usage.map(|u| rough(Duration::from_micros(u.cpu_user_us + u.cpu_system_us)));
    let memory = task.usage.and_then(|u| u.memory_peak_bytes).map(size);
    let next = task.not_before.filter(|at| *at > now).map(|at| format!("{at} (in {})", rough(at.since(now))));
    facts(&[
        ("id", task.id.to_string()),
        ("state", state(task.state).into()),
        ("exit", ending(task)),
        ("reason", or_dash(task.reason.as_deref().map(one_line))),
        ("attempt", or_dash(task.attempt.map(attempt))),
        ("failures", task.failures.to_string()),
        ("losses", task.losses.to_string()),
        ("next try", or_dash(next)),
        ("worker", or_dash(task.worker.as_deref())),
        ("started", or_dash(task.started_at)),
        ("ended", or_dash(task.ended_at)),
        ("time", or_dash(task.usage.map(|usage| rough(usage.wall())))),
        ("cpu", or_dash(cpu)),
        ("memory", or_dash(memory)),
    ])
}

/// Attempts are numbered by who hands them out: a manager that takes the queue over begins a new count.
fn attempt(attempt: Attempt) -> String {
    format!("{attempt} (number {} by generation {} of the queue's owner)", attempt.n, attempt.generation)
}

pub fn shards(shards: &[ShardView]) -> String {
    let row = |view: &ShardView| {
        [
            view.group.clone(),
            view.shard.to_string(),
            or_dash(view.owner.as_ref()),
            or_dash(view.address.as_deref()),
            view.generation.to_string(),
            or_dash(view.silent_ms.map(|ms| rough(Duration::from_millis(ms)))),
        ]
    };
    table(["GROUP", "SHARD", "OWNER", "ADDRESS", "GENERATION", "LAST HEARD"], shards.iter().map(row))
}

pub fn tokens(tokens: &[TokenView], now: Timestamp) -> String {
    let state = |token: &TokenView| match (token.revoked_at, token.expires_at) {
        (Some(_), _) => "revoked".into(),
        (None, Some(at)) if at <= now => "expired".into(),
        (None, Some(at)) => format!("good for {}", rough(at.since(now))),
        (None, None) => "good".to_owned(),
    };
    let row = |token: &TokenView| {
        [
            token.id.clone(),
            one_line(&token.name),
            token.role.as_str().into(),
            state(token),
            ago(token.created_at, now),
            or_dash(token.last_used_at.map(|at| format!("{} ago", ago(at, now)))),
        ]
    };
    table(["ID", "NAME", "ROLE", "STATE", "AGE", "LAST USED"], tokens.iter().map(row))
}

pub fn worker_keys(keys: &[KeyView], now: Timestamp) -> String {
    let row = |key: &KeyView| {
        let state = if key.revoked_at.is_some() { "revoked" } else { "good" };
        let duty = match &key.checks {
            Some(kinds) => format!("checks of {kinds}"),
            None if key.streams => "hosts streams".to_owned(),
            None => key.queue.clone(),
        };
        [key.worker.to_string(), one_line(&key.name), duty, state.into(), ago(key.enrolled_at, now)]
    };
    table(["WORKER", "NAME", "QUEUE", "STATE", "AGE"], keys.iter().map(row))
}

pub fn size(bytes: u64) -> String {
    Bytes(bytes).rough()
}

/// What people wrote, made fit for one cell: no line breaks, nothing that steers a terminal.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A word fit to be pasted into a shell.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.into() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_short() {
        let shown: Vec<String> = [0, 59, 119, 120, 7_199, 7_200, 172_800].map(|s| rough(Duration::from_secs(s))).into();
        assert_eq!(shown, ["0ms", "59s", "119s", "2m", "119m", "2h", "2d"]);
        assert_eq!([1_536, 10, 3 << 29, 1 << 20].map(size), ["1.5KiB", "10B", "1.5GiB", "1MiB"]);
        assert_eq!(ago(Timestamp(5_000), Timestamp(1_000)), "0ms", "a clock that was stepped back");
    }

    #[test]
    fn a_word_survives_a_shell() {
        assert_eq!(["plain", "", "a b", "it's"].map(quoted), ["plain", "''", "'a b'", r"'it'\''s'"]);
    }
}
