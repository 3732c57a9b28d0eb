//! Work queues: quorum queues, published to with confirms, each with a queue of [dead letters](super::letters)
//! beside it.
//!
//! What cannot be known over AMQP: how many messages are with the consumers of *other* processes. [`Counts::unacked`]
//! counts those of this one.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use mutirao_core::Mono;

use super::line::Up;
use super::names::Work;
use super::post::{Address, MustArrive, Undelivered, persistent};
use super::refusals::Deed;
use super::topology::{ensure_work, look, remove_work};
use super::trouble::Trouble;
use super::{Inner, Part};
use crate::memory::{check_size, refused};
use crate::{BrokerError, Counts, Deletion, Name};

/// How long a queue is asked that says no when it is not plainly full, that is not there, or that does not answer though
/// the server is connected: it may have lost its leader, and others must not wait for that.
const NOT_TAKEN_MAX: Duration = Duration::from_secs(10);

/// Since when a queue has been asked for the same, on one connection.
#[derive(Default)]
pub(super) struct Since(Option<(u64, Mono)>);

impl Since {
    pub fn begin(&mut self, generation: u64, now: Mono) {
        if self.0.is_none_or(|(of, _)| of != generation) {
            self.0 = Some((generation, now));
        }
    }

    fn too_long(&self, now: Mono) -> bool {
        self.0.is_some_and(|(_, since)| now.since(since) >= NOT_TAKEN_MAX)
    }
}

/// How far a batch has come.
struct Progress {
    /// Not confirmed yet.
    left: BTreeSet<usize>,
    /// Why it is not known of an earlier try whether some of that got through.
    doubt: Option<String>,
}

impl Progress {
    /// What its sender is told at last: that nothing was taken can be said only of what never was in doubt.
    fn ended_by(self, error: BrokerError) -> BrokerError {
        match self.doubt {
            Some(why) => BrokerError::Unreachable(format!("{why}; tried again: {error}")),
            None => error,
        }
    }
}

impl Inner {
    pub async fn publish(&self, queue: &Name, batch: &[Bytes]) -> Result<(), BrokerError> {
        batch.iter().try_for_each(check_size)?;
        let work = self.names.work(queue)?;
        let to = match (self.part, &work.entrance, &work.topic) {
            (Part::Manager, _, Some((exchange, key))) => (exchange.as_str(), key.as_str()),
            (Part::Manager, _, None) => ("", work.queue.as_str()),
            (Part::Worker, Some(entrance), _) => (entrance.as_str(), work.queue.as_str()),
            (Part::Worker, None, _) => return Err(refused(queue, "a worker publishes nothing but reports")),
        };
        let sent = self.deliver(&work, to, batch, &self.signed(persistent())).await;
        match &sent {
            Ok(()) => self.refusals.done(Deed::Send, &work.queue),
            Err(error) => self.refusals.note(Deed::Send, &work.queue, error),
        }
        sent
    }

    /// With our user on it, for which the server vouches.
    fn signed(&self, properties: BasicProperties) -> BasicProperties {
        properties.with_user_id(self.user().as_str().into())
    }

    /// Sends until all is confirmed, over reconnects if need be, or until the queue has not taken it for too long; what was
    /// confirmed is not sent again. `to` is an exchange and a key.
    pub(super) async fn deliver(
        &self,
        work: &Work,
        to: (&str, &str),
        batch: &[Bytes],
        properties: &BasicProperties,
    ) -> Result<(), BrokerError> {
        let mut progress = Progress { left: (0..batch.len()).collect(), doubt: None };
        let mut since = Since::default();
        loop {
            let up = self.giving.up().await?;
            since.begin(up.generation, self.clock.monotonic());
            let Err(undelivered) = self.attempt(&up, work, to, batch, properties, &mut progress).await else {
                return Ok(());
            };
            match undelivered {
                Undelivered::Trouble(Trouble::Said(error)) => return Err(progress.ended_by(error)),
                Undelivered::Trouble(Trouble::Lost(why)) => {
                    tracing::debug!(key = to.1, why, "a batch is sent again");
                    self.still_worth_it(&up, &since, &work.queue, &why).await?;
                }
                Undelivered::Nacked => {
                    // A queue says no in the same way when it is full and when it has no leader for the moment, and it
                    // may have taken a part. So only one that looks full and took nothing is full at once; otherwise
                    // the rest is offered again for a while.
                    let ready = self.ready(&up, work).await;
                    let looks_full = ready >= self.limits.queue_messages_max * 3 / 4;
                    if (looks_full && progress.left.len() == batch.len()) || since.too_long(self.clock.monotonic()) {
                        let bound = if looks_full { self.limits.queue_messages_max } else { ready };
                        return Err(progress.ended_by(BrokerError::Full { name: work.queue.clone(), bound }));
                    }
                }
                // Deleted under us. A manager makes it anew, once the old one is quite gone; a worker waits for that.
                Undelivered::Unroutable => {
                    self.giving.forget_declared(&work.queue);
                    self.still_worth_it(&up, &since, &work.queue, "it is not there; a manager makes it").await?;
                }
            }
            self.giving.after_loss(up.generation).await;
        }
    }

