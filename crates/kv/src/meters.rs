//! What kv measures.

use std::time::Duration;

use mutirao_core::meters::{Kind, Meter};

const WRITES: &str = "mutirao_kv_writes_total";
const PARCELS: &str = "mutirao_kv_parcels_total";
const BACKLOG: &str = "mutirao_kv_backlog_writes";
const APPLIED: &str = "mutirao_kv_applied_total";
const APPLY: &str = "mutirao_kv_apply_duration_seconds";

/// The texts are those of the table in docs/operations.md.
pub const METERS: &[Meter] = &[
    Meter {
        name: WRITES,
        kind: Kind::Counter,
        labels: &[],
        help: "Writes to keys that became durable through this manager.",
    },
    Meter {
        name: PARCELS,
        kind: Kind::Counter,
        labels: &[],
        help: "Messages in which such writes went to RabbitMQ; writes that arrive together share one.",
    },
    Meter {
        name: BACKLOG,
        kind: Kind::Gauge,
        labels: &[],
        help: "Writes that this manager sent to RabbitMQ and that are not applied yet, as far as it knows.",
    },
    Meter {
        name: APPLIED,
        kind: Kind::Counter,
        labels: &[],
        help: "Writes to keys that this manager applied, for the shards that it owns.",
    },
    Meter {
        name: APPLY,
        kind: Kind::Histogram,
        labels: &[],
        help: "How long it took to apply a batch of writes; mutirao_kv_applied_total by its count is the size of a batch.",
    },
];

pub(crate) fn accepted(writes: usize) {
    metrics::counter!(WRITES).increment(writes as u64);
}

pub(crate) fn confirmed_parcel() {
    metrics::counter!(PARCELS).increment(1);
}

pub(crate) fn backlog(more: f64) {
    metrics::gauge!(BACKLOG).increment(more);
}

pub(crate) fn applied(writes: usize, took: Duration) {
    metrics::counter!(APPLIED).increment(writes as u64);
    metrics::histogram!(APPLY).record(took.as_secs_f64());
}
