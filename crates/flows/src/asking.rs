//! Asking whoever looks after a run where it waits: what is out is known to its owner only. Through its door when that is
//! here, else by the broker, where whoever is the owner hears it. A question is repeated until it is answered, or the
//! asker's patience ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard, Shared as Broker};
use mutirao_core::Clock;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::shard::MemberId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::foreman::explaining::StepExplained;
use crate::foreman::words::RunKey;
use crate::post::{Doors, Word};
use crate::shard_of;

/// Where questions are asked.
const ASKS: &str = "asks.flows";
/// Questions of this process that may wait for other processes.
const WAITING_MAX: usize = 1_024;
/// After which a question is asked again.
const AGAIN: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(200);
/// How long an owner takes to answer, at most.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Questions of one millisecond of a life have numbers of their own.
const NUMBER_BITS: u32 = 16;
/// What is unique about a member is at its end.
const MEMBER_CHARS_MAX: usize = 100;

/// Manager → the owner of a run.
#[derive(Serialize, Deserialize)]
struct Asked {
    v: Version,
    answer_to: String,
    /// The asker's own; it comes back with the answer.
    number: u64,
    run: RunKey,
}

/// The owner → whoever asked.
#[derive(Serialize, Deserialize)]
struct Answered {
    v: Version,
    number: u64,
    steps: Vec<StepExplained>,
}

pub struct Asking {
    broker: Broker,
    clock: Arc<dyn Clock>,
    doors: Doors,
    answer_to: String,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Vec<StepExplained>>>>,
    last_number: AtomicU64,
}

impl Asking {
    pub fn new(broker: Broker, clock: Arc<dyn Clock>, doors: Doors, me: &MemberId) -> Arc<Self> {
        // A member goes on under its name after a restart: what its former life was answered late must match nothing.
        let last_number = AtomicU64::new((clock.now().0.max(0) as u64) << NUMBER_BITS);
        Arc::new(Self { broker, clock, doors, answer_to: answers_to(&me.0), waiting: Mutex::default(), last_number })
    }

    /// None: nobody who has it under way answers.
    pub async fn explain(&self, run: RunKey, patience: Duration) -> Option<Vec<StepExplained>> {
        match self.doors.of(shard_of(run)) {
            Some(_) => self.clock.timeout(patience, self.here(run)).await.ok().flatten(),
            None => self.clock.timeout(patience, self.elsewhere(run)).await.ok().flatten(),
        }
    }

    async fn here(&self, run: RunKey) -> Option<Vec<StepExplained>> {
        let (told, answer) = oneshot::channel();
        self.doors.of(shard_of(run))?.send(Word::Explain(run, told)).await.ok()?;
        answer.await.ok().flatten()
    }

    async fn elsewhere(&self, run: RunKey) -> Option<Vec<StepExplained>> {
        let (waiting, mut answer) = self.expect()?;
        let asked = Asked { v: Version::default(), answer_to: self.answer_to.clone(), number: waiting.number, run };
        loop {
            if let Err(error) = self.broker.announce(ASKS, seal(&asked)).await {
                tracing::debug!(%error, "a question about a run was not announced");
            }
            if let Ok(answered) = self.clock.timeout(AGAIN, &mut answer).await {
                return answered.ok();
            }
        }
    }

    fn expect(&self) -> Option<(Waiting<'_>, oneshot::Receiver<Vec<StepExplained>>)> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX {
            return None;
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, answer) = oneshot::channel();
        waiting.insert(number, tell);
        Some((Waiting { asking: self, number }, answer))
    }

    /// Takes in what others ask, and what they answer, for as long as it is not dropped.
    pub async fn listen(self: Arc<Self>) {
        tokio::join!(self.keep_hearing(Ear::Answers), self.keep_hearing(Ear::Asks));
    }

    async fn keep_hearing(&self, ear: Ear) {
        loop {
            match self.hear(ear).await {
                Err(BrokerError::Closed) => return,
                Err(error) => tracing::debug!(%error, "questions about runs are not heard; trying again"),
                Ok(()) => {}
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    async fn hear(&self, ear: Ear) -> Result<(), BrokerError> {
        let topic = if ear == Ear::Asks { ASKS } else { &self.answer_to };
        let mut heard = self.broker.subscribe(topic).await?;
        loop {
            // What was missed is asked again.
            let Heard::Message(body) = heard.next().await? else { continue };
            match ear {
                Ear::Asks => self.answer(&body).await,
                Ear::Answers => {
                    let Ok(Answered { number, steps, .. }) = open::<Answered>(&body) else { continue };
                    let asker = self.waiting.lock().remove(&number);
                    // It may have given up this moment.
                    asker.map(|asker| asker.send(steps));
                }
            }
        }
    }

    /// Whoever does not look after it says nothing.
    async fn answer(&self, body: &[u8]) {
        let Ok(Asked { answer_to, number, run, .. }) = open::<Asked>(body) else { return };
        if self.doors.of(shard_of(run)).is_none() {
            return;
        }
        let Ok(Some(steps)) = self.clock.timeout(ANSWER_WITHIN, self.here(run)).await else { return };
        let answered = Answered { v: Version::default(), number, steps };
        if let Err(error) = self.broker.announce(&answer_to, seal(&answered)).await {
            tracing::debug!(%error, "an answer about a run was not announced");
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Ear {
    Asks,
    Answers,
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

/// The topic of one member. Names of hosts may have what names of topics may not; what tells members apart is plain.
fn answers_to(member: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    let tail: Vec<char> = member.chars().rev().take(MEMBER_CHARS_MAX).collect();
    format!("answers.flows.{}", tail.into_iter().rev().map(plain).collect::<String>())
}
