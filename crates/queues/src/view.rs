//! What is shown of a queue.

use std::collections::BTreeMap;

use mutirao_core::envelope::Footprint;
use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::fleet::Activity;
use mutirao_elastic::measure::Tasks;
use serde::{Deserialize, Serialize};

use crate::spec::QueueSpec;

/// A queue as shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QueueView {
    pub definition: QueueSpec,
    /// Grows with each change. Send it along with a change, and a change by somebody else in between is told.
    pub revision: u64,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    /// Who changed it last.
    pub changed_by: String,
    /// Why the managers cannot read its definition, if so. Then it is held until it is replaced or they are upgraded, and
    /// `definition` says no more than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Absent when whoever looks after the queue did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<QueueLoad>,
}

/// How much a queue has to do, and who is there to do it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QueueLoad {
    /// Tasks that no worker has.
    pub waiting: u64,
    /// Tasks that are with a worker, or on their way to one.
    pub out: u64,
    /// Worker processes that are alive.
    pub workers: u64,
}

/// A queue as its owner sees it, for whoever decides how many workers it gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueSight {
    pub queue: QueueName,
    pub tasks: Tasks,
    /// Its workers that are alive. None while its owner has only just taken over and may not have heard everybody yet.
    pub sessions: Option<BTreeMap<WorkerId, Activity>>,
    /// What those of them use that measure it.
    #[serde(default)]
    pub footprints: BTreeMap<WorkerId, Footprint>,
}
