//! What the manager's side of streams measures.

use mutirao_core::meters::{Kind, Meter};

const STREAMS: &str = "mutirao_streams";
const PARTS: &str = "mutirao_stream_parts";
const MOVES: &str = "mutirao_stream_moves_total";
const HOSTS: &str = "mutirao_stream_hosts";
const MISSING: &str = "mutirao_stream_cores_missing";
const PUSHED: &str = "mutirao_stream_pushed_total";
const HANDED: &str = "mutirao_stream_handed_over_total";

/// The texts are those of the table in docs/operations.md.
pub const METERS: &[Meter] = &[
    Meter { name: STREAMS, kind: Kind::Gauge, labels: &[], help: "Streams in the shards that this manager owns." },
    Meter {
        name: PARTS,
        kind: Kind::Gauge,
        labels: &["state"],
        help: "Parts of those streams: placed on a host, or waiting for one.",
    },
    Meter {
        name: MOVES,
        kind: Kind::Counter,
        labels: &[],
        help: "Parts that this manager gave to a host, the first time or again.",
    },
    Meter { name: HOSTS, kind: Kind::Gauge, labels: &[], help: "Hosts of streams that can be heard." },
    Meter {
        name: MISSING,
        kind: Kind::Gauge,
        labels: &[],
        help: "Cores for which the mover of streams found no host with room, in its last round.",
    },
    Meter {
        name: PUSHED,
        kind: Kind::Counter,
        labels: &["fate"],
        help: "Events that were pushed to streams through this manager: taken or unfit.",
    },
    Meter {
        name: HANDED,
        kind: Kind::Counter,
        labels: &["to"],
        help: "Rows of sinks that this manager kept as keys or started flows for: kv, flow, or refused.",
    },
];

pub fn begin() {
    metrics::gauge!(STREAMS).set(0.0);
    metrics::gauge!(HOSTS).set(0.0);
    metrics::gauge!(MISSING).set(0.0);
    metrics::counter!(MOVES).increment(0);
    for state in ["placed", "waiting"] {
        metrics::gauge!(PARTS, "state" => state).set(0.0);
    }
    for fate in ["taken", "unfit"] {
        metrics::counter!(PUSHED, "fate" => fate).increment(0);
    }
    for to in ["kv", "flow", "refused"] {
        metrics::counter!(HANDED, "to" => to).increment(0);
    }
}

pub fn owned(streams: usize, placed: usize, waiting: usize, hosts: usize) {
    metrics::gauge!(STREAMS).set(streams as f64);
    metrics::gauge!(PARTS, "state" => "placed").set(placed as f64);
    metrics::gauge!(PARTS, "state" => "waiting").set(waiting as f64);
    metrics::gauge!(HOSTS).set(hosts as f64);
}

pub fn moved(parts: usize) {
    metrics::counter!(MOVES).increment(parts as u64);
}

pub fn pushed(taken: u64, unfit: u64) {
    metrics::counter!(PUSHED, "fate" => "taken").increment(taken);
    metrics::counter!(PUSHED, "fate" => "unfit").increment(unfit);
}

pub fn handed_over(to: &'static str, rows: usize) {
    metrics::counter!(HANDED, "to" => to).increment(rows as u64);
}

/// What a round asked for.
pub fn missing(cores: f64) {
    metrics::gauge!(MISSING).set(cores);
}
