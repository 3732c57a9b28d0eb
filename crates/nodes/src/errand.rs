//! The seam between whoever has tasks (flows) and whoever reaches nodes: what is asked of a node, where it went, and what
//! came back. Whoever has tasks gives a [`Reach`] errands and is given, as a [`Taker`], what nodes and clients say.

mod nobody;

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::Problem;
pub use nobody::{Had, Nobody};
use serde::{Deserialize, Serialize};

use crate::Layer;
use crate::names::{ActionName, NodeId};
use crate::preference::Protocol;
use crate::routing::{Ended, Place};
use crate::wire::{Parameters, TaskRequest};

/// A task for some node.
#[derive(Clone, Debug)]
pub struct Errand {
    /// By what its result will be known.
    pub request: String,
    pub action: ActionName,
    /// JSON as a text.
    pub data: String,
    pub place: Place,
    pub timeout: Duration,
    /// Where it was just tried in vain.
    pub not: Option<NodeId>,
}

/// Where an errand went, and why there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    pub node: NodeId,
    pub layer: Layer,
    pub over: Protocol,
    /// For people who ask.
    pub why: String,
}

/// Nobody has it, and nobody will answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    #[error("{0}")]
    Nobody(Nobody),
    #[error("every node that has it is full")]
    Full,
    /// It was chosen, and could not be reached over anything it speaks. That counts against it already.
    #[error("{node} could not be reached: {why}")]
    Unreachable { node: NodeId, why: String },
    /// No node could take it, now or later.
    #[error("{0}")]
    Impossible(String),
}

/// What a node gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    pub request: String,
    pub end: End,
    /// Who said so, if that is known.
    pub node: Option<NodeId>,
}

/// How a task ended, as its node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// JSON as a text, or any other text.
    Ok(String),
    /// Why, in a line.
    Failed(String),
}

/// Reaches nodes.
#[async_trait]
pub trait Reach: Send + Sync {
    /// Chooses a node and sends it there; back as soon as it is on its way. What comes of it goes to the [`Taker`].
    async fn send(&self, errand: Errand) -> Result<Gone, NotSent>;

    /// Of an errand that was sent, told once: `Well` or `Badly` when a result came or time ran out, `Recalled` when nobody
    /// wants to know any more.
    fn ended(&self, request: &str, how: Ended);

    /// Puts an answer where clients of the wire look for it; of whom it is known who asked, where only that one does, if
    /// clients can be told apart there.
    async fn answer(&self, text: String, client: Option<&str>) -> Result<(), Problem>;

    /// Every action that somebody has, also somebody who is away.
    fn catalogue(&self) -> BTreeSet<ActionName>;

    /// Why no node can be given such a task at the moment. None: one can, or nobody knows.
    fn nobody(&self, _action: &ActionName, _place: &Place) -> Option<Nobody> {
        None
    }

    /// What those who have an action declare of it: how long a try may take, and how many more there are. None: nothing.
    fn parameters(&self, _action: &ActionName) -> Option<Parameters> {
        None
    }
}

/// Has tasks, and takes what comes back.
#[async_trait]
pub trait Taker: Send + Sync {
    /// Ok: it is safe with us, and may be acknowledged to whoever brought it. A failure is worth another try.
    async fn returned(&self, returned: Returned) -> Result<(), Problem>;

    /// A client asks for a Task to be run; which, if they can be told apart where it asked. Ok: it is durable. A refusal (4xx)
    /// goes to dead letters, anything else is worth another try.
    async fn asked(&self, task: TaskRequest, client: Option<&str>) -> Result<(), Problem>;

    /// A node is away: what it had will not be answered.
    fn lost(&self, node: &NodeId);
}
