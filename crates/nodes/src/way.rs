//! How words reach nodes: one way for each protocol that is open here.

use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::Problem;
use mutirao_core::node::AmqpPlace;
use tokio_util::sync::CancellationToken;

use crate::names::NodeId;
use crate::preference::Protocol;
use crate::registry::{Presence, Record};

/// Why a message did not get on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotGiven {
    /// This way does not reach it now; another may.
    Unreachable(String),
    /// It does not fit this way. That says nothing of the node, nor of other ways.
    TooLong(String),
    /// There is no room on our side. That says nothing of the node, and counts against it nowhere.
    NoRoom(String),
}

/// Where an answer is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// With whoever listens for it, or where it lies until somebody does.
    Safe,
    /// Somebody may listen here later.
    NobodyListens,
    /// Clients never look here.
    NotHere,
}

/// A message for one node.
#[derive(Clone, Copy, Debug)]
pub struct Parcel<'a> {
    pub to: &'a Record,
    pub text: &'a str,
    /// After this nobody waits for what comes of it any more.
    pub wanted_for: Duration,
    /// Nor once this is cancelled, which may be long after it was given.
    pub given_up: &'a CancellationToken,
}

/// What a node was given and has not answered, over whatever it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    pub messages: usize,
    pub bytes: usize,
}

#[async_trait]
pub trait Way: Send + Sync + 'static {
    fn protocol(&self) -> Protocol;

    /// Sends a message to one node. Back as soon as it is on its way, or waits for the node within a bound.
    async fn give(&self, parcel: Parcel<'_>) -> Result<(), NotGiven>;

    /// Tells everybody that we are here. Best effort: the next comes soon.
    async fn beat(&self, text: &str);

    /// Puts an answer where clients look for it, or this one does.
    async fn answer(&self, text: &str, client: Option<&str>) -> Result<Told, Problem>;

    /// What waits for a node that is away, if this way keeps it.
    fn waiting(&self, _node: &Record, _presence: Presence, _out: Outstanding) -> Option<Waits> {
        None
    }

    /// Its rights were taken away.
    fn expel(&self, _device: &str) {}
}

/// Gives nodes that have a key users of a broker.
#[async_trait]
pub trait Users: Send + Sync + 'static {
    /// It can come in with the password of this hash, and no other. Why not, in a line.
    async fn admit(&self, node: &NodeId, hash: &str) -> Result<AmqpPlace, String>;

    /// It is cut off, and does not come in again.
    async fn dismiss(&self, node: &NodeId) -> Result<(), String>;

    /// Those that can come in.
    async fn admitted(&self) -> Result<Vec<NodeId>, String>;
}

/// What waits for a node, and how much may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Where that can be seen; at RabbitMQ, whether it was heard of lately.
    pub connected: bool,
    pub messages: usize,
    pub bytes: usize,
    pub messages_max: usize,
    pub bytes_max: usize,
    pub age_max_ms: u64,
}
