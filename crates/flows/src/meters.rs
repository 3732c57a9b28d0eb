//! What flows measure.

use std::time::Duration;

use mutirao_core::meters::{Kind, Meter};

const RUNS: &str = "mutirao_flow_runs_total";
const ENDED: &str = "mutirao_flow_runs_ended_total";
const OPEN: &str = "mutirao_flow_runs_open";
const HELD: &str = "mutirao_flow_runs_bytes";
const SENT: &str = "mutirao_flow_tasks_sent_total";
const WRITE: &str = "mutirao_flow_write_duration_seconds";

/// The texts are those of the table in docs/operations.md.
pub const METERS: &[Meter] = &[
    Meter { name: RUNS, kind: Kind::Counter, labels: &[], help: "Runs of flows that this manager accepted." },
    Meter {
        name: ENDED,
        kind: Kind::Counter,
        labels: &["state"],
        help: "Runs that ended here: done, failed, cancelled or timed_out.",
    },
    Meter { name: OPEN, kind: Kind::Gauge, labels: &[], help: "Runs under way in the shards that this manager owns." },
    Meter {
        name: HELD,
        kind: Kind::Gauge,
        labels: &[],
        help: "About how much memory those runs take; flows.memory is the most.",
    },
    Meter {
        name: SENT,
        kind: Kind::Counter,
        labels: &[],
        help: "Tasks of flows that went to nodes, every try counted.",
    },
    Meter {
        name: WRITE,
        kind: Kind::Histogram,
        labels: &[],
        help: "How long it took to make what came of tasks durable, a batch at a time.",
    },
];

pub fn begin() {
    metrics::counter!(RUNS).increment(0);
    metrics::counter!(SENT).increment(0);
    metrics::gauge!(OPEN).set(0.0);
    metrics::gauge!(HELD).set(0.0);
    for state in ["done", "failed", "cancelled", "timed_out"] {
        metrics::counter!(ENDED, "state" => state).increment(0);
    }
    let _ = metrics::histogram!(WRITE);
}

pub fn accepted() {
    metrics::counter!(RUNS).increment(1);
}

pub fn ended(state: &'static str) {
    metrics::counter!(ENDED, "state" => state).increment(1);
}

pub fn sent() {
    metrics::counter!(SENT).increment(1);
}

/// More runs here, or fewer.
pub fn open(by: f64) {
    metrics::gauge!(OPEN).increment(by);
}

/// More memory for them, or less.
pub fn held(by: f64) {
    metrics::gauge!(HELD).increment(by);
}

pub fn written(took: Duration) {
    metrics::histogram!(WRITE).record(took.as_secs_f64());
}
