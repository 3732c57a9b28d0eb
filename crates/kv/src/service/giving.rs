//! Writes, from whoever gives them until they are durable or applied.

use std::time::Duration;

use mutirao_core::auth::Principal;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Mono, Problem, ShardId};

use super::{Kv, PAUSE, WriteView};
use crate::intake::{Answer, NotTaken, Receipt, Until};
use crate::problems::{full, told, unconfirmed};
use crate::write::{Change, Condition, Key, Place, Write};

/// How long a write, or a whole batch, waits for shards to have owners again.
const OWNER_WITHIN: Duration = Duration::from_secs(5);
/// How long a write, or a whole batch, may take to become durable: longer than whoever makes it so tries.
const DURABLE_WITHIN: Duration = Duration::from_secs(15);
/// How long its giver waits for what is durable to be applied; then it is told that it is queued.
const APPLIED_WITHIN: Duration = Duration::from_secs(10);

/// Tells when a durable write is applied.
type Applying = tokio::sync::oneshot::Receiver<Answer>;

impl Kv {
    /// Answered when it is durable, or applied. One on a condition is always answered when it is applied.
    pub async fn write(
        &self,
        caller: &Principal,
        key: Key,
        change: Change,
        condition: Condition,
        until: Until,
    ) -> Result<WriteView, Problem> {
        let begun = self.0.clock.monotonic();
        let place = Place { namespace: caller.namespace.as_str().into(), key };
        let receipt = self.give(Write { place, change, condition }, until, begun).await?;
        let (answer, applied) = self.durable(receipt, begun.plus(DURABLE_WITHIN)).await?;
        self.applied(answer, applied, self.0.clock.monotonic().plus(APPLIED_WITHIN)).await
    }

    /// Each for itself, those of one key in order; the answers in the order of the operations. However many they are, the
    /// caller waits no longer than for one.
    pub async fn batch(
        &self,
        caller: &Principal,
        operations: Vec<(Key, Change, Condition)>,
        until: Until,
    ) -> Vec<Result<WriteView, Problem>> {
        let begun = self.0.clock.monotonic();
        let mut given = Vec::new();
        for (key, change, condition) in operations {
            let place = Place { namespace: caller.namespace.as_str().into(), key };
            given.push(self.give(Write { place, change, condition }, until, begun).await);
        }
        let mut durable = Vec::new();
        for receipt in given {
            durable.push(match receipt {
                Ok(receipt) => self.durable(receipt, begun.plus(DURABLE_WITHIN)).await,
                Err(problem) => Err(problem),
            });
        }
        let by = self.0.clock.monotonic().plus(APPLIED_WITHIN);
        let mut answers = Vec::new();
        for one in durable {
            answers.push(match one {
                Ok((answer, applied)) => self.applied(answer, applied, by).await,
                Err(problem) => Err(problem),
            });
        }
        answers
    }

    async fn durable(&self, receipt: Receipt, by: Mono) -> Result<(Answer, Option<Applying>), Problem> {
        let Receipt { durable, applied } = receipt;
        let clock = &self.0.clock;
        match clock.timeout(by.since(clock.monotonic()), durable).await {
            Ok(answer) => Ok((answer.unwrap_or(Answer::Broken), applied)),
            Err(_) => Err(unconfirmed(None)),
        }
    }

    async fn applied(&self, durable: Answer, applied: Option<Applying>, by: Mono) -> Result<WriteView, Problem> {
        let (Answer::Queued { id }, Some(applied)) = (&durable, applied) else { return told(durable) };
        let clock = &self.0.clock;
        match clock.timeout(by.since(clock.monotonic()), applied).await {
            Ok(Ok(answer)) => told(answer),
            // It is durable, and will be applied: whoever needs to know asks after it.
            Ok(Err(_)) | Err(_) => told(Answer::Queued { id: *id }),
        }
    }

    /// Waits for the shard to have an owner, as it has not between two of them.
    async fn give(&self, mut write: Write, until: Until, begun: Mono) -> Result<Receipt, Problem> {
        if write.change == Change::Delete && write.condition == Condition::Absent {
            return Err(Problem::invalid("If-None-Match", "what is not there cannot be removed")
                .remedy("give the revision that it is to have, or no condition"));
        }
        let shard = write.place.shard();
        let until = if write.condition == Condition::None { until } else { Until::Applied };
        loop {
            match self.0.intake.give(shard, write, until) {
                Ok(receipt) => return Ok(receipt),
                Err(NotTaken::Full) => return Err(full()),
                Err(NotTaken::NotHere(back)) => write = *back,
            }
            if self.0.clock.monotonic().since(begun) >= OWNER_WITHIN {
                return Err(self.elsewhere(shard));
            }
            self.0.clock.sleep(PAUSE).await;
        }
    }

    fn elsewhere(&self, shard: ShardId) -> Problem {
        match self.0.shards.owner_of(shard) {
            Some((_, address)) if !address.is_empty() => {
                Problem::unavailable("another manager applies the writes to this key; nothing was written")
                    .remedy(format!("ask {address}"))
            }
            _ => Problem::unavailable("nobody applies the writes to this key at the moment; nothing was written")
                .remedy("try again in a few seconds"),
        }
    }
}
