//! How much is written of queues, where their owners are silent or cannot know, remembered for a moment: many may be
//! submitting to them, and each look sums up a whole shard in the store. What this process takes in meanwhile is added.

use std::collections::HashMap;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::QueueName;
use parking_lot::Mutex;

use crate::store::OpenTasks;

/// What other processes take in meanwhile is not seen.
const FRESH: Duration = Duration::from_secs(1);
/// Queues remembered; when they are more, all are forgotten.
const QUEUES_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Tallies(Mutex<HashMap<QueueName, (Mono, OpenTasks)>>);

impl Tallies {
    pub fn of(&self, queue: &QueueName, now: Mono) -> Option<OpenTasks> {
        let tallies = self.0.lock();
        tallies.get(queue).filter(|(at, _)| now.since(*at) < FRESH).map(|(_, open)| *open)
    }

    pub fn read(&self, queue: QueueName, open: OpenTasks, now: Mono) {
        let mut tallies = self.0.lock();
        if tallies.len() >= QUEUES_MAX {
            tallies.clear();
        }
        tallies.insert(queue, (now, open));
    }

    /// Tasks were taken in.
    pub fn add(&self, queue: &QueueName, tasks: u64) {
        let shard = shard_of(queue);
        for (other, (_, open)) in self.0.lock().iter_mut().filter(|(other, _)| shard_of(other) == shard) {
            open.of_shard += tasks;
            open.of_queue += if other == queue { tasks } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_used_for_a_second_with_what_came_in_meanwhile() {
        let (tallies, at) = (Tallies::default(), |ms| Mono(Duration::from_millis(ms)));
        let names: Vec<QueueName> = (0..1_000).map(|n| format!("q{n}").parse().unwrap()).collect();
        let queue = &names[0];
        let neighbour = names[1..].iter().find(|name| shard_of(name) == shard_of(queue)).unwrap();
        let stranger = names[1..].iter().find(|name| shard_of(name) != shard_of(queue)).unwrap();
        assert_eq!(tallies.of(queue, at(0)), None);
        for name in [queue, neighbour, stranger] {
            tallies.read(name.clone(), OpenTasks { of_shard: 10, of_queue: 5 }, at(0));
        }
        tallies.add(queue, 7);
        let sums = |name| tallies.of(name, at(999)).map(|open| (open.of_shard, open.of_queue));
        assert_eq!([sums(queue), sums(neighbour), sums(stranger)], [Some((17, 12)), Some((17, 5)), Some((10, 5))]);
        assert_eq!(tallies.of(queue, at(1_000)), None);
    }
}
