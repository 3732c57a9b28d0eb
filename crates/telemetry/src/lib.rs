//! Spans on their way to a collector, by OTLP over HTTP in JSON.
//!
//! - [`otlp`]: spans as the collector reads them. Pure.
//! - [`exporter`]: gathers spans and sends them, in bounded batches from a bounded queue. What does not fit, or cannot be
//!   sent, is dropped and counted: work never waits for those who watch it.
//!
//! Not here: deciding what is followed (`core::trace`), metrics and logs.

pub mod exporter;
pub mod otlp;

pub use exporter::{Exporter, Settings, TelemetryError};

use mutirao_core::meters::{Kind, Meter};

const SENT: &str = "mutirao_spans_sent_total";
const DROPPED: &str = "mutirao_spans_dropped_total";

/// What is measured here. The texts are those of the table in docs/operations.md.
pub const METERS: &[Meter] = &[
    Meter { name: SENT, kind: Kind::Counter, labels: &[], help: "Spans of traces that the collector has taken." },
    Meter {
        name: DROPPED,
        kind: Kind::Counter,
        labels: &[],
        help: "Spans of traces given up, because too many waited or the collector could not be reached.",
    },
];
