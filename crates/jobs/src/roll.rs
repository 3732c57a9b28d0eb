//! The roll of workers: for which queue each was enrolled. The link holds a worker's beats to it by its connection; over
//! RabbitMQ, where the server vouches for who speaks and for nothing else, the owner of the shard does it here.
//!
//! Not here: who is let in at all (the API's, and RabbitMQ's).

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::envelope::Reports;
use mutirao_core::id::{QueueName, SessionId, WorkerId};

/// Sessions remembered as held to the roll.
const SESSIONS_MAX: usize = 10_000;

/// Who knows for which queue a worker was enrolled.
#[async_trait]
pub trait Roll: Send + Sync + 'static {
    /// Whether it was enrolled for this one. Who is not enrolled any more did serve it, as far as anybody knows; whether it
    /// may still speak is for others to say. The error is why it cannot be told now.
    async fn serves(&self, worker: &WorkerId, queue: &QueueName) -> Result<bool, String>;
}

/// What one consumer of reports remembers of it.
pub(crate) struct RollCall {
    roll: Option<Arc<dyn Roll>>,
    held: HashSet<(SessionId, QueueName)>,
}

impl RollCall {
    /// Without a roll, whoever may speak at all is believed.
    pub fn by(roll: Option<Arc<dyn Roll>>) -> Self {
        Self { roll, held: HashSet::new() }
    }

    /// Whether these reports are of a worker that serves the queue which it says it does; the error is the reason.
    pub async fn hold(&mut self, reports: &Reports) -> Result<(), String> {
        let (Some(roll), Some(beat)) = (&self.roll, &reports.beat) else { return Ok(()) };
        let key = (reports.session.clone(), beat.queue.clone());
        if self.held.contains(&key) {
            return Ok(());
        }
        match roll.serves(&reports.worker, &beat.queue).await {
            Ok(true) => {}
            Ok(false) => return Err(format!("worker {} was not enrolled for queue {}", reports.worker, beat.queue)),
            // A beat that is not heard costs the worker its lease: it is believed, and the next one is held to the roll.
            Err(error) => {
                tracing::warn!(worker = %reports.worker, error, "for which queue a worker was enrolled cannot be looked up");
                return Ok(());
            }
        }
        if self.held.len() >= SESSIONS_MAX {
            self.held.clear();
        }
        self.held.insert(key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::envelope::Beat;
    use mutirao_core::task::Needs;
    use parking_lot::Mutex;

    use super::*;

    /// Of one worker, and what it cannot tell.
    struct Known {
        queue: QueueName,
        troubles: Mutex<Vec<Option<String>>>,
    }

    #[async_trait]
    impl Roll for Known {
        async fn serves(&self, _: &WorkerId, queue: &QueueName) -> Result<bool, String> {
            self.troubles.lock().remove(0).map_or(Ok(*queue == self.queue), Err)
        }
    }

    fn beat_for(queue: &QueueName) -> Reports {
        let beat = Beat {
            queue: queue.clone(),
            host: "h".into(),
            pid: 1,
            capacity: Needs::default(),
            draining: false,
            leaving: false,
            held: Vec::new(),
        };
        Reports { beat: Some(beat), ..Reports::new(SessionId("s".into()), WorkerId("w".into())) }
    }

    #[tokio::test]
    async fn a_worker_beats_for_the_queue_that_it_was_enrolled_for_whoever_carries_it() {
        let [own, other] = ["own", "other"].map(|name| name.parse::<QueueName>().unwrap());
        let troubles = Mutex::new(vec![None, None, Some("away".into()), None]);
        let mut call = RollCall::by(Some(Arc::new(Known { queue: own.clone(), troubles })));
        assert_eq!(call.hold(&beat_for(&own)).await, Ok(()));
        assert_eq!(call.hold(&beat_for(&own)).await, Ok(()), "without asking again");
        let why = call.hold(&beat_for(&other)).await.unwrap_err();
        assert!(why.contains("not enrolled for queue other"), "{why}");
        assert_eq!(call.hold(&beat_for(&other)).await, Ok(()), "while it cannot be told");
        assert!(call.hold(&beat_for(&other)).await.is_err(), "and no longer");
        let silent = Reports { beat: None, ..beat_for(&other) };
        assert_eq!(call.hold(&silent).await, Ok(()), "it says nothing of a queue");
    }
}
