//! What the provider says it has, as queues need it, and patience with one that does not say.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::Terms;
use mutirao_elastic::packing::NodeName;
use mutirao_elastic::protocol::{Balance, NodeRecord, OfferedNode, QueueBalance};

use super::Active;
use crate::provider::{Have, NodeSeen, Origin, ProviderError};
use crate::queue::Queue;

/// When to ask a provider again that could not say what it has.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u32,
    until: Option<Timestamp>,
}

/// What the provider said, as queues need it.
#[derive(Default)]
pub(super) struct Listed {
    pub have: Have,
    pub by_queue: BTreeMap<QueueName, BTreeMap<WorkerId, NodeName>>,
    pub silent: BTreeSet<NodeName>,
    pub answering: BTreeSet<NodeName>,
    /// Those that are about to be taken back by their owners.
    pub taken: BTreeSet<NodeName>,
    /// Those of whom their nodes say that they have ended.
    pub ended: BTreeSet<WorkerId>,
}

impl Listed {
    /// What is known of nodes whose provider does not say what it has is what was offered last.
    pub fn remembering(mut self, balance: &Balance) -> Self {
        let unsaid = self.have.nodes.iter().filter(|seen| seen.origin == Origin::Unsaid);
        let unsaid: BTreeMap<String, Option<String>> =
            unsaid.map(|seen| (seen.node.provider.clone(), seen.node.note.clone())).collect();
        let there: BTreeSet<NodeName> = self.have.nodes.iter().map(|seen| seen.node.name.clone()).collect();
        for NodeRecord { node, .. } in &balance.nodes {
            let Some(why) = unsaid.get(&node.provider).filter(|_| !there.contains(&node.name)) else { continue };
            self.silent.insert(node.name.clone());
            let node = OfferedNode { answers: false, note: why.clone(), ..node.clone() };
            let (workers, ended) = (BTreeMap::new(), BTreeSet::new());
            self.have.nodes.push(NodeSeen { node, origin: Origin::Standing, workers, ended });
        }
        self
    }

    pub fn of(have: Have) -> Self {
        let mut listed = Self::default();
        for seen in &have.nodes {
            let name = || seen.node.name.clone();
            match (seen.node.answers, seen.origin) {
                (_, Origin::Away | Origin::Unsaid) => continue,
                (false, _) => drop(listed.silent.insert(name())),
                // Nobody is to be launched there any more.
                (true, Origin::Leaving) => {}
                (true, Origin::Taken) => drop(listed.taken.insert(name())),
                (true, Origin::Standing | Origin::Made) => drop(listed.answering.insert(name())),
            }
            listed.ended.extend(seen.ended.iter().cloned());
            for (worker, queue) in &seen.workers {
                let workers = listed.by_queue.entry(queue.clone()).or_default();
                workers.insert(worker.clone(), seen.node.name.clone());
            }
        }
        Self { have, ..listed }
    }
}

impl Active {
    pub(super) async fn list(&mut self) -> Result<Listed, Option<ProviderError>> {
        let now = self.now();
        if self.provider.until.is_some_and(|until| now < until) {
            return Err(None);
        }
        match self.ports.provider.list(self.generation).await {
            Ok(have) => {
                self.provider = Patience::default();
                Ok(Listed::of(have))
            }
            Err(error) => {
                tracing::warn!(provider = self.ports.provider.name(), %error, "the provider does not say what it has");
                self.provider.failures = self.provider.failures.saturating_add(1);
                let doubled = 1u32.checked_shl(self.provider.failures - 1).unwrap_or(u32::MAX);
                let pause = self.ports.terms.pause_first.saturating_mul(doubled).min(Terms::PAUSE_MAX);
                self.provider.until = Some(self.now().plus(self.ports.dice.jitter(pause)));
                Err(Some(error))
            }
        }
    }

    /// Shown where it holds somebody up.
    pub(super) fn note_failure(&mut self, queue: &QueueBalance, error: &Option<ProviderError>) {
        let now = self.now();
        let Some(error) = error else { return };
        let known = self.queues.entry(queue.queue.clone()).or_insert_with(|| Queue::adopting(queue));
        let floor = queue.elastic.as_ref().map_or(0, |elastic| elastic.min);
        let waiting = queue.load.tasks.map_or(0, |tasks| tasks.ready);
        if floor > 0 || waiting > 0 || !known.fleet().members.is_empty() {
            known.not_listed(&error.to_string(), &self.ports.terms, &self.ports.dice, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use mutirao_elastic::packing::Layer;

    use super::*;

    fn seen(name: &str, provider: &str, origin: Origin) -> NodeSeen {
        let node = OfferedNode {
            name: NodeName(name.into()),
            provider: provider.into(),
            kind: None,
            capacity: Default::default(),
            labels: Default::default(),
            layer: Layer::Cloud,
            answers: origin != Origin::Unsaid,
            note: None,
            stands: None,
        };
        NodeSeen { node, origin, workers: BTreeMap::new(), ended: BTreeSet::new() }
    }

    #[test]
    fn nodes_of_a_provider_that_does_not_say_what_it_has_are_silent_and_others_go_on() {
        let have = Have { nodes: vec![seen("a", "one", Origin::Made), seen("two", "two", Origin::Unsaid)] };
        let offered = [seen("a", "one", Origin::Made), seen("b", "one", Origin::Made), seen("c", "two", Origin::Made)];
        let record = |seen: &NodeSeen| NodeRecord { node: seen.node.clone(), wish: Default::default() };
        let balance = Balance { nodes: offered.iter().map(record).collect(), ..Balance::default() };
        let listed = Listed::of(have).remembering(&balance);
        let names = |all: &BTreeSet<NodeName>| all.iter().map(|name| name.0.clone()).collect::<Vec<_>>();
        assert_eq!((names(&listed.answering), names(&listed.silent)), (vec!["a".to_owned()], vec!["c".to_owned()]));
        let kept: Vec<_> =
            listed.have.nodes.iter().map(|seen| (seen.node.name.0.as_str(), seen.node.answers)).collect();
        assert_eq!(kept, [("a", true), ("two", false), ("c", false)], "b is gone, c is not known to be");
    }
}
