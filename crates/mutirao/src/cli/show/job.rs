//! Jobs on a terminal: a list of them, and one with what its tasks run.

use mutirao_core::Timestamp;
use mutirao_core::exec::Exec;
use mutirao_core::job::{Counts, JobView};
use mutirao_core::quantity::Bytes;
use mutirao_core::task::{Action, TaskSpec};

use super::{ago, facts, one_line, or_dash, quoted, rough, size, table};

/// As much of a command as is shown; the whole of it is in the JSON.
const COMMAND_CHARS_MAX: usize = 400;

/// One line each. The labels get a column when there are any.
pub fn jobs(jobs: &[JobView], now: Timestamp) -> String {
    let labelled = jobs.iter().any(|job| !job.labels.is_empty());
    let row = |job: &JobView| {
        let mut row = vec![
            job.id.to_string(),
            or_dash(job.name.as_deref().map(one_line)),
            job.queue.to_string(),
            job.state.as_str().into(),
            format!("{}/{}", job.counts.ended(), job.tasks),
            (job.counts.ended() - job.counts.ok).to_string(),
            ago(job.created_at, now),
        ];
        row.extend(labelled.then(|| labels(job)));
        row
    };
    let mut heading = vec!["ID", "NAME", "QUEUE", "STATE", "DONE", "NOT OK", "AGE"];
    heading.extend(labelled.then_some("LABELS"));
    table(heading, jobs.iter().map(row))
}

fn labels(job: &JobView) -> String {
    let labels: Vec<String> = job.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    or_dash((!labels.is_empty()).then(|| one_line(&labels.join(" "))))
}

fn waits_for(job: &JobView) -> String {
    job.waits_for.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

pub fn job(job: &JobView, now: Timestamp) -> String {
    let ended = job.finished_at.map(|at| format!("{at} (after {})", rough(at.since(job.created_at))));
    let mut told = vec![
        ("id", job.id.to_string()),
        ("name", or_dash(job.name.as_deref().map(one_line))),
        ("queue", job.queue.to_string()),
        ("state", job.state.as_str().into()),
        ("tasks", format!("{}: {}", job.tasks, counts(&job.counts))),
    ];
    told.extend(job.reason.iter().map(|reason| ("reason", one_line(reason))));
    told.extend((!job.waits_for.is_empty()).then(|| ("waits for", waits_for(job))));
    told.extend(job.unique.iter().map(|key| ("unique", one_line(key))));
    told.extend(job.task.iter().flat_map(runs));
    told.extend([
        ("created", format!("{} ({} ago)", job.created_at, ago(job.created_at, now))),
        ("finished", or_dash(ended)),
        ("labels", labels(job)),
        ("priority", job.priority.to_string()),
        ("owner", job.owner.clone()),
        ("trace", job.trace.clone()),
    ]);
    facts(&told)
}

/// What each task does. Of its variables only the names: their values may be secrets.
fn runs(task: &TaskSpec) -> Vec<(&'static str, String)> {
    let mut told = match &task.action {
        Action::Exec(exec) => command(exec),
        Action::Noop {} => vec![("runs", "nothing (noop)".into())],
    };
    let memory = if task.needs.memory == Bytes(0) { String::new() } else { format!(", {}", size(task.needs.memory.0)) };
    told.push(("needs", format!("cpus {}{memory}", task.needs.cpus)));
    told.push(("retries", task.retry.unwrap_or_default().retries.to_string()));
    told.push(("crashes", task.retry.unwrap_or_default().crashes.to_string()));
    told.push(("timeout", or_dash(task.timeout)));
    told
}

fn command(exec: &Exec) -> Vec<(&'static str, String)> {
    let words: Vec<String> = exec.command.iter().map(|word| quoted(word)).collect();
    let line = one_line(&words.join(" "));
    let line = match line.char_indices().nth(COMMAND_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    };
    let names: Vec<&str> = exec.env.keys().map(String::as_str).collect();
    // With a command of its own for each task, the job has none.
    let mut told = vec![("runs", if line.is_empty() { "a command of its own each".into() } else { line })];
    told.extend((!names.is_empty()).then(|| ("env", one_line(&names.join(" ")))));
    told.extend(exec.dir.iter().map(|dir| ("dir", one_line(dir))));
    told.extend(exec.stdin.iter().map(|stdin| ("stdin", size(stdin.len() as u64))));
    told
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

#[cfg(test)]
mod tests {
    use mutirao_core::JobKey;

    use super::*;

    fn view() -> JobView {
        let counts = Counts { running: 2, ok: 7, failed: 1, ..Default::default() };
        let view = serde_json::json!({
            "id": JobKey(7), "name": "two\nlines\x1b[31m", "queue": "default", "owner": "t1", "state": "running",
            "tasks": 10, "counts": counts, "created_at": 1_000, "trace": "ab",
        });
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn a_list_of_jobs_is_one_line_each_under_a_heading() {
        let text = jobs(&[view()], Timestamp(66_000));
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[1][0], JobKey(7).to_string());
        assert_eq!(lines[1][4..], ["default", "running", "8/10", "1", "65s"], "{text}");
        assert!(!text.contains('\x1b'), "a job's name must not steer the terminal");
        assert!(!text.contains("LABELS"));
    }

    #[test]
    fn labels_get_a_column_when_any_job_has_one() {
        let labelled = JobView { labels: [("team".into(), "x".into()), ("a".into(), "b".into())].into(), ..view() };
        let text = jobs(&[view(), labelled], Timestamp(66_000));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("LABELS") && lines[1].ends_with('-') && lines[2].ends_with("a=b team=x"), "{text}");
    }

    #[test]
    fn a_job_shows_what_its_tasks_run_and_no_value_of_a_variable() {
        let task = serde_json::json!({
            "action": {"exec": {"command": ["sh", "-c", "echo it's"], "env": {"TOKEN": "hush"}, "stdin": "abc"}},
            "needs": {"cpus": "500m", "memory": "512M"}, "retry": {"retries": 3}, "timeout": "5m",
        });
        let text = job(&JobView { task: Some(serde_json::from_value(task).unwrap()), ..view() }, Timestamp(2_000));
        for part in
            [r"sh -c 'echo it'\''s'", "TOKEN", "stdin     3B", "cpus 500m, 512MiB", "retries   3", "timeout   5m"]
        {
            assert!(text.contains(part), "no \"{part}\" in {text}");
        }
        assert!(!text.contains("hush"), "{text}");
        assert!(!job(&view(), Timestamp(2_000)).contains("runs"), "a list does not say");
    }

    #[test]
    fn only_counts_that_are_not_zero_are_shown() {
        assert_eq!(counts(&view().counts), "2 running, 7 ok, 1 failed");
        assert_eq!(counts(&Counts::default()), "none");
    }
}
