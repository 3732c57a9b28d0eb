//! Workers as text for people.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::job::{WorkerState, WorkerView};
use mutirao_elastic::view::WorkerDetail;

use crate::cli::show::{ago, facts, or_dash, rough, size, table};

pub fn workers(workers: &[WorkerView], now: Timestamp) -> String {
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
            state(worker),
            or_dash(worker.since.map(|at| ago(at, now))),
            or_dash(worker.node.as_deref()),
            rough(Duration::from_millis(worker.silent_ms)),
        ]
    };
    let heading =
        ["ID", "QUEUE", "HOST", "PID", "CPUS", "MEMORY", "RUNNING", "HELD", "STATE", "SINCE", "NODE", "LAST HEARD"];
    table(heading, workers.iter().map(row))
}

/// `idle`, `busy 3`, `draining`, `drained`.
fn state(worker: &WorkerView) -> String {
    match worker.state {
        WorkerState::Idle => "idle".into(),
        WorkerState::Busy => format!("busy {}", worker.held),
        WorkerState::Draining => "draining".into(),
        WorkerState::Drained => "drained".into(),
    }
}

pub fn worker(detail: &WorkerDetail, now: Timestamp) -> String {
    let record = detail.record.as_ref().map(|record| {
        let life = format!("{:?}", record.life).to_lowercase();
        format!("{life} for {}, on node {}", ago(record.since, now), or_dash(record.node.as_deref()))
    });
    let drained = detail.draining.as_ref().map(|drain| format!("for {}, by {}", ago(drain.since, now), drain.by));
    let mut text = facts(&[
        ("worker", detail.worker.to_string()),
        ("queue", detail.queue.to_string()),
        ("handed nothing", or_dash(drained)),
        ("resource manager", record.unwrap_or_else(|| "did not start it".into())),
    ]);
    match (&detail.sessions[..], detail.unheard) {
        ([], true) => text.push_str("\n\nwhoever looks after its queue does not answer: it may be alive"),
        ([], false) => text.push_str("\n\nno process of it is alive"),
        (sessions, _) => {
            text.push_str("\n\n");
            text.push_str(&workers(sessions, now));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(state: &str) -> WorkerView {
        let json = serde_json::json!({
            "worker": "w1", "session": "s", "queue": "gpu", "host": "h", "pid": 1, "capacity": {}, "running": 1,
            "held": 3, "draining": false, "silent_ms": 5, "state": state, "since": 0, "node": "n1"
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_worker_is_shown_with_its_state_since_when_and_where() {
        let now = Timestamp(60_000);
        for (state, said) in [("idle", "idle"), ("busy", "busy 3"), ("draining", "draining"), ("drained", "drained")] {
            let text = workers(&[view(state)], now);
            assert!(text.contains(said) && text.contains("60s") && text.contains("n1"), "{text}");
        }
        let detail = WorkerDetail {
            worker: mutirao_core::WorkerId("w1".into()),
            queue: "gpu".parse().unwrap(),
            sessions: vec![],
            record: None,
            draining: Some(mutirao_elastic::view::DrainView { since: Timestamp(0), by: "ana".into() }),
            unheard: false,
        };
        let text = worker(&detail, now);
        assert!(text.contains("for 60s, by ana") && text.contains("no process of it is alive"), "{text}");
    }
}
