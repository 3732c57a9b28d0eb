//! The broker's dead letters: messages that a worker or a manager could not make sense of. Shown, counted and removed. What
//! they were about is not lost with them: tasks that nobody reports are handed out again.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use mutirao_broker::{BrokerError, DeadLetter, LetterId, Letters, Shared as Broker};
use mutirao_core::Problem;
use mutirao_core::envelope::{results_at, results_of, tasks_of};
use mutirao_core::id::QueueName;
use mutirao_core::job::{Letter, LetterCount, LettersRemoved};
use mutirao_core::shard::{JOBS_SHARDS, ShardId};
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
        let mut letters = self.letters_on(&tasks_of(queue), limit).await?;
        letters.extend(self.letters_on(&results_of(queue), limit).await?);
        Ok(letters)
    }

    /// Those on one way, the oldest first.
    pub async fn letters_by(&self, way: &str, limit: u32) -> Result<Vec<Letter>, Problem> {
        self.way_named(way).await?;
        self.letters_on(way, limit).await
    }

    async fn letters_on(&self, way: &str, limit: u32) -> Result<Vec<Letter>, Problem> {
        let found = self.0.broker.dead_letters(way, limit).await.map_err(unshown)?;
        let letter = |letter: DeadLetter| Letter {
            id: letter.id().0,
            way: way.to_owned(),
            bytes: letter.body.len() as u64,
            text: String::from_utf8_lossy(&letter.body[..letter.body.len().min(LETTER_BYTES_MAX)]).into_owned(),
            reason: letter.reason,
        };
        Ok(found.into_iter().map(letter).collect())
    }

    /// The ways that jobs go: to the workers of each queue, and from those of each shard.
    async fn ways(&self) -> Result<BTreeMap<String, Option<QueueName>>, Problem> {
        let rows = self.0.store.queues(0).await.map_err(refused)?;
        let mut ways: BTreeMap<_, _> = (0..JOBS_SHARDS).map(|shard| (results_at(ShardId(shard)), None)).collect();
        for queue in rows.into_iter().take(QUEUES_MAX).map(|row| row.spec.name) {
            ways.entry(results_of(&queue)).or_default().get_or_insert_with(|| queue.clone());
            ways.insert(tasks_of(&queue), Some(queue));
        }
        Ok(ways)
    }

    async fn way_named(&self, way: &str) -> Result<(), Problem> {
        if self.ways().await?.contains_key(way) {
            return Ok(());
        }
        let way: String = way.chars().take(100).collect();
        Err(Problem::not_found(format!("there is no way \"{way}\" that jobs go"))
            .remedy("`mutirao task letters` shows the ways on which there are letters"))
    }

    /// Ways on which there are any.
    pub async fn letter_counts(&self) -> Result<Vec<LetterCount>, Problem> {
        let mut ways = self.ways().await?;
        let counts = counted(&self.0.broker, ways.keys().map(|way| ((), way.clone())).collect()).await;
        let counts = counts.map_err(unshown)?.into_iter().filter(|(_, _, letters)| *letters > 0);
        let count = |((), way, letters)| LetterCount { queue: ways.remove(&way).flatten(), way, letters };
        Ok(counts.map(count).collect())
    }

    /// Those on one way: all, or those with an id.
    pub async fn remove_letters_by(&self, way: &str, which: Letters) -> Result<LettersRemoved, Problem> {
        self.way_named(way).await?;
        let letters = self.0.broker.remove_dead_letters(way, &which).await.map_err(unshown)?;
        match which {
            Letters::One(LetterId(id)) if letters == 0 => {
                Err(Problem::not_found(format!("there is no dead letter {id} in {way}"))
                    .remedy("`mutirao task letters` shows those that are there"))
            }
            _ => Ok(LettersRemoved { letters }),
        }
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
pub(crate) async fn counted<Of: Send>(
    broker: &Broker,
    ways: Vec<(Of, String)>,
) -> Result<Vec<(Of, String, u64)>, BrokerError> {
    let mut counting = Vec::with_capacity(ways.len());
    for (of, way) in ways {
        counting.push(count(broker.clone(), of, way));
    }
    stream::iter(counting).buffered(ASKED_MAX).try_collect().await
}

async fn count<Of>(broker: Broker, of: Of, way: String) -> Result<(Of, String, u64), BrokerError> {
    let letters = broker.count_dead_letters(&way).await?;
    Ok((of, way, letters))
}

fn unshown(error: BrokerError) -> Problem {
    Problem::unavailable(format!("the broker does not show its dead letters: {error}"))
}
