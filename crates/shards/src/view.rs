//! A shard as people see it, in the API and in `doctor`.

use serde::{Deserialize, Serialize};

use crate::id::{MemberId, ShardId};

/// Who owns a shard, as one member sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ShardView {
    pub group: String,
    pub shard: ShardId,
    /// Nobody when it is between two owners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<MemberId>,
    /// Where its owner answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// How often it has been claimed.
    pub generation: u64,
    /// When it may be taken over unless its owner gives a sign of life. Zero is overdue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}
