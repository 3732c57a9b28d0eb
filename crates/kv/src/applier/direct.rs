//! Writes by hand: what is given while a batch is being written waits and goes together into the next. Their commit makes
//! them durable.
//!
//! A batch whose answer got lost is tried again under the same number, and the store passes over what it has: so nothing
//! is applied twice, and whoever waits is told what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Mono, ShardId};
use mutirao_store::StoreError;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::doubts::{self, Doubt, Doubts};
use super::{Applied, Applier, BATCH_BYTES_MAX, BATCH_WRITES_MAX, Go, PAUSE};
use crate::fold::Fate;
use crate::intake::{Answer, Held, Intake, NotTaken, Receipt, Until, Weight};
use crate::meters;
use crate::store::Known;
use crate::write::{Change, Condition, Key, Parcel, Place, Producer, Write, WriteId};

/// Writes that wait for one shard; whoever comes then is asked to come again.
const WAITING_MAX: usize = 4_096;
/// For how long a write is tried while the store does not answer, from when it came.
const TRY_FOR: Duration = Duration::from_secs(10);
/// How long it may wait for its turn. What was told to be unknown is made by then, or never.
const TURN_WITHIN: Duration = Duration::from_secs(5);

pub struct Given {
    write: Write,
    at: Mono,
    answer: oneshot::Sender<Answer>,
    _held: Held,
}

/// One shard's.
struct Inbox {
    give: mpsc::Sender<Given>,
    weight: Weight,
    clock: Arc<dyn Clock>,
}

/// Where writes are handed in, for the shards that are here.
#[derive(Clone, Default)]
pub struct Hands {
    inboxes: Arc<Mutex<BTreeMap<ShardId, Inbox>>>,
    doubts: Doubts,
}

impl Hands {
    pub(super) fn open(&self, shard: ShardId, clock: Arc<dyn Clock>) -> mpsc::Receiver<Given> {
        let (give, given) = mpsc::channel(WAITING_MAX);
        self.inboxes.lock().insert(shard, Inbox { give, weight: Weight::default(), clock });
        given
    }

    pub(super) fn shut(&self, shard: ShardId) {
        self.inboxes.lock().remove(&shard);
    }

    pub(super) fn doubts(&self) -> Doubts {
        self.doubts.clone()
    }
}

impl Intake for Hands {
    fn give(&self, shard: ShardId, write: Write, _until: Until) -> Result<Receipt, NotTaken> {
        let inboxes = self.inboxes.lock();
        let Some(Inbox { give, weight, clock }) = inboxes.get(&shard) else {
            return Err(NotTaken::NotHere(Box::new(write)));
        };
        let _held = weight.hold(write.bytes()).ok_or(NotTaken::Full)?;
        let (answer, durable) = oneshot::channel();
        give.try_send(Given { write, at: clock.monotonic(), answer, _held }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotTaken::Full,
            mpsc::error::TrySendError::Closed(given) => NotTaken::NotHere(Box::new(given.write)),
        })?;
        Ok(Receipt { durable, applied: None })
    }

    fn doubt(&self, id: WriteId) -> Option<Doubt> {
        self.doubts.of(id)
    }
}

pub(super) struct Direct {
    applier: Applier,
    producer: Producer,
    number: u64,
    /// The numbers of what was given up, and may yet be made.
    given_up: Vec<u64>,
    doubts: Doubts,
}

/// What became of a batch.
enum Outcome {
    Each(Vec<Answer>),
    /// The same for all of it.
    All(Answer),
}

impl Direct {
    pub fn new(applier: Applier, producer: u64, doubts: Doubts) -> Self {
        Self { applier, producer: Producer(producer), number: 0, given_up: Vec::new(), doubts }
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
                    None => return self.tell_doubts().await,
                },
                () = clock.sleep(self.applier.nap(clock.now())) => {}
            }
            fill(&mut batch, &mut given);
            if batch.is_empty() {
                self.clear_doubts().await;
            }
            if let Go::Away = self.settle(batch).await {
                given.close();
            }
            if stays && let Go::Away = self.applier.tidy().await {
                given.close();
            }
        }
    }

    async fn settle(&mut self, mut batch: Vec<Given>) -> Go {
        // Who has given up waiting was told that it is not known; better that it is not made.
        let now = self.applier.bench.clock.monotonic();
        for late in batch.extract_if(.., |given| now.since(given.at) > TURN_WITHIN || given.answer.is_closed()) {
            let _ = late.answer.send(Answer::Late);
        }
        if batch.is_empty() {
            return Go::On;
        }
        self.number += 1;
        let came = batch.iter().map(|given| given.at).min().unwrap_or(now);
        let (writes, waiting): (Vec<Write>, Vec<_>) =
            batch.into_iter().map(|given| (given.write, given.answer)).unzip();
        let parcel = Parcel { producer: self.producer, number: self.number, writes };
        let outcome = self.apply(parcel, came).await;
        let gone = matches!(outcome, Outcome::All(Answer::Lost));
        if let Outcome::All(Answer::Unknown { .. }) = &outcome {
            self.given_up.push(self.number);
            self.given_up.drain(..self.given_up.len().saturating_sub(doubts::KEPT_MAX));
            self.doubts.open((self.applier.fence.shard, self.producer, self.number));
        }
        if let Outcome::Each(answers) = &outcome {
            meters::accepted(answers.len());
            self.tell_doubts().await;
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

    /// Something that is applied later says of what was given up that it has been made, or never will be. Where nobody writes, what
    /// changes nothing does as well.
    async fn clear_doubts(&mut self) {
        if self.given_up.is_empty() {
            return;
        }
        self.number += 1;
        let place = Place { namespace: "".into(), key: Key::kept("in doubt".into()) };
        let nothing = Write { place, change: Change::Delete, condition: Condition::At(u64::MAX) };
        let parcel = Parcel { producer: self.producer, number: self.number, writes: vec![nothing] };
        match self.applier.apply(vec![parcel]).await {
            Ok(Applied::Done(_)) => self.tell_doubts().await,
            Ok(Applied::Fenced) => {}
            Err(error) => tracing::debug!(%error, "what became of writes in doubt is not known yet"),
        }
    }

    /// For when nothing that was given up can be made any more.
    async fn tell_doubts(&mut self) {
        let shard = self.applier.fence.shard;
        for number in std::mem::take(&mut self.given_up) {
            let which = (shard, self.producer, number);
            match self.applier.bench.store.taken(shard, self.producer, number).await {
                Ok(Some(_)) => self.doubts.was_made(which),
                Ok(None) => self.doubts.was_not_made(which),
                Err(_) => self.given_up.push(number),
            }
        }
    }

    /// `came`: when the first of it was given.
    async fn apply(&mut self, parcel: Parcel, came: Mono) -> Outcome {
        let clock = self.applier.bench.clock.clone();
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
                    if clock.monotonic().since(came) < TRY_FOR =>
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
            answers.push(match self.applier.bench.store.known(id, None).await {
                Ok(Known::Applied { revision, .. }) => Answer::Settled { id, fate: Fate::Applied { revision } },
                Ok(Known::Conflict) => Answer::Unfit,
                Ok(Known::LongAgo) => Answer::Queued { id },
                Ok(Known::No | Known::Coming | Known::Never | Known::Aside | Known::Forgotten) => {
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
