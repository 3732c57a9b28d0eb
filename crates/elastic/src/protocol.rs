//! What the resource manager and the manager say to each other: the three protocols as data. The resource manager is a
//! client of the API and nothing else. It has no database and no broker; each of its requests is signed with its Ed25519
//! key. The manager keeps everything that must outlive a resource manager.
//!
//! | request | body → answer | |
//! |---|---|---|
//! | `POST /v1/elastic/lease` | [`LeaseCall`] → [`LeaseAnswer`] | who is the one that acts |
//! | `GET /v1/elastic/balance` | → [`Balance`] | **balance check**: every elastic queue, its load, its workers, what was kept |
//! | `POST /v1/elastic/queues/{queue}/workers` | [`Create`] → [`Created`] | **creation**: identities, and their records, in one step |
//! | `POST /v1/elastic/workers/{worker}/invitation` | [`Fenced`] → [`Invitation`] | the one-time token to launch it with, again if need be |
//! | `POST /v1/elastic/workers/{worker}/drain` | [`Fenced`] → nothing | **removal**: nothing more is handed to it |
//! | `PUT /v1/elastic/queues/{queue}` | [`Record`] → nothing | what was decided and done |
//! | `PUT /v1/elastic/offer` | [`Offer`] → nothing | the nodes there are, and those that could be had |
//!
//! **Fencing.** Whatever changes something names the generation of the lease it was decided under. An older one than the
//! store's is refused with 409 `not_the_owner`, in the transaction of the change, so that two never act at once, also when
//! one of them was frozen in between.
//!
//! **Twice is once.** `Create` names a request; asked again with the same name it gives the same workers. Draining again,
//! and writing the same record again, change nothing. An invitation replaces the one before.
//!
//! Reading is tolerant: fields that are not known are passed over, so that old and new ones understand each other.

use std::collections::BTreeMap;

