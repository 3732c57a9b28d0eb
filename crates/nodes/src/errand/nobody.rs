//! Why a task waits that no node can be given, for people who ask: what it lacks, of the node that lacks least.

use std::collections::BTreeMap;
use std::fmt;

use crate::Layer;
use crate::names::{ActionName, NodeId};
use crate::routing::{Overflow, Place};

/// Why no node can be given a task at the moment, for people who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nobody {
    /// No node has the action.
    HasIt(ActionName),
    /// This one was asked for by its id, and is none.
    IsCalled { asked: NodeId, near: Option<NodeId> },
    /// This one was asked for by its id, and does not have the action.
    There { asked: NodeId, action: ActionName },
    /// It has the action, and says something else of itself than was asked for; or nothing.
    Says { node: NodeId, action: ActionName, label: String, is: Option<String>, asked: String },
    /// It has the action, in a layer that was not asked for.
    InLayer { node: NodeId, action: ActionName, is: Layer, asked: Layer },
    /// It has the action and is what was asked for, but not now.
    Now { node: NodeId, action: ActionName, why: &'static str, others: usize },
    /// Those that have it and are there could not be given this message.
    CanRead(ActionName),
}

impl fmt::Display for Nobody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HasIt(action) => write!(f, "no node has {action}"),
            Self::IsCalled { asked, near: None } => write!(f, "there is no node {asked}"),
            Self::IsCalled { asked, near: Some(near) } => {
                write!(f, "there is no node {asked}; did you mean {near}?")
            }
            Self::There { asked, action } => write!(f, "{asked} does not have {action}"),
            Self::Says { node, action, label, is: Some(is), asked } => {
                write!(f, "{node} has {action}, but its {label} is {is} and not {asked}")
            }
            Self::Says { node, action, label, is: None, asked } => {
                write!(f, "{node} has {action}, but no {label}, which is to be {asked}")
            }
            Self::InLayer { node, action, is, asked } => {
                let (is, asked) = (word(*is), word(*asked));
                write!(f, "nobody in {asked}, or where it may go from there, has {action}; {node} in {is} does")
            }
            Self::Now { node, action, why, others: 0 } => write!(f, "{node} has {action}, but {why}"),
            Self::Now { node, action, why, others } => {
                write!(f, "{node} has {action}, but {why}, and so it is with {others} more")
            }
            Self::CanRead(action) => write!(f, "no node that is there and has {action} can be given so long a message"),
        }
    }
}

fn word(layer: Layer) -> &'static str {
    match layer {
        Layer::Edge => "edge",
        Layer::Fog => "fog",
        Layer::Cloud => "cloud",
    }
}

/// A node, as far as it matters to a task.
pub struct Had<'a> {
    pub node: &'a NodeId,
    pub layer: Layer,
    pub labels: &'a BTreeMap<String, String>,
    pub has_it: bool,
    /// Why it is given nothing at the moment.
    pub not_now: Option<&'static str>,
}

