//! Queues come, change and go. A definition acts on all that waits, at once. Of a deleted queue nothing goes out any more;
//! it is forgotten when nothing of it is left: no task, no worker, no queue at the broker.

use std::ops::Bound;
use std::sync::Arc;

use mutirao_core::id::QueueName;
use mutirao_queues::QueueSpec;

use super::line::Gate;
use super::{Desk, Now};

/// Queues that the broker is asked to remove at a time: work goes first.
const REMOVED_AT_ONCE: usize = 32;

impl Desk {
    /// From now on nothing goes out of a queue before its definition is known: it may be paused, or let few run.
    pub fn wait_for_definitions(&mut self) {
        self.undefined = Gate::Paused;
    }

    /// Takes up a queue's definition, unless a later word is known.
    pub fn define(&mut self, spec: &Arc<QueueSpec>, revision: u64, now: Now) {
        self.seen = self.seen.max(now.mono);
        if self.revision_of(&spec.name).is_some_and(|known| known >= revision) {
            return;
        }
        self.deleted.remove(&spec.name);
        self.definitions.insert(spec.name.clone(), (revision, spec.clone()));
        if let Some(line) = self.lines.get_mut(&spec.name) {
            line.define(spec, now.mono, |job| self.jobs.get(&job).map(|ledger| &ledger.rank));
            line.let_back(&mut self.jobs);
        }
    }

    /// A queue was deleted. False when that is known, or a later word is.
    pub fn forget(&mut self, queue: &QueueName, revision: u64) -> bool {
        if self.revision_of(queue).is_some_and(|known| known >= revision) {
            return false;
        }
        self.definitions.remove(queue);
        self.deleted.insert(queue.clone(), revision);
        if let Some(line) = self.lines.get_mut(queue) {
            line.close();
        }
        true
    }

    fn revision_of(&self, queue: &QueueName) -> Option<u64> {
        let defined = self.definitions.get(queue).map(|(revision, _)| *revision);
        defined.or_else(|| self.deleted.get(queue).copied())
    }

    /// Deleted queues that have neither a task that is wanted nor a worker: the broker need not keep them either, nor what
    /// lies there on its way to nobody. In turn: those that cannot be removed keep no other from it.
    pub fn clear_away(&mut self) -> Vec<QueueName> {
        let done = |queue: &&QueueName| {
            self.lines.get(*queue).is_none_or(|line| line.open == 0) && !self.sessions.serve(queue)
        };
        let after = self.removed_last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.deleted.range((after, Bound::Unbounded)).map(|(queue, _)| queue);
        let begun =
            self.deleted.keys().take_while(|queue| self.removed_last.as_ref().is_some_and(|last| *queue <= last));
        let over: Vec<QueueName> = rest.chain(begun).filter(done).take(REMOVED_AT_ONCE).cloned().collect();
        self.removed_last = over.last().cloned();
        for queue in &over {
            self.lines.remove(queue);
            self.posted.retain(|_, posted| posted.queue() != queue);
        }
        self.bury_the_dying();
        over
    }

    /// The broker has a deleted queue no more.
    pub fn is_gone(&mut self, queue: &QueueName) {
        self.deleted.remove(queue);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mutirao_core::id::JobKey;
    use mutirao_core::task::{Needs, Retry};
    use mutirao_core::{Mono, Timestamp};

    use super::super::ledger::Ledger;
    use super::*;

    fn now() -> Now {
        Now { wall: Timestamp(1_000_000), mono: Mono(Duration::from_secs(1_000)) }
    }

    fn desk_with_a_job() -> (Desk, QueueName) {
        let mut desk = Desk::new(1, Duration::from_secs(10), 1);
        let queue = QueueName::default();
        desk.define(&Arc::new(QueueSpec::new(queue.clone())), 3, now());
        desk.admit(JobKey(1), Ledger::new(queue.clone(), 1, 5, Retry::default(), Needs::default()));
        (desk, queue)
    }

    #[test]
    fn a_deleted_queue_is_forgotten_when_nothing_of_it_is_left() {
        let (mut desk, queue) = desk_with_a_job();
        assert!(desk.forget(&queue, 4));
        assert!(!desk.forget(&queue, 4), "that is known");
        assert!(desk.clear_away().is_empty(), "its job is not known to be cancelled yet");
        desk.cancel_jobs(&[JobKey(1)]);
        for _ in 0..2 {
            assert_eq!(desk.clear_away(), std::slice::from_ref(&queue), "until the broker has done so");
        }
        desk.is_gone(&queue);
        assert!(desk.clear_away().is_empty());
        assert!(desk.lines.is_empty() && desk.definitions.is_empty() && desk.deleted.is_empty());
    }

    #[test]
    fn nothing_goes_out_of_a_queue_before_its_definition_is_known() {
        let (mut desk, queue) = (Desk::new(1, Duration::from_secs(10), 1), QueueName::default());
        desk.wait_for_definitions();
        desk.admit(JobKey(1), Ledger::new(queue.clone(), 1, 5, Retry::default(), Needs::default()));
        assert_eq!(desk.lines[&queue].gate(), Gate::Paused);
        desk.define(&Arc::new(QueueSpec::new(queue.clone())), 1, now());
        assert_eq!(desk.lines[&queue].gate(), Gate::Open);
    }

    #[test]
    fn deleted_queues_that_the_broker_cannot_remove_keep_no_other_from_being_removed() {
        let mut desk = Desk::new(1, Duration::from_secs(10), 1);
        let names: Vec<QueueName> = (0..3 * REMOVED_AT_ONCE + 7).map(|n| format!("q{n:03}").parse().unwrap()).collect();
        for queue in &names {
            assert!(desk.forget(queue, 4));
        }
        let mut asked: Vec<QueueName> = (0..4).flat_map(|_| desk.clear_away()).collect();
        assert_eq!(asked.len(), 4 * REMOVED_AT_ONCE, "the last round begins anew");
        assert_eq!(asked[names.len()..], names[..asked.len() - names.len()]);
        asked.truncate(names.len());
        assert_eq!(asked, names);
        desk.is_gone(&names[0]);
        assert_eq!(desk.clear_away().len(), REMOVED_AT_ONCE);
    }

    #[test]
    fn a_queue_that_was_made_anew_is_not_forgotten_and_late_words_change_nothing() {
        let (mut desk, queue) = desk_with_a_job();
        assert!(!desk.forget(&queue, 2), "it was made after that");
        assert!(desk.forget(&queue, 4));
        desk.define(&Arc::new(QueueSpec::new(queue.clone())), 3, now());
        assert!(desk.definitions.is_empty(), "that is how it was before");
        desk.define(&Arc::new(QueueSpec::new(queue.clone())), 5, now());
        assert!(desk.clear_away().is_empty() && !desk.forget(&queue, 4));
        assert_eq!(desk.open_tasks(), 5);
    }
}
