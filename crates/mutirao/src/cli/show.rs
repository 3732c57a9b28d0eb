//! How things look on a terminal: tables without rulers, ages instead of dates, dashes for nothing. Pure.

use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use mutirao_core::Timestamp;
use mutirao_core::auth::TokenView;
use mutirao_core::job::{Counts, JobView, TaskState, TaskView, WorkerView};
use mutirao_core::quantity::Bytes;

/// Columns under a heading; no borders, so that it can be cut and grepped.
pub fn table<const N: usize>(heading: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
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

pub fn jobs(jobs: &[JobView], now: Timestamp) -> String {
    if jobs.is_empty() {
        return "no jobs; `mutirao submit -- echo hello` makes one".into();
    }
    let row = |job: &JobView| {
        [
            job.id.to_string(),
            or_dash(job.name.as_deref().map(one_line)),
            job.queue.to_string(),
            job.state.as_str().into(),
            format!("{}/{}", job.counts.ended(), job.tasks),
            (job.counts.ended() - job.counts.ok).to_string(),
            ago(job.created_at, now),
        ]
    };
    table(["ID", "NAME", "QUEUE", "STATE", "DONE", "NOT OK", "AGE"], jobs.iter().map(row))
}

pub fn job(job: &JobView, now: Timestamp) -> String {
    let ended = job.finished_at.map(|at| format!("{at} (after {})", rough(at.since(job.created_at))));
    let labels: Vec<String> = job.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    facts(&[
        ("id", job.id.to_string()),
        ("name", or_dash(job.name.as_deref().map(one_line))),
        ("queue", job.queue.to_string()),
        ("state", job.state.as_str().into()),
        ("tasks", format!("{}: {}", job.tasks, counts(&job.counts))),
        ("created", format!("{} ({} ago)", job.created_at, ago(job.created_at, now))),
        ("finished", or_dash(ended)),
        ("labels", or_dash((!labels.is_empty()).then(|| one_line(&labels.join(" "))))),
        ("owner", job.owner.clone()),
        ("trace", job.trace.clone()),
    ])
}

/// The counts that are not zero: `3 ok, 1 failed`.
pub fn counts(counts: &Counts) -> String {
    let all = [
        (counts.ready, "ready"),
        (counts.dispatched, "dispatched"),
        (counts.running, "running"),
        (counts.ok, "ok"),
        (counts.failed, "failed"),
        (counts.timed_out, "timed out"),
        (counts.cancelled, "cancelled"),
        (counts.lost, "lost"),
        (counts.dead, "dead"),
    ];
    let some: Vec<String> = all.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if some.is_empty() { "none".into() } else { some.join(", ") }
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
        ("attempt", or_dash(task.attempt)),
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

pub fn workers(workers: &[WorkerView]) -> String {
    if workers.is_empty() {
        return "no workers; `mutirao up` starts some, `mutirao worker invite` lets one in from elsewhere".into();
    }
    let row = |worker: &WorkerView| {
        [
            worker.worker.to_string(),
            worker.queue.to_string(),
            worker.host.clone(),
            worker.pid.to_string(),
            worker.capacity.cpus.to_string(),
            size(worker.capacity.memory.0),
            worker.running.to_string(),
            worker.held.to_string(),
            if worker.draining { "draining".into() } else { "working".into() },
            rough(Duration::from_millis(worker.silent_ms)),
        ]
    };
    let heading = ["ID", "QUEUE", "HOST", "PID", "CPUS", "MEMORY", "RUNNING", "HELD", "STATE", "LAST HEARD"];
    table(heading, workers.iter().map(row))
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

/// A size to one decimal: `1.5GiB`.
pub fn size(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1}{name}", bytes as f64 / *unit as f64),
        None => Bytes(bytes).to_string(),
    }
}

/// What people wrote, made fit for one cell: no line breaks, nothing that steers a terminal.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use mutirao_core::job::JobState;
    use mutirao_core::{JobKey, QueueName};

    use super::*;

    fn view() -> JobView {
        JobView {
            id: JobKey(7),
            name: Some("two\nlines\x1b[31m".into()),
            queue: QueueName::default(),
            owner: "t1".into(),
            state: JobState::Running,
            tasks: 10,
            counts: Counts { running: 2, ok: 7, failed: 1, ..Default::default() },
            created_at: Timestamp(1_000),
            finished_at: None,
            labels: Default::default(),
            trace: "ab".into(),
        }
    }

    #[test]
    fn a_list_of_jobs_is_one_line_each_under_a_heading() {
        let text = jobs(&[view()], Timestamp(66_000));
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[1][0], JobKey(7).to_string());
        assert_eq!(lines[1][4..], ["default", "running", "8/10", "1", "65s"], "{text}");
        assert!(!text.contains('\x1b'), "a job's name must not steer the terminal");
    }

    #[test]
    fn only_counts_that_are_not_zero_are_shown() {
        assert_eq!(counts(&view().counts), "2 running, 7 ok, 1 failed");
        assert_eq!(counts(&Counts::default()), "none");
    }

    #[test]
    fn ages_and_sizes_are_short() {
        let shown: Vec<String> = [0, 59, 119, 120, 7_199, 7_200, 172_800].map(|s| rough(Duration::from_secs(s))).into();
        assert_eq!(shown, ["0ms", "59s", "119s", "2m", "119m", "2h", "2d"]);
        assert_eq!((size(1_536), size(10), size(3 << 29)), ("1.5KiB".into(), "10B".into(), "1.5GiB".into()));
        assert_eq!(ago(Timestamp(5_000), Timestamp(1_000)), "0ms", "a clock that was stepped back");
    }
}
