//! Watches the dead letters on the ways of the queues that are owned here, for whoever reads metrics. Once in a while, way by
//! way: RabbitMQ tells of one queue at a time.
//!
//! Letters that a manager makes it counts itself. Those of workers, and of the broker itself, are seen by their number growing:
//! what is made and removed between two looks is missed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_core::Clock;
use mutirao_core::envelope::{results_at, shard_of, tasks_of};
use mutirao_core::id::QueueName;
use mutirao_core::meters::DEAD_LETTERS_MADE;
use mutirao_shards::Shards;

use crate::meters::{LETTERS, LetterDepths};
use crate::service::letters::{QUEUES_MAX, counted};
use crate::store::Shared as Store;

const FIRST: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(30);
/// Why letters are made, as far as a label says: unreadable reports, reports in another's name, and what workers reject.
const REASONS: [&str; 3] = ["unreadable", "unvouched", REJECTED];
const REJECTED: &str = "rejected";

pub(crate) struct Watch {
    pub store: Store,
    pub broker: Broker,
    pub shards: Shards,
    pub clock: Arc<dyn Clock>,
}

impl Watch {
    /// For as long as the program runs.
    pub async fn run(self) {
        for reason in REASONS {
            metrics::counter!(DEAD_LETTERS_MADE, "reason" => reason).increment(0);
        }
        let (mut seen, mut depths, mut pause) = (Growth::default(), LetterDepths::default(), FIRST);
        loop {
            self.clock.sleep(pause).await;
            pause = EVERY;
            if let Err(error) = self.look(&mut seen, &mut depths).await {
                tracing::debug!(error, "dead letters are not counted; trying again later");
            }
        }
    }

    async fn look(&self, seen: &mut Growth, depths: &mut LetterDepths) -> Result<(), String> {
        let owned: Vec<_> = self.shards.owned().borrow().keys().copied().collect();
        let rows = self.store.queues(0).await.map_err(|error| error.to_string())?;
        let queues = rows.into_iter().map(|row| row.spec.name).filter(|queue| owned.contains(&shard_of(queue)));
        let tasks = queues.take(QUEUES_MAX).map(|queue| (queue.clone(), tasks_of(&queue))).collect();
        let tasks = counted(&self.broker, tasks).await.map_err(|error| error.to_string())?;
        depths.show(tasks.iter().map(|(queue, _, letters)| (queue, *letters)));
        for shard in owned {
            let way = results_at(shard);
            let letters = self.broker.count_dead_letters(&way).await.map_err(|error| error.to_string())?;
            metrics::gauge!(LETTERS, "way" => way).set(letters as f64);
        }
        let grown = seen.by(tasks.into_iter().map(|(queue, _, letters)| (queue, letters)));
        metrics::counter!(DEAD_LETTERS_MADE, "reason" => REJECTED).increment(grown);
        Ok(())
    }
}

/// How many there were at the last look.
#[derive(Default)]
struct Growth(BTreeMap<QueueName, u64>);

impl Growth {
    /// By how many they grew since. What is seen for the first time may have been there for days.
    fn by(&mut self, now: impl IntoIterator<Item = (QueueName, u64)>) -> u64 {
        let now: BTreeMap<QueueName, u64> = now.into_iter().collect();
        let grown = now.iter().filter_map(|(queue, letters)| Some(letters.saturating_sub(*self.0.get(queue)?))).sum();
        self.0 = now;
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_came_since_the_last_look_are_counted_and_removed_ones_are_not_counted_back() {
        let queue = |name: &str| name.parse::<QueueName>().unwrap();
        let mut growth = Growth::default();
        assert_eq!(growth.by([(queue("a"), 7)]), 0, "they may be old");
        assert_eq!(growth.by([(queue("a"), 9), (queue("b"), 4)]), 2);
        assert_eq!(growth.by([(queue("a"), 0), (queue("b"), 5)]), 1);
        assert_eq!(growth.by([(queue("a"), 1)]), 1);
    }
}
