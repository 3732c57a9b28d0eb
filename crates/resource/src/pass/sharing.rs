//! What each queue has and lacks, as sharing needs it: from the balance, before any queue has its turn.

use std::collections::BTreeSet;

use mutirao_core::check::{MANAGERS, POOL, SCHEDULERS};
use mutirao_core::{Timestamp, WorkerId};
use mutirao_elastic::fleet::{Activity, Life, Member};
use mutirao_elastic::packing::sharing::{Idle, Party};
use mutirao_elastic::packing::{Amounts, NodeName};
use mutirao_elastic::protocol::{Balance, CREATE_MAX, QueueBalance};

use super::Active;
use crate::nodes::Rooms;
use crate::queue::Queue;

impl Active {
    /// Sets room aside for those who come first, and says which idle workers are to go for it.
    pub(super) fn share(&self, balance: &Balance, rooms: &mut Rooms) -> BTreeSet<WorkerId> {
        let parties: Vec<Party> = balance.queues.iter().filter_map(|queue| self.party(queue, balance.at)).collect();
        let leaving: Vec<_> = balance.queues.iter().flat_map(leaving).collect();
        rooms.share(&parties, &leaving)
    }

    /// None of a queue that nothing may be concluded about.
    fn party(&self, queue: &QueueBalance, at: Timestamp) -> Option<Party> {
        let (elastic, tasks) = (queue.elastic.as_ref()?, queue.load.tasks?);
        let standing = queue.fleet.counts().standing();
        let wants = if tasks.ready > 0 || standing < elastic.min {
            let new = (!self.queues.contains_key(&queue.queue)).then(|| Queue::adopting(queue));
            let known = new.as_ref().or_else(|| self.queues.get(&queue.queue))?;
            let there = u32::try_from(queue.fleet.members.len()).unwrap_or(u32::MAX);
            let more = known.wanted(queue, at, self.now()).saturating_sub(standing);
            let more = known.fleet().worth_room_for(more, self.now());
            more.min(elastic.max.saturating_sub(there)).min(CREATE_MAX)
        } else {
            0
        };
        let idle = queue.sessions.as_ref()?.iter().filter_map(|(worker, activity)| {
            let Activity::Idle { since } = activity else { return None };
            let member = queue.fleet.members.get(worker).filter(|member| member.life == Life::Reported)?;
            let (node, amounts) = place(queue, member)?;
            Some(Idle { worker: worker.clone(), node, amounts, for_: at.since(*since) })
        });
        Some(Party {
            queue: queue.queue.clone(),
            need: queue.need.clone(),
            floor: elastic.min,
            // A monitor that nobody checks for a while is blind, however little there is to check.
            keeps: if [POOL, SCHEDULERS, MANAGERS].contains(&queue.queue.as_str()) { elastic.min } else { 0 },
            standing,
            wants,
            waiting: tasks.ready,
            oldest_wait: tasks.oldest_wait.0,
            idle: idle.collect(),
        })
    }
}

/// What is about to be free: of those who are to go, all but those who still have something to finish.
fn leaving(queue: &QueueBalance) -> impl Iterator<Item = (NodeName, Amounts)> {
    let busy = |worker: &WorkerId| {
        let sessions = queue.sessions.as_ref();
        sessions.is_none_or(|sessions| matches!(sessions.get(worker), Some(Activity::Busy { .. })))
    };
    let members = queue.fleet.members.iter();
    members
        .filter(move |(worker, member)| member.life > Life::Reported && !busy(worker))
        .filter_map(|(_, member)| place(queue, member))
}

fn place(queue: &QueueBalance, member: &Member) -> Option<(NodeName, Amounts)> {
    let amounts = member.need.as_ref().unwrap_or(&queue.need.amounts);
    Some((member.node.clone()?, amounts.clone()))
}
