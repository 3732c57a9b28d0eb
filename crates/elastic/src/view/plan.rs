//! What people see of what the resource manager would do now: the answer of `elastic plan`. Data for the API and its clients.
//!
//! Money is in millionths of whatever prices are in.

use mutirao_core::quantity::Span;
use mutirao_core::{QueueName, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Holder;
use crate::packing::Market;

/// One pass, as it would be now. Nothing of it has been done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// When the figures were taken.
    pub at: Timestamp,
    /// The one that would do it; none while there is none.
    pub holder: Option<Holder>,
    pub queues: Vec<QueuePlan>,
    /// Nodes that were made and would be emptied, to be given back.
    pub empty: Vec<EmptyPlan>,
    /// Nodes that were made and have nobody: given back when that has lasted for a while.
    pub idle: Vec<String>,
    /// What is not done, and why, as far as it concerns no single queue.
    pub held: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueuePlan {
    #[schema(value_type = String)]
    pub queue: QueueName,
    /// Those that are there to stay, and on their way.
    pub standing: u32,
    /// None where nothing can be decided.
    pub wanted: Option<u32>,
    pub because: Option<String>,
    /// Where new workers would be started now.
    pub place: Vec<PlacePlan>,
    /// Nodes that would be made for the others.
    pub make: Vec<MakePlan>,
    /// Who would finish what it has, and go.
    pub drain: Vec<LeavePlan>,
    /// Who would be ended, and what would be forgotten.
    pub end: Vec<LeavePlan>,
    /// What is not done, and why.
    pub held: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacePlan {
    pub node: String,
    pub workers: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MakePlan {
    pub kind: String,
    pub nodes: u32,
    #[schema(value_type = String)]
    pub market: Market,
    /// Of one.
    pub price_micros_per_hour: u64,
    /// Of one, with what would be begun again when it is taken back: by this the kind was chosen.
    pub expected_micros_per_hour: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeavePlan {
    pub worker: WorkerId,
    pub node: Option<String>,
    pub because: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EmptyPlan {
    pub node: String,
    pub workers: u32,
    /// Until the last of them has finished, in the mean.
    #[schema(value_type = String)]
    pub done_in: Span,
    /// Of the price of the node, for as long as a load is taken to stay as it is.
    pub saves_micros: u64,
    /// What is paid for the node until the last has finished.
    pub draining_micros: u64,
    /// What ending them at once would throw away. That is never done.
    pub killing_micros: u64,
    pub because: String,
}
