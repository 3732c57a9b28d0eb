//! Which nodes there are for new workers, what is free on them, and which of those that were made can be given back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::packing::consolidating::Emptied;
use mutirao_elastic::packing::sharing::{Party, Shares, share};
use mutirao_elastic::packing::{Amounts, Door, Kind, Need, NoPlace, Node, NodeName, Place, pack};
use mutirao_elastic::protocol::{Balance, Wish};

use crate::provider::{Have, Origin};

/// How long a node that was made stays empty before it is given back: longer than load that comes in waves pauses.
pub const EMPTY_FOR: Duration = Duration::from_secs(120);
/// How long one that is being made may take before it is given back unused: a machine boots, a program is copied.
pub const COMING_FOR: Duration = Duration::from_secs(1_200);

/// The nodes of one pass, filled as it goes on.
pub struct Rooms {
    nodes: Vec<Node>,
    kinds: Vec<Kind>,
    /// Nodes that are being made: there is room, and nobody to fill it yet.
    coming: BTreeSet<NodeName>,
    /// Room that is set aside.
    shares: Shares,
    /// What a task of a queue takes in the mean, where it is known.
    takes: BTreeMap<QueueName, Duration>,
}

/// Where workers of one queue go.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Placed {
    pub nodes: Vec<NodeName>,
    /// Kinds of nodes to have made for the rest.
    pub make: Vec<String>,
    /// Why some have no place, in words.
    pub without: Option<String>,
}

impl Rooms {
    pub fn of(have: &Have, balance: &Balance, kinds: Vec<Kind>) -> Self {
        let wishes: BTreeMap<&NodeName, Wish> = balance.nodes.iter().map(|r| (&r.node.name, r.wish)).collect();
        let mut used: BTreeMap<&NodeName, Amounts> = BTreeMap::new();
        for queue in &balance.queues {
            for member in queue.fleet.members.values() {
                let Some(node) = &member.node else { continue };
                let taken = used.entry(node).or_default();
                *taken = taken.plus(member.need.as_ref().unwrap_or(&queue.need.amounts));
            }
        }
        let node = |seen: &crate::NodeSeen| {
            let open = wishes.get(&seen.node.name).copied().unwrap_or_default() == Wish::Open;
            let usable = match seen.origin {
                Origin::Standing => seen.node.answers,
                Origin::Made => true,
                Origin::Leaving | Origin::Taken | Origin::Away | Origin::Unsaid => false,
            };
            Node {
                name: seen.node.name.clone(),
                capacity: seen.node.capacity.clone(),
                used: used.get(&seen.node.name).cloned().unwrap_or_default(),
                labels: seen.node.labels.clone(),
                layer: seen.node.layer,
                door: if open && usable { Door::Open } else { Door::Cordoned },
            }
        };
        // A node that people closed before it was made stays unmade.
        let closed = |kind: &Kind| wishes.get(&NodeName(kind.name.clone())).is_some_and(|wish| *wish != Wish::Open);
        let kinds = kinds.into_iter().filter(|kind| !closed(kind)).collect();
        let coming = have.nodes.iter().filter(|n| !n.node.answers && n.origin == Origin::Made);
        let known = balance.queues.iter().filter_map(|q| Some((q.queue.clone(), q.state.task_takes()?)));
        Self {
            takes: known.collect(),
            coming: coming.map(|n| n.node.name.clone()).collect(),
            nodes: have.nodes.iter().map(node).collect(),
            kinds,
            shares: Shares::default(),
        }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node is being made: somebody waits for it.
    pub fn is_growing(&self) -> bool {
        !self.coming.is_empty()
    }

    /// These take nobody new.
    pub fn close(&mut self, emptied: &Emptied) {
        let closed = self.nodes.iter_mut().filter(|node| emptied.contains_key(&node.name));
        closed.for_each(|node| node.door = Door::Cordoned);
    }

    /// Sets room aside for those who come first. Says which idle workers are to go for it.
    pub fn share(&mut self, parties: &[Party], leaving: &[(NodeName, Amounts)]) -> BTreeSet<WorkerId> {
        self.shares = share(parties, &mut self.nodes, &self.kinds, leaving);
        std::mem::take(&mut self.shares.yielding)
    }

    /// Takes room for up to `count` workers, first what was set aside for them. What waits for a node that is coming is not
    /// placed, and not said to be without a place.
    pub fn place(&mut self, queue: &QueueName, need: &Need, count: u32) -> Placed {
        let mut aside = self.shares.places.remove(queue).unwrap_or_default();
        aside.truncate(count as usize);
        let rest = count - u32::try_from(aside.len()).unwrap_or(count);
        let mut placed = self.pack(need, rest, self.takes.get(queue).copied());
        aside.retain(|name| !self.coming.contains(name));
        placed.nodes.splice(..0, aside);
        if self.shares.making.contains(queue)
            && let Some(without) = &mut placed.without
        {
            without.push_str("; idle workers of other queues go to make room");
        }
        placed
    }

    fn pack(&mut self, need: &Need, count: u32, takes: Option<Duration>) -> Placed {
        let workers: Vec<(WorkerId, Need)> = (0..count).map(|n| (WorkerId(n.to_string()), need.clone())).collect();
        let packing = pack(&workers, &self.nodes, &self.kinds, takes);
        let mut placed = Placed::default();
        for (_, place) in packing.placed {
            let Place::Node(name) = place else { continue };
            if let Some(node) = self.nodes.iter_mut().find(|node| node.name == name) {
                node.used = node.used.plus(&need.amounts);
            }
            if !self.coming.contains(&name) {
                placed.nodes.push(name);
            }
        }
        for kind in packing.new_nodes {
            self.kinds[kind].available = self.kinds[kind].available.saturating_sub(1);
            placed.make.push(self.kinds[kind].name.clone());
        }
        placed.without = packing.left_over.first().map(|(_, why)| {
            let many = packing.left_over.len();
            match why {
                NoPlace::Never(why) => format!("{many} have no place: {why}"),
                why => format!("{many} have no place now: {why}"),
            }
        });
        placed
    }
}

/// Since when nodes that were made have been empty.
#[derive(Debug, Default)]
pub struct Empty {
    since: BTreeMap<NodeName, Timestamp>,
    /// Those that were emptied to be given back.
    at_once: BTreeSet<NodeName>,
}

impl Empty {
    /// It was emptied: nobody need wait whether it is needed again.
    pub fn hurry(&mut self, node: NodeName) {
        self.at_once.insert(node);
    }