    /// An error when the queue has kept us waiting for too long and the server has not: when the server is away, whatever is
    /// asked waits until it is back.
    pub(super) async fn still_worth_it(
        &self,
        up: &Up,
        since: &Since,
        queue: &str,
        why: &str,
    ) -> Result<(), BrokerError> {
        let same = self.giving.now().is_ok_and(|now| now.generation == up.generation);
        if same && since.too_long(self.clock.monotonic()) && self.giving.answered(up, up.channel()).await.is_ok() {
            return Err(BrokerError::Unreachable(format!("{queue}: {why}")));
        }
        Ok(())
    }

    async fn attempt(
        &self,
        up: &Up,
        work: &Work,
        (exchange, key): (&str, &str),
        batch: &[Bytes],
        properties: &BasicProperties,
        progress: &mut Progress,
    ) -> Result<(), Undelivered> {
        self.giving.answered(up, ensure_work(&self.giving, up, work, &self.limits, self.part)).await?;
        let seat = self.post.seat(&self.giving, up).await?;
        let to = Address { exchange, key, must_arrive: MustArrive::Yes };
        let sent = seat.send(&to, batch, properties, &mut progress.left).await;
        if let Err(Undelivered::Trouble(Trouble::Lost(why))) = &sent {
            progress.doubt = Some(why.clone());
        }
        sent?;
        seat.leave();
        Ok(())
    }

    async fn ready(&self, up: &Up, work: &Work) -> usize {
        let looked = self.giving.answered(up, look(up, &work.queue)).await;
        looked.ok().flatten().map_or(0, |queue| queue.message_count() as usize)
    }

    pub async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        let work = self.names.work(queue)?;
        let mut since = Since::default();
        loop {
            let up = self.giving.up().await?;
            since.begin(up.generation, self.clock.monotonic());
            match self.giving.answered(&up, self.count(&up, &work)).await {
                Ok(counts) => return Ok(counts),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(why)) => self.still_worth_it(&up, &since, &work.queue, &why).await?,
            }
            self.giving.after_loss(up.generation).await;
        }
    }

    async fn count(&self, up: &Up, work: &Work) -> Result<Counts, Trouble> {
        ensure_work(&self.giving, up, work, &self.limits, self.part).await?;
        let (Some(waiting), Some(dead)) = (look(up, &work.queue).await?, look(up, &work.dead).await?) else {
            self.giving.forget_declared(&work.queue);
            return Err(Trouble::Lost("it was deleted just now".into()));
        };
        Ok(Counts {
            ready: waiting.message_count().into(),
            unacked: self.holders.unsettled(&work.queue),
            dead: dead.message_count().into(),
            consumers: waiting.consumer_count().into(),
        })
    }

    pub async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError> {
        let work = self.names.work(queue)?;
        if self.part == Part::Worker {
            return Err(refused(queue, "a worker deletes nothing"));
        }
        let mut since = Since::default();
        loop {
            let up = self.giving.up().await?;
            since.begin(up.generation, self.clock.monotonic());
            let removed = self.giving.answered(&up, remove_work(&up, &work)).await;
            for line in [&self.giving, &self.taking] {
                line.forget_declared(&work.queue);
            }
            match removed {
                Ok(deletion) => return Ok(deletion),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(why)) => self.still_worth_it(&up, &since, &work.queue, &why).await?,
            }
            self.giving.after_loss(up.generation).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_taken_is_never_told_to_be_refused() {
        let full = || BrokerError::Full { name: "q".into(), bound: 3 };
        let sure = Progress { left: BTreeSet::from([0]), doubt: None };
        assert_eq!(sure.ended_by(full()), full());
        let in_doubt = Progress { left: BTreeSet::from([0]), doubt: Some("the connection broke".into()) };
        let BrokerError::Unreachable(why) = in_doubt.ended_by(full()) else { panic!("it may have been taken") };
        assert!(why.contains("the connection broke") && why.contains("q is full"), "{why}");
    }
}
