//! Nodes that were made and are not needed any more once their workers are on others: one at a time, and only while nobody
//! waits for room.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mutirao_core::WorkerId;
use mutirao_elastic::fleet::{Activity, Life};
use mutirao_elastic::packing::consolidating::{Emptied, Home, Remaining, Tenant, consolidate};
use mutirao_elastic::packing::{Kind, Need, NodeName};
use mutirao_elastic::protocol::{Balance, QueueBalance};

use super::Active;
use crate::nodes::Rooms;
use crate::provider::{Have, Origin};

/// How long a worker is missing until another has come in its place, where that was not seen yet.
const BOOT: Duration = Duration::from_secs(60);

impl Active {
    /// Chooses, and closes what is chosen to new workers until it is empty.
    pub(super) fn consolidate(&mut self, have: &Have, balance: &Balance, kinds: &[Kind], rooms: &mut Rooms) {
        let homes = homes(have, balance, kinds);
        let inhabited: BTreeSet<&NodeName> =
            balance.queues.iter().flat_map(|q| q.fleet.members.values()).filter_map(|m| m.node.as_ref()).collect();
        self.emptying.retain(|node, _| inhabited.contains(node));
        let lacking = self.queues.values().any(|queue| queue.lacks_room()) || rooms.is_growing();
        if lacking {
            self.emptying.clear();
        } else if self.emptying.is_empty()
            && let Some(emptying) = consolidate(&homes, rooms.nodes(), BOOT)
        {
            tracing::info!(node = %emptying.node, "{emptying}");
            self.emptying.insert(emptying.node.clone(), emptying);
        }
        rooms.close(&self.emptying);
    }

    /// What is being emptied, for the queues whose workers are there.
    pub(super) fn emptying(&self) -> Emptied {
        self.emptying.clone()
    }
}

/// Nodes that were made, with those who are to stay on them.
fn homes(have: &Have, balance: &Balance, kinds: &[Kind]) -> Vec<Home> {
    let mut tenants: BTreeMap<&NodeName, Vec<Tenant>> = BTreeMap::new();
    for queue in &balance.queues {
        for (worker, member) in queue.fleet.members.iter().filter(|(_, member)| member.life <= Life::Reported) {
            let Some(node) = &member.node else { continue };
            let amounts = member.need.clone().unwrap_or_else(|| queue.need.amounts.clone());
            let need = Need { amounts, ..queue.need.clone() };
            tenants.entry(node).or_default().push(Tenant { need, doing: remaining(queue, worker) });
        }
    }
    let made = have.nodes.iter().filter(|seen| seen.origin == Origin::Made && seen.node.answers);
    made.map(|seen| {
        let kind = kinds.iter().find(|kind| seen.node.kind.as_ref() == Some(&kind.name));
        Home {
            node: seen.node.name.clone(),
            price_micros_per_hour: kind.map_or(0, |kind| kind.price_micros_per_hour),
            tenants: tenants.remove(&seen.node.name).unwrap_or_default(),
        }
    })
    .collect()
}

fn remaining(queue: &QueueBalance, worker: &WorkerId) -> Remaining {
    match queue.sessions.as_ref().and_then(|sessions| sessions.get(worker)) {
        None => Remaining::Unknown,
        Some(Activity::Idle { .. } | Activity::Drained) => Remaining::Idle,
        Some(Activity::Busy { .. }) => queue.state.task_takes().map_or(Remaining::Unknown, Remaining::About),
    }
}
