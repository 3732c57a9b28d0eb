//! Nodes that were made and are not needed any more once their workers are on others: some at a time, and only while nobody
//! waits for room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Timestamp, WorkerId};
use mutirao_elastic::fleet::{Activity, Life};
use mutirao_elastic::lasting::Lasting;
use mutirao_elastic::packing::consolidating::{Emptied, Home, Remaining, Tenant, consolidate};
use mutirao_elastic::packing::{Kind, Market, Need, NodeName};
use mutirao_elastic::protocol::{Balance, QueueBalance};

use super::Active;
use crate::nodes::Rooms;
use crate::provider::{Have, NodeSeen, Origin};

/// How long a worker is missing until another has come in its place, where that was not seen yet.
const BOOT: Duration = Duration::from_secs(60);
/// Of the nodes that were made, the part that may be on its way to be empty at once; one always may.
const AT_ONCE_PART: usize = 8;

impl Active {
    /// Chooses, and closes what is chosen to new workers until it is empty.
    pub(super) fn consolidate(&mut self, have: &Have, balance: &Balance, kinds: &[Kind], rooms: &mut Rooms) {
        let homes = homes(have, balance, kinds);
        let inhabited: BTreeSet<&NodeName> =
            balance.queues.iter().flat_map(|q| q.fleet.members.values()).filter_map(|m| m.node.as_ref()).collect();
        let done = self.emptying.extract_if(.., |node, _| !inhabited.contains(node));
        done.for_each(|(node, _)| self.empty.hurry(node));
        let lacking = self.queues.values().any(|queue| queue.lacks_room()) || rooms.is_growing();
        if lacking {
            self.emptying.clear();
        }
        rooms.close(&self.emptying);
        let most = (homes.len() / AT_ONCE_PART).max(1).saturating_sub(self.emptying.len());
        if !lacking && most > 0 {
            let left: Vec<Home> = homes.into_iter().filter(|home| !self.emptying.contains_key(&home.node)).collect();
            for emptying in consolidate(&left, rooms.nodes(), BOOT, most) {
                tracing::info!(node = %emptying.node, "{emptying}");
                self.emptying.insert(emptying.node.clone(), emptying);
            }
            rooms.close(&self.emptying);
        }
    }

    /// What is being emptied, for the queues whose workers are there.
    pub(crate) fn emptying(&self) -> Emptied {
        self.emptying.clone()
    }
}

/// Nodes that were made, with those who are to stay on them.
fn homes(have: &Have, balance: &Balance, kinds: &[Kind]) -> Vec<Home> {
    let mut tenants: BTreeMap<&NodeName, Vec<Tenant>> = BTreeMap::new();
    for queue in &balance.queues {
        let lasting = queue.state.lasting().cloned().map(Arc::new);
        for (worker, member) in queue.fleet.members.iter().filter(|(_, member)| member.life <= Life::Reported) {
            let Some(node) = &member.node else { continue };
            let amounts = member.need.clone().unwrap_or_else(|| queue.need.amounts.clone());
            let need = Need { amounts, ..queue.need.clone() };
            let doing = remaining(queue, worker, balance.at, lasting.as_ref());
            tenants.entry(node).or_default().push(Tenant { need, doing });
        }
    }
    let made = have.nodes.iter().filter(|seen| seen.origin == Origin::Made && seen.node.answers);
    let of_kind = |seen: &NodeSeen| kinds.iter().find(|kind| seen.node.kind.as_ref() == Some(&kind.name));
    let homes = made.map(|seen| (seen, of_kind(seen)));
    // One that is paid for anyway is not given back to save anything.
    let homes = homes.filter(|(_, kind)| kind.is_none_or(|kind| kind.market != Market::Reserved));
    let home = |(seen, kind): (&NodeSeen, Option<&Kind>)| Home {
        node: seen.node.name.clone(),
        price_micros_per_hour: kind.map_or(0, |kind| kind.price_micros_per_hour),
        tenants: tenants.remove(&seen.node.name).unwrap_or_default(),
    };
    homes.map(home).collect()
}

fn remaining(queue: &QueueBalance, worker: &WorkerId, at: Timestamp, lasting: Option<&Arc<Lasting>>) -> Remaining {
    match queue.sessions.as_ref().and_then(|sessions| sessions.get(worker)) {
        None => Remaining::Unknown,
        Some(Activity::Idle { .. } | Activity::Drained) => Remaining::Idle,
        Some(Activity::Busy { since, .. }) => match (since, lasting) {
            (Some(since), Some(lasting)) => Remaining::After { age: at.since(*since), lasting: lasting.clone() },
            _ => queue.state.task_takes().map_or(Remaining::Unknown, Remaining::About),
        },
    }
}
