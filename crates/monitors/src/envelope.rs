//! What travels between those who fire monitors and those who check: parcels of checks one way, parcels of outcomes the
//! other. The rules of evolution are those of [`mutirao_core::envelope`].
//!
//! A check carries all that is needed to make it, and the moment after which nobody wants to know any more: it is looked at
//! when the check is taken up, because a late check is worth nothing.

use std::sync::Arc;

use mutirao_core::envelope::Version;
use mutirao_core::{ShardId, Timestamp};
use mutirao_probes::Check;
use serde::{Deserialize, Serialize};

use crate::grid::MonitorKey;
use crate::health::Verdict;

/// Checks of one parcel.
pub const CHECKS_MAX: usize = 200;
/// Outcomes of one parcel.
pub const OUTCOMES_MAX: usize = 500;

/// Where checks of a kind wait.
pub fn checks_of(kind: &str) -> String {
    format!("checks.{kind}")
}

/// Where the owner of a shard hears how they ended.
pub fn outcomes_of(shard: ShardId) -> String {
    format!("results.monitors.{}", shard.0)
}

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
    pub outcomes: Vec<Told>,
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
}
