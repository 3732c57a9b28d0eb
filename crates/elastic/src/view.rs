//! What people see of elasticity: the answers of `elastic status`, `elastic history`, `elastic plan` and `node …`. Data for the
//! API and its clients, nothing is decided here.

mod plan;

use std::collections::BTreeMap;

use mutirao_core::{QueueName, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fleet::Life;
use crate::packing::Layer;
use crate::protocol::Wish;
pub use plan::{EmptyPlan, LeavePlan, MakePlan, PlacePlan, Plan, QueuePlan};

/// How all of it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElasticStatus {
    /// The one resource manager that acts, or was the last to; none while there is none.
    pub holder: Option<Holder>,
    /// Resource managers that give signs of life, or did lately.
    pub members: u32,
    /// Those with an elastic policy, and those that still have workers of a former one.
    pub queues: Vec<QueueStatus>,
    /// None where there can be but one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managers: Option<ManagersStatus>,
}

/// How many managers there are, and should be by the cpu that they use. Nobody starts them but people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ManagersStatus {
    pub running: u32,
    pub wanted: u32,
    /// Millicores of each that has been there for some seconds.
    pub cpu_milli: BTreeMap<String, u32>,
    pub because: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    pub member: String,
    /// Where it says it is.
    pub address: Option<String>,
    pub generation: u64,
    /// Set once it has not been heard for longer than its lease lasts: it does not act, and nobody has taken over yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueStatus {
    #[schema(value_type = String)]
    pub queue: QueueName,
    /// None when it has no elastic policy any more.
    pub min: Option<u32>,
    pub max: Option<u32>,
    /// None before the first decision.
    pub wanted: Option<u32>,
    pub creating: u32,
    pub running: u32,
    pub draining: u32,
    pub decided_at: Option<Timestamp>,
    /// The last decision, with its figures.
    pub because: Option<String>,
    /// The provider's, in one line.
    pub trouble: Option<String>,
}

/// One change of how many are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryLine {
    #[schema(value_type = String)]
    pub queue: QueueName,
    pub at: Timestamp,
    pub from: u32,
    pub to: u32,
    pub because: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    pub name: String,
    pub provider: String,
    /// By resource: `cpu_milli`, `memory_bytes`, and whatever else it has.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub capacity: crate::packing::Amounts,
    pub labels: BTreeMap<String, String>,
    #[schema(value_type = String)]
    pub layer: Layer,
    /// Whether its agent answered when it was last offered.
    pub answers: bool,
    /// Why it takes nobody, in a few words, where its provider knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What people want of it: open, cordoned or drained.
    #[schema(value_type = String)]
    pub wish: Wish,
    /// When a resource manager last offered it; none when it is gone.
    pub offered_at: Option<Timestamp>,
    /// The workers recorded on it.
    pub workers: Vec<NodeWorker>,
    /// What it is as one that runs actions; none for one that only carries workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<mutirao_core::node::RunsView>,
}

impl NodeView {
    /// Of nodes that no provider offers: they came by themselves.
    pub const ITSELF: &'static str = "itself";
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeWorker {
    pub worker: WorkerId,
    #[schema(value_type = String)]
    pub queue: QueueName,
    #[schema(value_type = String)]
    pub life: Life,
    pub since: Timestamp,
}

/// All that is known of one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerDetail {
    pub worker: WorkerId,
    #[schema(value_type = String)]
    pub queue: QueueName,
    /// Its processes that are alive.
    pub sessions: Vec<mutirao_core::job::WorkerView>,
    /// The resource manager's record; none for one that it did not start.
    pub record: Option<WorkerRecord>,
    /// Set when nothing is handed to it any more.
    pub draining: Option<DrainView>,
    /// Its owner did not answer: its processes may be alive and missing here.
    pub unheard: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerRecord {
    #[schema(value_type = String)]
    pub life: Life,
    pub since: Timestamp,
    pub node: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainView {
    pub since: Timestamp,
    /// Who asked for it.
    pub by: String,
}
