//! What travels between those who fire monitors and those who check: parcels of checks one way, parcels of outcomes the
//! other. The rules of evolution are those of [`mutirao_core::envelope`].
//!
//! A check carries all that is needed to make it, and the moment after which nobody wants to know any more: it is looked at
//! when the check is taken up, because a late check is worth nothing.

use std::sync::Arc;

use mutirao_core::check::OUTCOMES;
use mutirao_core::envelope::{Footprint, Version};
use mutirao_core::{ShardId, Timestamp, WorkerId};
use mutirao_probes::Check;
use serde::{Deserialize, Serialize};

use crate::grid::MonitorKey;
use crate::health::Verdict;
use crate::placement::Place;

/// Checks of one parcel. It is acknowledged when all of them are made, so the fewer the sooner.
pub const CHECKS_MAX: usize = 50;
/// Outcomes of one parcel.
pub const OUTCOMES_MAX: usize = 500;

/// Where the owner of a shard hears how they ended.
pub fn outcomes_of(shard: ShardId) -> String {
    format!("{OUTCOMES}{}", shard.0)
}

/// Where owners hear that definitions of monitors have changed.
pub const CHANGES: &str = "changes.monitors";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checks {
    #[serde(default)]
    pub v: Version,
    pub shard: u32,
    pub checks: Vec<Ask>,
}

/// One check of one instant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ask {
    pub monitor: MonitorKey,
    pub at: Timestamp,
    /// Not begun after this.
    pub until: Timestamp,
    pub timeout_ms: u64,
    #[serde(default)]
    pub retries: u32,
    pub check: Arc<Check>,
    #[serde(default)]
    pub when: Arc<Vec<String>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcomes {
    #[serde(default)]
    pub v: Version,
    /// In whose name. Those of a manager's own checker have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    pub outcomes: Vec<Told>,
    /// Checks that were taken up too late, and not made.
    #[serde(default)]
    pub missed: u32,
    /// How the checker itself is doing; to the first shard only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulse: Option<Pulse>,
}

/// How a checker is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulse {
    /// By the checker's clock.
    pub at: Timestamp,
    pub under_way: u32,
    /// Taken, and not begun.
    pub waiting: u32,
    /// How late checks begin that begin now.
    pub late_ms: u64,
    /// Parcels taken since it began, and the checks in them.
    pub parcels: u64,
    pub checks: u64,
    #[serde(default)]
    pub footprint: Footprint,
}

/// Where every manager hears how checkers are doing: whoever owns the first shard passes it on.
pub const CREW: &str = "crew.checkers";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Crewed {
    #[serde(default)]
    pub v: Version,
    pub pulses: Vec<(WorkerId, Pulse)>,
}

/// Managers → checkers, by fanout: checks are wanted in these places.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Places {
    #[serde(default)]
    pub v: Version,
    pub places: Vec<Place>,
    /// These are to take nothing more, make what they have taken, and go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rest: Vec<WorkerId>,
}

/// Whoever changed definitions → owners, by fanout: look what has changed in this shard.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Changed {
    #[serde(default)]
    pub v: Version,
    pub shard: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub monitor: MonitorKey,
    pub at: Timestamp,
    pub verdict: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Of the certificate that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_days: Option<i64>,
}

impl Outcomes {
    /// With nothing in it yet.
    pub fn of(worker: Option<WorkerId>) -> Self {
        Self { v: Version::default(), worker, outcomes: Vec::new(), missed: 0, pulse: None }
    }
}
