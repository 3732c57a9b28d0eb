//! What monitors measure.

use mutirao_core::meters::{Kind, Meter};

use crate::crew::Sight;
use crate::series;

const MISSED: &str = "mutirao_monitors_missed_total";
const READY: &str = "mutirao_checks_ready";
const UNDER_WAY: &str = "mutirao_checks_under_way";
const CHECKERS: &str = "mutirao_checkers";
/// Nobody has taken checks of this kind or place for a while.
pub const NOBODY: &str = "nobody";
/// Too many wait for those who make checks.
pub const FULL: &str = "full";
/// It was taken up past its deadline.
pub const LATE: &str = "late";

/// All but those of each monitor, which [`series`] shows itself. The texts are those of the table in docs/operations.md.
pub const METERS: &[Meter] = &[
    Meter {
        name: MISSED,
        kind: Kind::Counter,
        labels: &["why"],
        help: "Checks that were due and not made: nobody takes them (nobody), too many wait (full), or they were taken up too late (late).",
    },
    series::UNNAMED_METER,
    Meter {
        name: READY,
        kind: Kind::Gauge,
        labels: &[],
        help: "Checks that wait for a checker of the pool, in the broker or with one, when the resource manager last asked.",
    },
    Meter {
        name: UNDER_WAY,
        kind: Kind::Gauge,
        labels: &[],
        help: "Checks that checkers of the pool are making, when the resource manager last asked.",
    },
    Meter {
        name: CHECKERS,
        kind: Kind::Gauge,
        labels: &[],
        help: "Checkers of the pool that can be heard, when the resource manager last asked.",
    },
];

/// Each reason is there from the start, at zero: what has not happened yet can be asked for too.
pub(crate) fn begin() {
    for why in [NOBODY, FULL, LATE] {
        metrics::counter!(MISSED, "why" => why).increment(0);
    }
    crew(&Sight::default());
}

pub(crate) fn crew(sight: &Sight) {
    metrics::gauge!(READY).set(sight.tasks.ready as f64);
    metrics::gauge!(UNDER_WAY).set(sight.tasks.running as f64);
    metrics::gauge!(CHECKERS).set(sight.footprints.len() as f64);
}

pub(crate) fn missed(why: &'static str, many: u64) {
    if many > 0 {
        metrics::counter!(MISSED, "why" => why).increment(many);
    }
}
