//! The same with the program itself: bursts of short commands for an installation whose resource manager has four nodes of this
//! machine to put workers on. The day is a few minutes long, and so small that the machine is not what is measured.

use std::io::Write;
use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_testkit::Installation;
use serde::Deserialize;

use crate::plot::Line;
use crate::report::{Goal, Report};
use crate::span::{Since, pause};

/// Bursts, how many tasks each has, and how long until the next.
const BURSTS: [(u32, u64); 8] = [(24, 20), (6, 10), (40, 25), (12, 15), (2, 20), (30, 10), (30, 25), (8, 5)];
const TASK_S: &str = "2";
const NODES: &str = "4";
const CPUS: &str = "4";
/// From wanting a worker to its first word a process takes about a second, so waits are seconds too.
const WAIT_S: u64 = 8;
const IDLE_WAIT_S: u64 = 10;
/// Everything has ended by then, and every worker is gone.
const UNTIL: Duration = Duration::from_secs(600);

#[derive(Deserialize)]
struct Status {
    queues: Vec<Queue>,
}

#[derive(Deserialize)]
struct Queue {
    creating: u32,
    running: u32,
    draining: u32,
}

#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Task {
    state: String,
    started_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Job {
    id: String,
    created_at: Timestamp,
}

/// What came of one policy.
struct Day {
    waits_s: Vec<f64>,
    worker_s: f64,
    course: Vec<(f64, f64)>,
    not_ok: usize,
}

pub fn run(report: &mut Report) -> anyhow::Result<()> {
    let policies = [
        ("n_for_n", format!("{{ kind: n_for_n, idle_wait: {IDLE_WAIT_S}s }}")),
        ("hpa", "{ kind: hpa, metrics: [{ source: ready, target: { per_worker: 2 } }, { source: running, target: { per_worker: 0.8 } }] }".into()),
        ("threshold", "{ kind: threshold, source: oldest_wait, above: 3, below: 1, step: 2, pause: 5s }".into()),
        ("wait_goal", format!("{{ kind: wait_goal, wait: {WAIT_S}s, task: 2s, boot: 2s, idle_wait: {IDLE_WAIT_S}s }}")),
    ];
    report.note(format!(
        "real: {} tasks of {TASK_S} s in {} bursts, {NODES} nodes of this machine that hold {CPUS} workers each; wait_goal promises {WAIT_S} s",
        BURSTS.iter().map(|(tasks, _)| tasks).sum::<u32>(),
        BURSTS.len(),
    ));
    let mut days = Vec::new();
    for (name, policy) in &policies {
        let mut day = live(policy)?;
        day.waits_s.sort_by(f64::total_cmp);
        let waited = |share: f64| {
            let at = (day.waits_s.len().saturating_sub(1) as f64 * share) as usize;
            day.waits_s.get(at).copied().unwrap_or(0.0)
        };
        for (what, share) in [("wait p50", 0.5), ("wait p95", 0.95), ("wait p99", 0.99)] {
            report.row(format!("real, {name}: {what}"), waited(share), "s");
        }
        report.row(format!("real, {name}: worker-seconds"), day.worker_s, "s");
        let up = day.course.windows(2).map(|pair| (pair[1].1 - pair[0].1).max(0.0)).sum();
        report.row(format!("real, {name}: workers more, from one second to the next"), up, "workers");
        report.goal(format!("real, {name}: tasks that are not ok"), day.not_ok as f64, "tasks", Goal::AtMost(0.0));
        days.push(day);
    }
    if let [each, .., ours] = &days[..] {
        report.row("real, wait_goal: worker-seconds of n_for_n's", ours.worker_s / each.worker_s * 100.0, "%");
        let line = |name: &str, day: &Day| Line { name: name.into(), points: day.course.clone() };
        report.panels.push(vec![line("workers, real, n_for_n", each), line("workers, real, wait_goal", ours)]);
    }
    Ok(())
}

fn live(policy: &str) -> anyhow::Result<Day> {
    let setup = Installation::setup().workers(0).env("MUTIRAO_LOG", "warn");
    let up = setup.set("elastic.nodes", NODES).set("elastic.cpus", CPUS).start();
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
    writeln!(file, "kind: Queue\nname: bursts\nelastic:\n  min: 0\n  max: 16\n  policy: {policy}")?;
    up.ok(&["apply", "-f", &file.path().display().to_string()]);
    let since = Since::now();
    let (mut jobs, mut course, mut worker_s, mut next_s) = (Vec::new(), Vec::<(f64, f64)>::new(), 0.0, 0.0);
    let mut bursts = BURSTS.iter();
    let mut left = true;
    while since.elapsed() < UNTIL {
        let at_s = since.elapsed().as_secs_f64();
        if left && at_s >= next_s {
            match bursts.next() {
                Some((tasks, then_s)) => {
                    let array = format!("1-{tasks}");
                    let said =
                        up.ok(&["--json", "submit", "--queue", "bursts", "--array", &array, "--", "sleep", TASK_S]);
                    jobs.push(serde_json::from_str::<Job>(&said)?);
                    next_s = at_s + *then_s as f64;
                }
                None => left = false,
            }
        }
        let status: Status = serde_json::from_slice(&up.request("GET /v1/elastic/status", b"").body)?;
        let there: u32 = status.queues.iter().map(|queue| queue.creating + queue.running + queue.draining).sum();
        worker_s += f64::from(there) * (at_s - course.last().map_or(0.0, |(at, _)| *at));
        course.push((at_s, f64::from(there)));
        // From there to nothing, and not only before the first came.
        if !left && there == 0 && at_s > next_s + IDLE_WAIT_S as f64 {
            break;
        }
        pause(Duration::from_secs(1));
    }
    let (mut waits_s, mut not_ok) = (Vec::new(), 0);
    for job in &jobs {
        let page = up.request(&format!("GET /v1/jobs/{}/tasks?limit=1000", job.id), b"").body;
        for task in serde_json::from_slice::<Page<Task>>(&page)?.items {
            not_ok += usize::from(task.state != "ok");
            waits_s.extend(task.started_at.map(|at| at.since(job.created_at).as_secs_f64()));
        }
    }
    Ok(Day { waits_s, worker_s, course, not_ok })
}
