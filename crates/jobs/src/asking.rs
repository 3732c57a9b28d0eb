//! Asking the owner of a shard: through its door when it is here, else by the broker, where whoever is the owner now
//! hears it. A question is repeated until it is answered or the asker's patience ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard, Shared as Broker};
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::{Clock, Mono, Problem, ShardId};
use mutirao_shards::MemberId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::doors::{Ask, Door, Doors};
use crate::ear::REFUSED_PAUSE;
use crate::question::{Answer, Answered, Asked, Question, answers_to, asks_of};

/// Questions of this process that may wait for other processes.
const WAITING_MAX: usize = 4_096;
/// After which a question is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// Questions of one millisecond of a life have numbers of their own.
const NUMBER_BITS: u32 = 16;
/// Between two tries at a door that closes.
const BLINK: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(200);

/// The owner of a shard did not answer: there is none at this moment, or it cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("whoever looks after shard {shard} does not answer")]
pub struct Silent {
    pub shard: ShardId,
}

impl From<Silent> for Problem {
    fn from(silent: Silent) -> Self {
        Self { retry_after_s: Some(2), ..Problem::unavailable(silent.to_string()) }
            .remedy("try again in a moment: another manager takes over when one is gone")
    }
}

pub(crate) struct Asking {
    broker: Broker,
    clock: Arc<dyn Clock>,
    doors: Doors,
    answer_to: String,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    last_number: AtomicU64,
}

impl Asking {
    pub fn new(broker: Broker, clock: Arc<dyn Clock>, doors: Doors, me: &MemberId) -> Arc<Self> {
        // A member goes on under its name after a restart: what its former life was answered late must match nothing.
        let last_number = AtomicU64::new((clock.now().0.max(0) as u64) << NUMBER_BITS);
        Arc::new(Self { broker, clock, doors, answer_to: answers_to(&me.0), waiting: Mutex::default(), last_number })
    }

    pub async fn ask(&self, shard: ShardId, question: Question, patience: Duration) -> Result<Answer, Silent> {
        let until = self.clock.monotonic().plus(patience);
        loop {
            let answer = match self.doors.of(shard) {
                Some(door) => self.ask_here(door, &question, until).await,
                None => self.ask_elsewhere(shard, &question, until).await,
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
            if self.clock.monotonic() >= until {
                return Err(Silent { shard });
            }
        }
    }

    /// Says something to the owner that it would find out by itself, only later.
    pub async fn tell(&self, shard: ShardId, word: Question) {
        match self.doors.of(shard) {
            Some(door) => {
                let (unheard, _) = oneshot::channel();
                door.tell(Ask::Question(word, unheard), &*self.clock).await;
            }
            None => self.announce(shard, 0, word).await,
        }
    }

    /// None when the door closes, or nobody comes to it in time.
    async fn ask_here(&self, door: Door, question: &Question, until: Mono) -> Option<Answer> {
        let (tell, told) = oneshot::channel();
        let asked = async {
            door.asks.send(Ask::Question(question.clone(), tell)).await.ok()?;
            told.await.ok()
        };
        let left = until.since(self.clock.monotonic());
        let answer = self.clock.timeout(left, asked).await.ok()?;
        if answer.is_none() {
            self.clock.sleep(BLINK).await;
        }
        answer
    }

    /// None when it is time to ask again: here, if a door opened.
    async fn ask_elsewhere(&self, shard: ShardId, question: &Question, until: Mono) -> Option<Answer> {
        let mut doors = self.doors.changes();
        doors.mark_unchanged();
        let Some((number, told)) = self.expect() else {
            // Too many wait already, so this one waits for its turn.
            self.clock.sleep(AGAIN.min(until.since(self.clock.monotonic()))).await;
            return None;
        };
        let _waiting = Waiting { asking: self, number };
        let answered = async {
            tokio::pin!(told);
            loop {
                self.announce(shard, number, question.clone()).await;
                if let Ok(told) = self.clock.timeout(AGAIN, &mut told).await {
                    return told.ok();
                }
            }
        };
        let left = until.since(self.clock.monotonic());
        let opened = async {
            // The sender is ours.
            let _ = doors.wait_for(|doors| doors.contains_key(&shard)).await;
        };
        tokio::select! {
            answer = answered => answer,
            () = opened => None,
            () = self.clock.sleep(left) => None,
        }
    }

    fn expect(&self) -> Option<(u64, oneshot::Receiver<Answer>)> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX {
            return None;
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, told) = oneshot::channel();
        waiting.insert(number, tell);
        Some((number, told))
    }

    async fn announce(&self, shard: ShardId, number: u64, question: Question) {
        let asked = Asked { v: Version::default(), answer_to: self.answer_to.clone(), number, question };
        if let Err(error) = self.broker.announce(&asks_of(shard), seal(&asked)).await {
            tracing::debug!(%shard, %error, "a question was not announced");
        }
    }

    /// Takes in the answers of other processes, until the broker is closed.
    pub async fn listen(self: Arc<Self>) {
        loop {
            let pause = match self.hear().await {
                Err(BrokerError::Closed) => return,
                Err(error) => {
                    tracing::debug!(%error, "answers are not heard; trying again");
                    if matches!(error, BrokerError::Refused { .. }) { REFUSED_PAUSE } else { PAUSE }
                }
                Ok(()) => PAUSE,
            };
            self.clock.sleep(pause).await;
        }
    }

    async fn hear(&self) -> Result<(), BrokerError> {
        let mut answers = self.broker.subscribe(&self.answer_to).await?;
        loop {
            // What was missed is asked again.
            let Heard::Message(body) = answers.next().await? else { continue };
            match open::<Answered>(&body) {
                Ok(Answered { number, answer, .. }) => {
                    let asker = self.waiting.lock().remove(&number);
                    if let Some(asker) = asker {
                        // It may have given up this moment.
                        let _ = asker.send(answer);
                    }
                }
                Err(unreadable) => tracing::debug!(%unreadable, "an answer cannot be read"),
            }
        }
    }
}

/// A question that waits for an answer; forgotten when dropped.
struct Waiting<'a> {
    asking: &'a Asking,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.asking.waiting.lock().remove(&self.number);
    }
}
