//! Whoever has the machines. Few words, so that they fit processes of this machine, machines reached by ssh, scripts,
//! containers, clusters, and clouds that make machines while one waits:
//!
//! - Every call names what it is about, by ids that are never used again, so that a call done twice is done once. A call
//!   whose caller gave up or died may still take effect, within [`CALL_MAX`].
//! - A listing is whole: what is not in it is not there. A provider that cannot say what it has must fail.
//! - A node that is being made is listed as one that does not answer yet.
//! - Every call names the generation of the lease it was decided under. A provider that can refuses a call of an older one
//!   than it has heard of: its caller was frozen, and another acts since.
//!
//! Not here: what is wanted of it ([`queue`](crate::queue), [`nodes`](crate::nodes)).

mod limited;
mod several;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::{QueueName, WorkerId};
use mutirao_elastic::packing::{Kind, Need, NodeName};
use mutirao_elastic::protocol::{OfferedNode, Stands};

pub use limited::Limited;
pub use several::Several;

/// The longest a call to a provider may take. Shorter than a worker must be missing to be believed gone.
pub const CALL_MAX: Duration = Duration::from_secs(10);

pub type Shared = Arc<dyn Provider>;

/// What a provider has at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Have {
    pub nodes: Vec<NodeSeen>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    pub node: OfferedNode,
    pub origin: Origin,
    /// Processes that are there, whether they work or not. Of a node that does not answer, nothing is known.
    pub workers: BTreeMap<WorkerId, QueueName>,
    /// Those whose process ended a short while ago and is not started again, as the node knows for certain. A provider that
    /// cannot tell leaves this empty; then it is waited for whether they come back.
    pub ended: BTreeSet<WorkerId>,
}

/// Whether a node may be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is there anyway.
    Standing,
    /// It was made by [`Provider::create_node`], and costs while it is there.
    Made,
    /// It is not wanted any more, takes nobody, and goes when its workers have gone.
    Leaving,
    /// It cannot be used, or is not: shown for people, and nothing else. Nobody is believed to be on it, and no worker is waited
    /// for that was.
    Away,
    /// No node, but word of a provider, by its name, that does not say what it has. What was last heard of its nodes counts: they are
    /// silent.
    Unsaid,
    /// Its owner said that it is about to be taken back (a spot notice): its workers drain and are replaced elsewhere, and
    /// what they do not finish in time is begun again.
    Taken,
}

impl Origin {
    /// As it is offered.
    pub(crate) fn stands(self) -> Stands {
        match self {
            Origin::Standing => Stands::Anyway,
            Origin::Made => Stands::Made,
            Origin::Taken => Stands::Taken,
            Origin::Leaving | Origin::Away | Origin::Unsaid => Stands::Away,
        }
    }
}

/// One worker to start.
#[derive(Clone)]
pub struct Launch {
    pub worker: WorkerId,
    pub queue: QueueName,
    pub node: NodeName,
    pub need: Need,
    /// It ends itself after this long without a task, should everybody have forgotten it.
    pub idle_end: Duration,
    /// The one-time token with which it makes itself known. A secret: never logged, never in an argument.
    pub invitation: String,
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch").field("worker", &self.worker).field("node", &self.node).finish_non_exhaustive()
    }
}

/// Why a provider did not do what it was asked. It may have been done all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    #[error("{node} is not a node of this provider")]
    NoSuchNode { node: NodeName },
    #[error("{node} does not answer: {why}")]
    Silent { node: NodeName, why: String },
    #[error("{provider} makes no nodes of the kind {kind}")]
    NoSuchKind { provider: String, kind: String },
    #[error("{0}")]
    Refused(String),
    #[error("no answer within {} s", .limit.as_secs())]
    TooLate { limit: Duration },
}

#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// For people.
    fn name(&self) -> &str;

    async fn list(&self, generation: u64) -> Result<Have, ProviderError>;

    /// Has the worker's process started on its node. Yes when it is there already.
    async fn launch(&self, launch: &Launch, generation: u64) -> Result<(), ProviderError>;

    /// Ends the worker's process, by force if need be. Yes when it is not there.
    async fn end(&self, worker: &WorkerId, node: &NodeName, generation: u64) -> Result<(), ProviderError>;

    /// The sorts of nodes that can be had, and how many more of each.
    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError>;

    /// Has a node made. Yes when it is there or on its way. A provider whose nodes have names already may list it by another:
    /// then asking twice is asking for the same.
    async fn create_node(&self, node: &NodeName, kind: &str, generation: u64) -> Result<(), ProviderError>;

    /// Gives a node back. Yes when it is not there.
    async fn remove_node(&self, node: &NodeName, generation: u64) -> Result<(), ProviderError>;
}
