//! What kv measures.

use std::time::Duration;

use metrics::Counter;
use mutirao_core::meters::{Kind, Meter};

const WRITES: &str = "mutirao_kv_writes_total";
const PARCELS: &str = "mutirao_kv_parcels_total";
const BACKLOG: &str = "mutirao_kv_backlog_writes";
const APPLIED: &str = "mutirao_kv_applied_total";
const LOOKED_UP: &str = "mutirao_kv_cache_looks_total";
const HISTORY: &str = "mutirao_kv_history_bytes";
const CACHE_FAILURES: &str = "mutirao_kv_cache_failures_total";
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
    Meter {
        name: HISTORY,
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes of history, what keys were, that the shards of this manager have: about, and as of a minute ago at most.",
    },
    Meter {
        name: LOOKED_UP,
        kind: Kind::Counter,
        labels: &["result"],
        help: "Reads of keys that asked the cache: found there (hit), asked of the store and filled in (miss), or asked of the store only (past).",
    },
    Meter {
        name: CACHE_FAILURES,
        kind: Kind::Counter,
        labels: &[],
        help: "Times that Redis did not do what was asked of it, by readers or by those who apply writes, and was left alone for a moment.",
    },
];

/// Reads that asked the cache, by what they found: held, since a label made for each would cost a read more than its look.
pub(crate) struct Looks {
    pub hit: Counter,
    pub miss: Counter,
    pub past: Counter,
}

/// What has not happened yet is shown as such.
pub(crate) fn begin() -> Looks {
    metrics::counter!(CACHE_FAILURES).increment(0);
    metrics::gauge!(HISTORY).increment(0.0);
    let look = |result: &'static str| {
        let looks = metrics::counter!(LOOKED_UP, "result" => result);
        looks.increment(0);
        looks
    };
    Looks { hit: look("hit"), miss: look("miss"), past: look("past") }
}

/// What one shard has, as whoever applies its writes knows it; it goes with them.
#[derive(Default)]
pub(crate) struct History(f64);

impl History {
    pub fn set(&mut self, bytes: u64) {
        metrics::gauge!(HISTORY).increment(bytes as f64 - self.0);
        self.0 = bytes as f64;
    }
}

impl Drop for History {
    fn drop(&mut self) {
        metrics::gauge!(HISTORY).decrement(self.0);
    }
}

pub(crate) fn cache_failed() {
    metrics::counter!(CACHE_FAILURES).increment(1);
}

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
