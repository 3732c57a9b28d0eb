//! What the provider says it has, as queues need it, and patience with one that does not say.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::Terms;
use mutirao_elastic::packing::NodeName;
use mutirao_elastic::protocol::QueueBalance;

use super::Active;
use crate::provider::{Have, Origin, ProviderError};
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
    /// Those of whom their nodes say that they have ended.
    pub ended: BTreeSet<WorkerId>,
}

impl Listed {
    pub fn of(have: Have) -> Self {
        let mut listed = Self::default();
        for seen in &have.nodes {
            let name = || seen.node.name.clone();
            match (seen.node.answers, seen.origin) {
                (_, Origin::Away) => continue,
                (false, _) => drop(listed.silent.insert(name())),
                // Nobody is to be launched there any more.
                (true, Origin::Leaving | Origin::Taken) => {}
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
