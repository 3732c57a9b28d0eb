//! What nobody needs any more: workers of queues that are not known, and nodes that were made and stand empty.

use std::collections::BTreeSet;

use mutirao_core::{QueueName, WorkerId};
use mutirao_elastic::packing::NodeName;
use mutirao_elastic::protocol::Balance;

use super::listing::Listed;
use super::{Active, Cut, NODES_AT_ONCE};
use crate::provider::Have;

impl Active {
    /// Workers of queues that the manager has not spoken of for long enough that it cannot be a slip.
    pub(super) async fn end_strays(&mut self, listed: &Listed, balance: &Balance) -> Result<(), Cut> {
        let now = self.now();
        let known: BTreeSet<&QueueName> = balance.queues.iter().map(|queue| &queue.queue).collect();
        let unknown = listed.by_queue.keys().filter(|queue| !known.contains(queue));
        let since = |queue: &QueueName| self.unknown.get(queue).map_or(now, |at| (*at).min(now));
        self.unknown = unknown.map(|queue| (queue.clone(), since(queue))).collect();
        let long = self.unknown.iter().filter(|(_, at)| now.since(**at) >= self.ports.terms.silent_for);
        let strays: Vec<(WorkerId, NodeName)> = long
            .filter_map(|(queue, _)| listed.by_queue.get(queue))
            .flatten()
            .map(|(worker, node)| (worker.clone(), node.clone()))
            .collect();
        for (worker, node) in strays {
            self.act()?;
            if let Err(error) = self.ports.provider.end(&worker, &node, self.generation).await {
                tracing::warn!(%worker, %error, "a worker of a queue that nobody knows cannot be ended");
                return Ok(());
            }
        }
        Ok(())
    }

    pub(super) async fn give_back(&mut self, have: &Have, balance: &Balance) -> Result<(), Cut> {
        let now = self.now();
        // What was placed in this very pass is not in the balance yet.
        let busy = |node: &NodeName| {
            let members = self.queues.values().flat_map(|queue| queue.fleet().members.values());
            members.filter_map(|member| member.node.as_ref()).any(|used| used == node)
        };
        let empty = self.empty.look(have, balance, now);
        for node in empty.into_iter().take(NODES_AT_ONCE) {
            if busy(&node) {
                continue;
            }
            self.act()?;
            match self.ports.provider.remove_node(&node, self.generation).await {
                Ok(()) => tracing::info!(%node, "an empty node is given back"),
                Err(error) => tracing::warn!(%node, %error, "a node cannot be given back"),
            }
        }
        Ok(())
    }
}
