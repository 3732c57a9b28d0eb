//! What monitors measure.

use mutirao_core::meters::{Kind, Meter};

use crate::series;

const MISSED: &str = "mutirao_monitors_missed_total";
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
];

/// Each reason is there from the start, at zero: what has not happened yet can be asked for too.
pub(crate) fn begin() {
    for why in [NOBODY, FULL, LATE] {
        metrics::counter!(MISSED, "why" => why).increment(0);
    }
}

pub(crate) fn missed(why: &'static str, many: u64) {
    if many > 0 {
        metrics::counter!(MISSED, "why" => why).increment(many);
    }
}
