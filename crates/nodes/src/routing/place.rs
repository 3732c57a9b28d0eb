//! Where a task is to run, who could run it, and what was chosen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Layer;
use crate::names::NodeId;

/// Where a task is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Here first; with none, as near to the devices as can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// On this one and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// What to do when the layer is full or down.
    #[serde(default, skip_serializing_if = "Overflow::is_next")]
    pub overflow: Overflow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// Go to the next layer.
    #[default]
    Next,
    /// Wait for this one.
    Never,
}

impl Overflow {
    fn is_next(&self) -> bool {
        *self == Self::Next
    }
}

impl Place {
    pub(super) fn layers(&self) -> &'static [Layer] {
        const ALL: [Layer; 3] = [Layer::Edge, Layer::Fog, Layer::Cloud];
        let Some(layer) = self.layer else { return &ALL };
        let from = ALL.iter().position(|one| *one == layer).unwrap_or(0);
        if self.overflow == Overflow::Never { &ALL[from..=from] } else { &ALL[from..] }
    }
}

/// A node that has the action.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub node: NodeId,
    pub layer: Layer,
    pub labels: BTreeMap<String, String>,
    /// How many tasks it takes at once.
    pub slots: u32,
    /// Of the action, as it has it.
    pub version: u32,
}

/// A task on its way to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub ticket: Ticket,
    pub node: NodeId,
    pub layer: Layer,
    pub why: Why,
    /// Layers that were full or down.
    pub passed_over: Vec<Layer>,
}

/// Why this node, for people who ask.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// The only one that could.
    Only,
    /// It was spared, and is tried again.
    Probe,
    Sooner {
        cost_ms: f64,
        than: NodeId,
        its_cost_ms: f64,
    },
    ItsTurn,
    /// It fails, but so do the others.
    LeastBad,
}

/// Why none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNode {
    #[error("no node that is there has the action and fits the place")]
    Nobody,
    #[error("every node that could has as much as it takes at once")]
    Full,
}

/// How a task ended on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Well,
    Badly,
    /// Nobody's fault: it was called back.
    Recalled,
}