impl Nobody {
    /// None: somebody can be given it, or could if there were room. Of several that lack something, the one that lacks least.
    pub fn of(action: &ActionName, place: &Place, all: &[Had<'_>]) -> Option<Self> {
        let action = || action.clone();
        let asked_for = |one: &&Had<'_>| place.node.as_ref().is_none_or(|asked| asked == one.node);
        if let Some(asked) = &place.node
            && !all.iter().any(|one| one.node == asked)
        {
            let near = all.iter().map(|one| (strsim::damerau_levenshtein(asked.as_str(), one.node.as_str()), one.node));
            let near = near.min().filter(|(far, _)| *far <= 1 + asked.as_str().chars().count() / 3);
            return Some(Self::IsCalled { asked: asked.clone(), near: near.map(|(_, node)| node.clone()) });
        }
        let have_it: Vec<&Had<'_>> = all.iter().filter(asked_for).filter(|one| one.has_it).collect();
        let Some(first) = have_it.first() else {
            return Some(match &place.node {
                Some(asked) => Self::There { asked: asked.clone(), action: action() },
                None => Self::HasIt(action()),
            });
        };
        let other = |one: &Had<'_>| place.labels.iter().find(|(label, asked)| one.labels.get(*label) != Some(*asked));
        let labelled: Vec<&Had<'_>> = have_it.iter().copied().filter(|one| other(one).is_none()).collect();
        if labelled.is_empty() {
            let (label, asked) = other(first)?;
            let is = first.labels.get(label).cloned();
            let (node, label, asked) = (first.node.clone(), label.clone(), asked.clone());
            return Some(Self::Says { node, action: action(), label, is, asked });
        }
        let in_layer = |one: &&&Had<'_>| place.node.is_some() || place.takes(one.layer);
        let there: Vec<&Had<'_>> = labelled.iter().filter(in_layer).copied().collect();
        if let (Some(one), [], Some(asked)) = (labelled.first(), &there[..], place.layer) {
            return Some(Self::InLayer { node: one.node.clone(), action: action(), is: one.layer, asked });
        }
        if there.iter().any(|one| one.not_now.is_none()) {
            return None;
        }
        let one = there.first()?;
        let (why, others) = (one.not_now?, there.len() - 1);
        Some(Self::Now { node: one.node.clone(), action: action(), why, others })
    }
}

impl Place {
    /// Whether a node of this layer may be given what is to run here.
    fn takes(&self, layer: Layer) -> bool {
        let distance = |layer: Layer| match layer {
            Layer::Edge => 0,
            Layer::Fog => 1,
            Layer::Cloud => 2,
        };
        self.layer.is_none_or(|asked| match self.overflow {
            Overflow::Never => layer == asked,
            Overflow::Next => distance(layer) >= distance(asked),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(json: serde_json::Value) -> Place {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn why_nobody_can_be_given_a_task_is_said_as_it_is() {
        let action: ActionName = "urn:mutirao:Action:shop.work".parse().unwrap();
        let names: [NodeId; 3] = ["gate-7", "gate-9", "meter-1"].map(|name| name.parse().unwrap());
        let north = BTreeMap::from([("zone".to_owned(), "north".to_owned())]);
        let (none, away) = (BTreeMap::new(), Some("it is away"));
        let had = |n: usize, has_it, not_now| {
            let (layer, labels) = if n == 2 { (Layer::Edge, &none) } else { (Layer::Fog, &north) };
            Had { node: &names[n], layer, labels, has_it, not_now }
        };
        let said = |place_of: serde_json::Value, all: &[Had<'_>]| {
            Nobody::of(&action, &place(place_of), all).map(|why| why.to_string().replace("urn:mutirao:Action:", ""))
        };
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let one = [had(0, true, None), had(2, false, None)];
        for (asked, why) in [
            ("{}", None),
            (r#"{"layer": "edge"}"#, None),
            (r#"{"node": "gate-7", "layer": "cloud"}"#, None),
            (r#"{"node": "gate-8"}"#, Some("there is no node gate-8; did you mean gate-7?")),
            (r#"{"node": "elsewhere"}"#, Some("there is no node elsewhere")),
            (r#"{"node": "meter-1"}"#, Some("meter-1 does not have shop.work")),
            (r#"{"labels": {"zone": "south"}}"#, Some("gate-7 has shop.work, but its zone is north and not south")),
            (r#"{"labels": {"hall": "2"}}"#, Some("gate-7 has shop.work, but no hall, which is to be 2")),
        ] {
            assert_eq!(said(json(asked), &one).as_deref(), why, "{asked}");
        }
        for asked in [r#"{"layer": "edge", "overflow": "never"}"#, r#"{"layer": "cloud"}"#] {
            let why = said(json(asked), &one).unwrap();
            assert!(why.starts_with("nobody in ") && why.ends_with("gate-7 in fog does"), "{why}");
        }
        assert_eq!(said(json("{}"), &[had(2, false, None)]).as_deref(), Some("no node has shop.work"));
        let gone = [had(0, true, away), had(1, true, away), had(2, false, None)];
        let why = "gate-7 has shop.work, but it is away, and so it is with 1 more";
        assert_eq!(said(json("{}"), &gone).as_deref(), Some(why));
        assert_eq!(said(json(r#"{"node": "gate-7"}"#), &gone).as_deref(), Some("gate-7 has shop.work, but it is away"));
    }
}