    /// The nodes to give back now. A node counts as used while anything is on it or recorded to be.
    pub fn look(&mut self, have: &Have, balance: &Balance, now: Timestamp) -> Vec<NodeName> {
        let members = balance.queues.iter().flat_map(|queue| queue.fleet.members.values());
        let recorded: BTreeSet<&NodeName> = members.filter_map(|member| member.node.as_ref()).collect();
        let empty = |seen: &&crate::NodeSeen| {
            let ours = matches!(seen.origin, Origin::Made | Origin::Taken);
            ours && seen.workers.is_empty() && !recorded.contains(&seen.node.name)
        };
        let since = have.nodes.iter().filter(empty).map(|seen| {
            let name = &seen.node.name;
            (name.clone(), self.since.get(name).map_or(now, |at| (*at).min(now)))
        });
        self.since = since.collect();
        let answering: BTreeSet<&NodeName> =
            have.nodes.iter().filter(|n| n.node.answers).map(|n| &n.node.name).collect();
        let taken: BTreeSet<&NodeName> =
            have.nodes.iter().filter(|n| n.origin == Origin::Taken).map(|n| &n.node.name).collect();
        self.at_once.retain(|node| self.since.contains_key(node));
        let patience = |node: &NodeName| match (taken.contains(node), answering.contains(node)) {
            // Its owner takes it in any case.
            (true, _) => Duration::ZERO,
            (false, true) if self.at_once.contains(node) => Duration::ZERO,
            (false, true) => EMPTY_FOR,
            (false, false) => COMING_FOR,
        };
        let long = self.since.iter().filter(|(name, at)| now.since(**at) >= patience(name));
        long.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
