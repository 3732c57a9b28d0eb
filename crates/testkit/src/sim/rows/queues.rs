//! The queues in the store: a revision for every change, taken from one counter; deletions are remembered.

use std::collections::BTreeMap;

use mutirao_core::Timestamp;
use mutirao_core::id::QueueName;
use mutirao_jobs::store::queues::{QueueRow, Removed};
use mutirao_shards::ShardId;

use super::super::weather::shard_of_queue;
use super::super::wire::{QueueChange, QueueWord};

#[derive(Default)]
pub struct Queues {
    defined: BTreeMap<QueueName, QueueRow>,
    removed: Vec<Removed>,
    /// The last change of each that was made.
    numbers: BTreeMap<QueueName, u64>,
    revision: u64,
}

impl Queues {
    pub fn has(&self, queue: &QueueName) -> bool {
        self.defined.contains_key(queue)
    }

    pub fn change(&mut self, QueueChange { queue, number, spec }: &QueueChange) -> Option<QueueWord> {
        let last = self.numbers.entry(queue.clone()).or_default();
        if *number < *last {
            return None;
        }
        *last = *number;
        self.revision += 1;
        let revision = self.revision;
        match spec {
            Some(spec) => {
                let (at, changed_by) = (Timestamp(1), String::new());
                let row = QueueRow {
                    spec: (**spec).clone(),
                    revision,
                    created_at: at,
                    changed_at: at,
                    changed_by,
                    unreadable: None,
                };
                self.defined.insert(queue.clone(), row.clone());
                Some(QueueWord::Defined(Box::new(row)))
            }
            None => {
                self.defined.remove(queue)?;
                let removed = Removed { queue: queue.clone(), revision };
                self.removed.push(removed.clone());
                Some(QueueWord::Removed(removed))
            }
        }
    }

    pub fn of(&self, shard: ShardId) -> Vec<QueueRow> {
        self.defined.values().filter(|row| shard_of_queue(&row.spec.name) == shard).cloned().collect()
    }

    pub fn all(&self) -> (Vec<QueueRow>, Vec<Removed>) {
        (self.defined.values().cloned().collect(), self.removed.clone())
    }
}
