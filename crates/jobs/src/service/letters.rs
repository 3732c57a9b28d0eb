//! The broker's dead letters: messages that a worker or a manager could not make sense of. Shown, counted and removed. What
//! they were about is not lost with them: tasks that nobody reports are handed out again.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use mutirao_broker::{BrokerError, LetterId, Letters, Shared as Broker};
use mutirao_core::Problem;
use mutirao_core::envelope::{results_of, tasks_of};
use mutirao_core::id::QueueName;
use mutirao_core::job::{Letter, LetterCount, LettersRemoved};
use mutirao_store::refused;

use super::Jobs;

/// As much of a letter as is shown.
const LETTER_BYTES_MAX: usize = 400;
/// Ways that are asked for their letters at a time.
const ASKED_MAX: usize = 8;
/// Queues whose letters are counted by one request, or in one round: the first by name.
pub(crate) const QUEUES_MAX: usize = 1_000;

impl Jobs {
    /// Those on the ways of a queue, the oldest first.
    pub async fn letters(&self, queue: &QueueName, limit: u32) -> Result<Vec<Letter>, Problem> {
        self.queue_named(queue).await?;
        let mut letters = Vec::new();
        for way in [tasks_of(queue), results_of(queue)] {
            let found = self.0.broker.dead_letters(&way, limit).await.map_err(unshown)?;
            letters.extend(found.into_iter().map(|letter| Letter {
                id: letter.id().0,
                way: way.clone(),
                bytes: letter.body.len() as u64,
                text: String::from_utf8_lossy(&letter.body[..letter.body.len().min(LETTER_BYTES_MAX)]).into_owned(),
                reason: letter.reason,
            }));
        }
        Ok(letters)
    }

    /// Ways on which there are any.
    pub async fn letter_counts(&self) -> Result<Vec<LetterCount>, Problem> {
        let rows = self.0.store.queues(0).await.map_err(refused)?;
        let mut ways = BTreeMap::new();
        for queue in rows.into_iter().take(QUEUES_MAX).map(|row| row.spec.name) {
            ways.entry(results_of(&queue)).or_insert_with(|| queue.clone());
            ways.insert(tasks_of(&queue), queue);
        }
        let counts = counted(&self.0.broker, ways.into_iter().map(|(way, queue)| (queue, way)).collect()).await;
        let counts = counts.map_err(unshown)?.into_iter().filter(|(_, _, letters)| *letters > 0);
        Ok(counts.map(|(queue, way, letters)| LetterCount { way, queue, letters }).collect())
    }

    /// Those on the ways of a queue: all, or those with an id.
    pub async fn remove_letters(&self, queue: &QueueName, which: Letters) -> Result<LettersRemoved, Problem> {
        self.queue_named(queue).await?;
        let mut letters = 0;
        for way in [tasks_of(queue), results_of(queue)] {
            letters += self.0.broker.remove_dead_letters(&way, &which).await.map_err(unshown)?;
        }
        match which {
            Letters::One(LetterId(id)) if letters == 0 => {
                Err(Problem::not_found(format!("there is no dead letter {id} on the ways of queue \"{queue}\""))
                    .remedy(format!("`mutirao task letters --queue {queue}` shows those that are there")))
            }
            _ => Ok(LettersRemoved { letters }),
        }
    }
}

/// How many dead letters lie on each way, in the order given.
pub(crate) async fn counted(
    broker: &Broker,
    ways: Vec<(QueueName, String)>,
) -> Result<Vec<(QueueName, String, u64)>, BrokerError> {
    let mut counting = Vec::with_capacity(ways.len());
    for (queue, way) in ways {
        counting.push(count(broker.clone(), queue, way));
    }
    stream::iter(counting).buffered(ASKED_MAX).try_collect().await
}

async fn count(broker: Broker, queue: QueueName, way: String) -> Result<(QueueName, String, u64), BrokerError> {
    let letters = broker.count_dead_letters(&way).await?;
    Ok((queue, way, letters))
}

fn unshown(error: BrokerError) -> Problem {
    Problem::unavailable(format!("the broker does not show its dead letters: {error}"))
}
