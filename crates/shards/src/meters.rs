//! What ownership measures.

use mutirao_core::meters::{Kind, Meter};

pub const OWNED: &str = "mutirao_shards_owned";

/// The text is that of the table in docs/operations.md.
pub const METERS: &[Meter] = &[Meter {
    name: OWNED,
    kind: Kind::Gauge,
    labels: &["group"],
    help: "Shards that this manager owns, by what they are shares of.",
}];
