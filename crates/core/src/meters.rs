//! What can be measured, as plain data: each crate lists its own, and whoever serves them says so in `HELP` and `TYPE`.
//! Names follow Prometheus: the unit last, `_total` for what only grows. Labels have few values, all known or bounded.

/// Dead letters that were made, counted by whoever makes them.
pub const DEAD_LETTERS_MADE: &str = "mutirao_dead_letters_made_total";

/// How a meter behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often values of which size occurred.
    Histogram,
}

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    pub name: &'static str,
    pub kind: Kind,
    /// Names of its labels. One without labels is there from the start, at zero.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}
