//! Writes by hand: what is given while a batch is being written waits and goes together into the next. Their commit makes
//! them durable.
//!
//! A batch whose answer got lost is tried again under the same number, and the store passes over what it has: so nothing
//! is applied twice, and whoever waits is told what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::ShardId;
use mutirao_store::StoreError;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::{Applied, Applier, BATCH_BYTES_MAX, BATCH_WRITES_MAX, Go, PAUSE};
use crate::fold::Fate;
use crate::intake::{Answer, Held, Intake, NotTaken, Receipt, Until, Weight};
use crate::meters;
use crate::store::Known;
use crate::write::{Parcel, Producer, Write, WriteId};

/// Writes that wait for one shard; whoever comes then is asked to come again.
const WAITING_MAX: usize = 4_096;
/// For how long a batch is tried while the store does not answer.
const TRY_FOR: Duration = Duration::from_secs(10);

pub struct Given {
    write: Write,
    answer: oneshot::Sender<Answer>,
    _held: Held,
}

/// One shard's.
struct Inbox {
    give: mpsc::Sender<Given>,
    weight: Weight,
}

/// Where writes are handed in, for the shards that are here.
#[derive(Clone, Default)]
pub struct Hands(Arc<Mutex<BTreeMap<ShardId, Inbox>>>);

impl Hands {
    pub(super) fn open(&self, shard: ShardId) -> mpsc::Receiver<Given> {
        let (give, given) = mpsc::channel(WAITING_MAX);
        self.0.lock().insert(shard, Inbox { give, weight: Weight::default() });
        given
    }

    pub(super) fn shut(&self, shard: ShardId) {
        self.0.lock().remove(&shard);
    }
}

impl Intake for Hands {
    fn give(&self, shard: ShardId, write: Write, _until: Until) -> Result<Receipt, NotTaken> {
        let inboxes = self.0.lock();
        let Some(Inbox { give, weight }) = inboxes.get(&shard) else { return Err(NotTaken::NotHere(Box::new(write))) };
        let _held = weight.hold(write.bytes()).ok_or(NotTaken::Full)?;
        let (answer, durable) = oneshot::channel();
        give.try_send(Given { write, answer, _held }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotTaken::Full,
            mpsc::error::TrySendError::Closed(given) => NotTaken::NotHere(Box::new(given.write)),
        })?;
        Ok(Receipt { durable, applied: None })
    }
}

pub(super) struct Direct {
    applier: Applier,
    producer: Producer,
    number: u64,
}

/// What became of a batch.
enum Outcome {
    Each(Vec<Answer>),
    /// The same for all of it.
    All(Answer),
}

impl Direct {
    pub fn new(applier: Applier, producer: u64) -> Self {
        Self { applier, producer: Producer(producer), number: 0 }
    }

    /// Until the shard is another's.
    pub async fn run(mut self, mut given: mpsc::Receiver<Given>) {
        loop {
            let stays = self.applier.stays();
            if !stays {
                given.close();
            }
            self.applier.vouch().await;
            let mut batch = Vec::new();
            let clock = self.applier.bench.clock.clone();
            tokio::select! {
                biased;
                got = given.recv() => match got {
                    Some(first) => batch.push(first),
                    None => return,
                },
                () = clock.sleep(self.applier.nap(clock.now())) => {}
            }
            fill(&mut batch, &mut given);
            if let Go::Away = self.settle(batch).await {
                given.close();
            }
            if stays && let Go::Away = self.applier.tidy().await {
                given.close();
            }
        }
    }

    async fn settle(&mut self, batch: Vec<Given>) -> Go {
        if batch.is_empty() {
            return Go::On;
        }
        self.number += 1;
        let (writes, waiting): (Vec<Write>, Vec<_>) =
            batch.into_iter().map(|given| (given.write, given.answer)).unzip();
        let parcel = Parcel { producer: self.producer, number: self.number, writes };
        let outcome = self.apply(parcel).await;
        let gone = matches!(outcome, Outcome::All(Answer::Lost));
        if let Outcome::Each(answers) = &outcome {
            meters::accepted(answers.len());
        }
        for (index, answer) in waiting.into_iter().enumerate() {
            let id = self.id(index as u32);
            // Whoever asked may have gone.
            let _ = answer.send(match &outcome {
                Outcome::Each(answers) => answers[index].clone(),
                Outcome::All(Answer::Unknown { why, .. }) => Answer::Unknown { id, why: why.clone() },
                Outcome::All(all) => all.clone(),
            });
        }
        if gone { Go::Away } else { Go::On }
    }

    async fn apply(&mut self, parcel: Parcel) -> Outcome {
        let clock = self.applier.bench.clock.clone();
        let begun = clock.monotonic();
        // Why it is not known of an earlier try whether it got through.
        let mut doubt = None;
        loop {
            let error = match self.applier.apply(vec![parcel.clone()]).await {
                Ok(Applied::Done(mut taken)) => {
                    let Some(taken) = taken.pop() else { return self.recall(parcel.writes.len() as u32).await };
                    let settled = |(n, fate): (usize, &Fate)| Answer::Settled { id: self.id(n as u32), fate: *fate };
                    return Outcome::Each(taken.fates.iter().enumerate().map(settled).collect());
                }
                Ok(Applied::Fenced) => {
                    return Outcome::All(match doubt {
                        Some(why) => Answer::Unknown { id: self.id(0), why },
                        None => Answer::Lost,
                    });
                }
                Err(error) => error,
            };
            match error {
                StoreError::Unreachable { .. } | StoreError::Locked | StoreError::Busy { .. }
                    if clock.monotonic().since(begun) < TRY_FOR =>
                {
                    if let StoreError::Unreachable { why } = error {
                        doubt = Some(why);
                    }
                    clock.sleep(PAUSE).await;
                }
                StoreError::Unreachable { why } => return Outcome::All(Answer::Unknown { id: self.id(0), why }),
                refused => {
                    return Outcome::All(match doubt {
                        Some(why) => Answer::Unknown { id: self.id(0), why },
                        None => Answer::Refused(Arc::new(refused)),
                    });
                }
            }
        }
    }

    /// It had been applied by a try whose answer got lost.
    async fn recall(&self, writes: u32) -> Outcome {
        let mut answers = Vec::new();
        for index in 0..writes {
            let id = self.id(index);
            answers.push(match self.applier.bench.store.known(id).await {
                Ok(Known::Applied { revision, .. }) => Answer::Settled { id, fate: Fate::Applied { revision } },
                Ok(Known::Conflict) => Answer::Unfit,
                Ok(Known::LongAgo) => Answer::Queued { id },
                Ok(Known::No | Known::Coming | Known::Never | Known::Forgotten) => {
                    let why = "the parcel of these writes is not found again".into();
                    return Outcome::All(Answer::Unknown { id: self.id(0), why });
                }
                Err(error) => {
                    return Outcome::All(Answer::Unknown { id: self.id(0), why: error.to_string() });
                }
            });
        }
        Outcome::Each(answers)
    }

    fn id(&self, index: u32) -> WriteId {
        WriteId { shard: self.applier.fence.shard, producer: self.producer, number: self.number, index }
    }
}

/// Takes what waits already, as much as goes into one batch.
fn fill(batch: &mut Vec<Given>, given: &mut mpsc::Receiver<Given>) {
    let mut bytes: usize = batch.iter().map(|given| given.write.bytes()).sum();
    while !batch.is_empty() && batch.len() < BATCH_WRITES_MAX && bytes < BATCH_BYTES_MAX {
        let Ok(next) = given.try_recv() else { return };
        bytes += next.write.bytes();
        batch.push(next);
    }
}
