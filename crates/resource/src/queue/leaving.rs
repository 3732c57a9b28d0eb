//! Who goes although its queue has not too many: from nodes that are to be empty, and for queues whose tasks wait.

use std::collections::BTreeSet;

use mutirao_core::WorkerId;
use mutirao_elastic::fleet::{Life, Member};
use mutirao_elastic::packing::NodeName;
use mutirao_elastic::{Action, Fleet};

use super::{Queue, Scene};

impl Queue {
    /// Workers of nodes that are to be empty go, as many at a time as leave the floor standing elsewhere, and at least one.
    /// So do those that were asked for on a node that has been away since: others are asked for in their place.
    /// Whoever is on a node that is about to be taken back goes at once: what does not finish in time is lost with it.
    /// Says why of nodes that are emptied to be given back, and of those that are taken.
    pub(super) fn leave_nodes(&self, scene: &Scene, fleet: &mut Fleet) -> Vec<String> {
        let stands = |member: &Member| member.life <= Life::Reported;
        let must_go = |member: &Member| {
            let stranded = member.life == Life::Asked && scene.now.since(member.since) >= scene.terms.missing_for;
            member.node.as_ref().is_some_and(|node| {
                scene.drained.contains(node)
                    || scene.emptying.contains_key(node)
                    || (stranded && scene.listed.is_some() && !scene.answering.contains(node))
            })
        };
        let on_taken = |member: &Member| member.node.as_ref().is_some_and(|node| scene.taken.contains(node));
        let standing = self.fleet.members.iter().filter(|(_, member)| stands(member));
        let (taken, staying): (Vec<_>, Vec<_>) = standing.partition(|(_, member)| on_taken(member));
        for (worker, _) in &taken {
            fleet.apply(&Action::Drain { worker: (*worker).clone() }, scene.now);
        }
        let (away, home): (Vec<_>, Vec<_>) = staying.into_iter().partition(|(_, member)| must_go(member));
        let floor = scene.balance.elastic.as_ref().map_or(0, |elastic| elastic.min) as usize;
        let missing = floor.saturating_sub(home.iter().filter(|(_, m)| m.life == Life::Reported).count());
        let going = away.len().saturating_sub(missing).max(usize::from(!away.is_empty()));
        for (worker, _) in away.into_iter().take(going) {
            fleet.apply(&Action::Drain { worker: worker.clone() }, scene.now);
        }
        let here = |node: &NodeName| self.fleet.members.values().any(|member| member.node.as_ref() == Some(node));
        let emptied = scene.emptying.iter().filter(|(node, _)| here(node)).map(|(_, why)| why.to_string());
        let nodes: BTreeSet<&NodeName> = taken.iter().filter_map(|(_, member)| member.node.as_ref()).collect();
        let taken = nodes
            .into_iter()
            .map(|node| format!("{node} is taken back by its owner: its workers finish and are replaced"));
        emptied.chain(taken).collect()
    }
}

/// Those who are idle while tasks of other queues have no place go, and it is said.
pub(super) fn make_room(scene: &Scene, fleet: &mut Fleet) -> Option<String> {
    let own = |worker: &&WorkerId| fleet.members.get(*worker).is_some_and(|member| member.life == Life::Reported);
    let going: Vec<WorkerId> = scene.yielding.iter().filter(own).cloned().collect();
    for worker in &going {
        fleet.apply(&Action::Drain { worker: worker.clone() }, scene.now);
    }
    let many = going.len();
    (many > 0).then(|| format!("{many} idle make room for queues whose tasks wait"))
}
