//! Nodes that run actions and the devices behind them, as people and the API see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// What a node is as one that runs actions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunsView {
    /// What it calls itself: ESP32, Python.
    pub kind: String,
    /// Where it answers HTTP; empty if it does not.
    pub endpoint: String,
    pub actions: Vec<ActionStanding>,
    /// So many that it says it has besides cannot be read, or are of another namespace: `mutirao node rubbish` says why.
    #[serde(default)]
    pub not_understood: u32,
    /// And so many it may not offer, as whoever let it in said.
    #[serde(default)]
    pub not_allowed: u32,
    /// Over what it was heard: here, amqp, mqtt, http.
    pub over: Vec<String>,
    /// registered; unconfirmed: it was before the manager began, and has not said so since; or away: silent for longer than
    /// healthy ones are.
    pub presence: String,
    /// What it showed: `user NAME`, `key ID`, or nothing when it is anonymous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// It showed nothing, and was let in by mqtt.allow_anonymous: anybody could have said what it says.
    pub anonymous: bool,
    /// Tasks that it takes at once, and has.
    pub slots: u32,
    pub in_flight: u32,
    /// What was said by it, or in its name, and refused since the manager that answers began: stolen ids, bad signatures, floods.
    #[serde(default)]
    pub refused: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// Where messages wait for it while it is away; none where nobody keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ActionStanding {
    /// With its version, if it has one.
    pub action: String,
    /// ok, warning (it failed), down (it is spared for a while) or recovering (one task will show).
    pub health: String,
}

/// What waits for a node, and how much may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WaitingView {
    pub connected: bool,
    pub messages: u64,
    pub bytes: u64,
    pub messages_max: u64,
    pub bytes_max: u64,
    pub age_max_ms: u64,
}

/// What a node may say of itself; what is left out is not bounded. The body of `POST /v1/nodes/{node}/invitation`, which may have
/// none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Allowance {
    /// Actions that it may offer; * stands for anything, @2 for one version: blink, meter.*, sum@2
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// The layer that it is in: edge, fog or cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Labels that it may have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Tasks that it may have at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
}

impl Allowance {
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

/// A device to be let in. `POST /v1/devices`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// The user's name that it will show: letters, digits, -, _ and :
    pub name: String,
    /// The node that it speaks for; its own name unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether it may ask for Tasks to be run, and hear what came of them.
    #[serde(default)]
    pub requests: bool,
    /// Topics of its own that it may publish to, with + and #: grid/meter-1/#
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<String>,
    /// Topics of its own that it may hear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribe: Vec<String>,
    /// What it may say of itself. Tasks of actions that nodes with a key offer it gets only if they are named here.
    #[serde(default, skip_serializing_if = "Allowance::is_all")]
    pub may: Allowance,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DeviceView {
    pub name: String,
    pub node: String,
    pub requests: bool,
    #[serde(default)]
    pub publish: Vec<String>,
    #[serde(default)]
    pub subscribe: Vec<String>,
    #[serde(default, skip_serializing_if = "Allowance::is_all")]
    pub may: Allowance,
    pub created_at: Timestamp,
    pub created_by: String,
}

/// The answer to [`DeviceSpec`]: the only time the password is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DeviceCreated {
    #[serde(flatten)]
    pub device: DeviceView,
    pub password: String,
}

/// What was received from nodes and could not be worked with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RubbishView {
    pub at: Timestamp,
    /// Over what, and where: `mqtt mutirao.nodes.register`.
    pub place: String,
    pub who: String,
    pub reason: String,
    /// Its beginning; what is no text is replaced.
    pub body: String,
}

/// The answer to `POST /v1/nodes/{node}/invitation`: with the token the node gives its key, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeInvited {
    pub node: String,
    pub token: String,
    pub expires_at: Timestamp,
}

/// A node gives its key. `POST /v1/node-keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeEnrol {
    pub token: String,
    /// Ed25519, base64.
    pub public_key: String,
}

/// Whose key it is, and how often it has changed its password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeKeyView {
    pub node: String,
    pub changes: u64,
    /// Where it comes in by AMQP with the password that it has just said, if it asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amqp: Option<AmqpPlace>,
}

/// Where a node comes in by AMQP, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AmqpPlace {
    /// Without credentials.
    pub url: String,
    pub user: String,
    /// The exchange on which it speaks, as itself; none: `amq.topic`, of a manager of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<String>,
}

/// A node changes its password: what a manager keeps of it, signed with its key. `PUT /v1/node-keys/{node}/password`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodePassword {
    /// One more than before: what was said once cannot be said again.
    pub change: u64,
    /// Of its id and its password, in hex.
    pub digest: String,
    /// Of its password as RabbitMQ keeps it, base64, to come in there by AMQP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rabbit: Option<String>,
    /// Of [`Self::signed_bytes`], base64.
    pub signature: String,
}

impl NodePassword {
    pub fn signed_bytes(node: &str, change: u64, digest: &str, rabbit: Option<&str>) -> Vec<u8> {
        format!("mutirao node password\n{node}\n{change}\n{digest}\n{}", rabbit.unwrap_or_default()).into_bytes()
    }
}
