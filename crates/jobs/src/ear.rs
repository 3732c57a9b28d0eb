//! The ear of a post: questions that other managers ask of its shard, put to the foreman, and the answers sent back.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard, Shared as Broker};
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::{Clock, ShardId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::doors::Ask;
use crate::question::{Answer, Answered, Asked, Question, asks_of};
use crate::queues::looks::broker_trouble;

const PAUSE: Duration = Duration::from_millis(200);
/// After a refusal, which somebody has to put right.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_secs(2);
/// Questions that may wait for an answer. Whoever is not heard asks again.
const UNANSWERED_MAX: usize = 256;

/// Until the foreman hangs up or the broker is closed.
pub(crate) async fn listen(broker: Broker, shard: ShardId, clock: Arc<dyn Clock>, foreman: mpsc::Sender<Ask>) {
    while !foreman.is_closed() {
        let pause = match hear(&broker, shard, &foreman).await {
            Ok(()) | Err(BrokerError::Closed) => return,
            Err(error) => {
                tracing::debug!(%shard, %error, "questions of other managers are not heard; trying again");
                if matches!(error, BrokerError::Refused { .. }) { REFUSED_PAUSE } else { PAUSE }
            }
        };
        clock.sleep(pause).await;
    }
}

async fn hear(broker: &Broker, shard: ShardId, foreman: &mpsc::Sender<Ask>) -> Result<(), BrokerError> {
    let mut questions = broker.subscribe(&asks_of(shard)).await?;
    let mut answering = JoinSet::new();
    loop {
        let heard = tokio::select! {
            heard = questions.next() => heard?,
            Some(_) = answering.join_next() => continue,
        };
        // Whoever asked and was missed asks again.
        let Heard::Message(body) = heard else { continue };
        let asked: Asked = match open(&body) {
            Ok(asked) => asked,
            Err(unreadable) => {
                tracing::debug!(%unreadable, "a question cannot be read");
                continue;
            }
        };
        if answering.len() >= UNANSWERED_MAX {
            continue;
        }
        let (tell, told) = oneshot::channel();
        let queue = match &asked.question {
            Question::Facts { queue } => Some(queue.clone()),
            _ => None,
        };
        if foreman.send(Ask::Question(asked.question, tell)).await.is_err() {
            return Ok(());
        }
        let broker = broker.clone();
        answering.spawn(async move {
            let Ok(mut answer) = told.await else { return };
            if let (Answer::Facts(facts), Some(queue)) = (&mut answer, queue) {
                facts.broker = broker_trouble(&broker, &queue);
            }
            let answered = Answered { v: Version::default(), number: asked.number, answer };
            if let Err(error) = broker.announce(&asked.answer_to, seal(&answered)).await {
                tracing::debug!(%error, "an answer was not sent");
            }
        });
    }
}