use mutirao_core::{QueueName, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use crate::decide::{Change, Decision, State};
use crate::fleet::{Activity, Fleet, Member, Trouble};
use crate::measure::Load;
use crate::packing::{Amounts, Kind, Labels, Layer, Need, NodeName};
use crate::policy::Elastic;

/// The group of shards whose one shard the active resource manager owns.
pub const GROUP: &str = "elastic";
/// Queues in one [`Balance`], and nodes in one [`Offer`].
pub const QUEUES_MAX: usize = 10_000;
pub const NODES_MAX: usize = 10_000;
/// Workers of one [`Create`].
pub const CREATE_MAX: u32 = 100;
/// Lines of history in one [`Record`].
pub const CHANGES_MAX: usize = 100;

/// The calls of `shards::ShardStore` for [`GROUP`], one to one. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum LeaseCall {
    Found { count: u32 },
    Beat { member: String, address: String },
    Forget { member: String, beats: Option<u64> },
    Members,
    Leases,
    Claim { shard: u32, generation: u64, beats: u64, member: String, lease_ms: u64 },
    Renew { member: String, held: Vec<(u32, u64)> },
    Release { member: String, shard: u32, generation: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum LeaseAnswer {
    Done,
    Count { count: u32 },
    Members { members: Vec<MemberSeen> },
    Leases { leases: Vec<LeaseSeen> },
    Claimed { generation: Option<u64> },
    Renewed { shards: Vec<u32> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSeen {
    pub member: String,
    pub address: String,
    pub beats: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSeen {
    pub shard: u32,
    pub owner: Option<String>,
    pub generation: u64,
    pub beats: u64,
    pub lease_ms: u64,
}

/// The state of everything that is elastic, in one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    pub at: Timestamp,
    /// Those with an elastic policy, and those that still have workers of a former one.
    pub queues: Vec<QueueBalance>,
    pub nodes: Vec<NodeRecord>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueBalance {
    pub queue: QueueName,
    /// None once the queue is deleted or has no elastic policy any more: then none are wanted.
    pub elastic: Option<Elastic>,
    /// What each of its workers takes of a node.
    pub need: Need,
    /// Its figures. Without [`tasks`](Load::tasks) when its owner could not be asked.
    pub load: Load,
    /// Those with a live session. None while its owner has only just taken over and may not have heard everybody yet:
    /// nothing may be concluded then, and the pass leaves this queue alone.
    pub sessions: Option<BTreeMap<WorkerId, Activity>>,
    /// What was kept with the last [`Record`].
    #[serde(default)]
    pub state: State,
    #[serde(default)]
    pub fleet: Fleet,
}

/// A node as the last offer said it, and what people want of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    #[serde(flatten)]
    pub node: OfferedNode,
    pub wish: Wish,
}

/// What was asked of a node by `node cordon|uncordon|drain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    #[default]
    Open,
    /// Takes no new workers.
    Cordoned,
    /// Takes none, and those it has are drained and replaced elsewhere.
    Drained,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    pub generation: u64,
    /// Names this request among those of this generation.
    pub request: String,
    /// Where each of them goes.
    pub nodes: Vec<NodeName>,
    /// What each of them was given of its node: kept, so that a changed definition does not change the past.
    #[serde(default)]
    pub need: Option<Amounts>,
}

/// In the order of [`Create::nodes`]. Their records (asked for, on these nodes) are in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    pub workers: Vec<WorkerId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fenced {
    pub generation: u64,
}

/// A secret: never logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    pub token: String,
    pub expires_at: Timestamp,
}

/// What to keep of one pass over one queue. Written before the provider is asked for anything that it tells of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub generation: u64,
    pub state: State,
    /// Members to write, by id; the others stay.
    #[serde(default)]
    pub members: BTreeMap<WorkerId, Member>,
    /// Members that are gone. Their identities are revoked.
    #[serde(default)]
    pub gone: Vec<WorkerId>,
    /// Members that are let in no more: no provider here can end them, so they are to go by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dismissed: Vec<WorkerId>,
    /// The provider's, if it is in any; shown by `elastic status`.
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// For `elastic status` and `queue explain`.
    pub decision: Decision,
    /// For `elastic history`.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// What the providers have and could have, whole: what is not in it is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    pub generation: u64,
    pub nodes: Vec<OfferedNode>,
    pub kinds: Vec<Kind>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedNode {
    pub name: NodeName,
    pub provider: String,
    /// The [`Kind`] that it was made as, by name: what it costs. None of those that are there anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub capacity: Amounts,
    #[serde(default)]
    pub labels: Labels,
    pub layer: Layer,
    /// Whether its agent answers.
    pub answers: bool,
    /// Why it takes nobody, in a few words, where its provider knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Put in when it is offered; none from a version that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands: Option<Stands>,
}

/// What may be done with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stands {
    /// It is there anyway.
    Anyway,
    /// It was made, or is being made, and can be given back.
    Made,
    /// It is about to be taken back.
    Taken,
    /// It is not there for anybody.
    Away,
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invitation").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_one_says_is_understood() {
        let said = r#"{"call":"claim","shard":0,"generation":3,"beats":9,"member":"m","lease_ms":15000,"later":1}"#;
        let claim = LeaseCall::Claim { shard: 0, generation: 3, beats: 9, member: "m".into(), lease_ms: 15_000 };
        assert_eq!(serde_json::from_str::<LeaseCall>(said).unwrap(), claim);
        let node = r#"{"name":"n1","provider":"local","capacity":{"cpus":2000},"layer":"cloud","answers":true,"wish":"cordoned","mood":"good"}"#;
        let node: NodeRecord = serde_json::from_str(node).unwrap();
        assert_eq!((node.node.name.0.as_str(), node.wish), ("n1", Wish::Cordoned));
    }

    #[test]
    fn an_invitation_keeps_its_secret() {
        let invitation = Invitation { token: "hush".into(), expires_at: Timestamp(1) };
        assert!(!format!("{invitation:?}").contains("hush"));
    }
}
