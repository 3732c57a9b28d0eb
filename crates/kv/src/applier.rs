//! Appliers at work: one for each shard that this process owns. What is given while a batch is being written waits and goes
//! together into the next, so that a hundred writers share one transaction and one fsync.
//!
//! A batch whose answer got lost is tried again under the same number, and the store passes over what it has: so nothing
//! is applied twice, and whoever waits is told what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Dice, Mono, ShardId, Timestamp};
use mutirao_shards::{Asked, Fence, Shards};
use mutirao_store::StoreError;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::fold::Fate;
use crate::store::{Applying, Known, Shared as Store};
use crate::write::{Change, Parcel, Producer, Write, WriteId};
use crate::{GROUP, SHARDS};

/// Writes that wait for one shard; whoever comes then is asked to come again.
const WAITING_MAX: usize = 4_096;
/// Writes in one batch, and their bytes together.
const BATCH_WRITES_MAX: usize = 512;
const BATCH_BYTES_MAX: usize = 8 << 20;
/// At least this often an applier that is given nothing looks around.
const LOOK: Duration = Duration::from_secs(1);
const EXPIRE_ROWS: u32 = 1_000;
const COMPACT_EVERY: Duration = Duration::from_secs(30);
const COMPACT_ROWS: u32 = 5_000;
/// Between two tries of a batch.
const PAUSE: Duration = Duration::from_millis(200);
/// For how long a batch is tried while the store does not answer.
const TRY_FOR: Duration = Duration::from_secs(10);

/// What becomes of a write that was given.
#[derive(Clone, Debug)]
pub enum Answer {
    Settled {
        id: WriteId,
        fate: Fate,
    },
    /// The shard was taken away first: nothing of it was written, unless the store said so to nobody.
    Lost,
    /// Whoever applies broke; whether it was written is not known.
    Broken,
    /// The store does not answer; whether it was written is not known.
    Unknown {
        id: WriteId,
        why: String,
    },
    /// The store refuses; nothing was written.
    Refused(Arc<StoreError>),
}

/// Why a write was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// Too many wait.
    Full,
    /// This process does not own the shard now.
    NotHere,
}

struct Given {
    write: Write,
    answer: oneshot::Sender<Answer>,
}

/// Where writes are handed in.
#[derive(Clone)]
pub struct Intake(Arc<Mutex<BTreeMap<ShardId, mpsc::Sender<Given>>>>);

impl Intake {
    pub fn give(&self, write: Write) -> Result<oneshot::Receiver<Answer>, NotTaken> {
        let shard = write.place.shard();
        let inbox = self.0.lock().get(&shard).cloned().ok_or(NotTaken::NotHere)?;
        let (answer, answered) = oneshot::channel();
        inbox.try_send(Given { write, answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotTaken::Full,
            mpsc::error::TrySendError::Closed(_) => NotTaken::NotHere,
        })?;
        Ok(answered)
    }
}

/// What appliers work with.
#[derive(Clone)]
pub struct Bench {
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub shards: Shards,
    /// For how long the past is kept.
    pub keep: Duration,
    /// The revision of each shard as far as it was applied here.
    pub applied: Arc<Vec<watch::Sender<u64>>>,
}

/// Nothing applied yet.
pub fn nothing_applied() -> Arc<Vec<watch::Sender<u64>>> {
    Arc::new((0..SHARDS).map(|_| watch::Sender::new(0)).collect())
}

/// Follows what is owned, until the handle is dropped.
pub fn start(bench: Bench) -> (Intake, JoinSet<()>) {
    let intake = Intake(Arc::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(bench, intake.clone()));
    (intake, tasks)
}

async fn follow(bench: Bench, intake: Intake) {
    let mut owned = bench.shards.owned();
    let mut running: BTreeMap<ShardId, u64> = BTreeMap::new();
    let mut tasks: JoinSet<(ShardId, u64)> = JoinSet::new();
    loop {
        let board = owned.borrow_and_update().clone();
        for (shard, tenure) in &board {
            // One that was asked to leave and left is not begun again.
            if running.get(shard) == Some(&tenure.generation) {
                continue;
            }
            running.insert(*shard, tenure.generation);
            let (give, given) = mpsc::channel(WAITING_MAX);
            intake.0.lock().insert(*shard, give);
            let fence = Fence { group: GROUP, shard: *shard, generation: tenure.generation };
            let bench = bench.clone();
            tasks.spawn(async move {
                let at = (fence.shard, fence.generation);
                Applier::new(bench, fence).run(given).await;
                at
            });
        }
        tokio::select! {
            changed = owned.changed() => if changed.is_err() { return },
            Some(Ok((shard, generation))) = tasks.join_next() => {
                if running.get(&shard) == Some(&generation) {
                    intake.0.lock().remove(&shard);
                }
                bench.shards.release(shard, generation).await;
            }
        }
    }
}

struct Applier {
    bench: Bench,
    fence: Fence,
    producer: Producer,
    number: u64,
    /// When the next entry is over; [`Soonest::Unknown`] until the store has said so.
    soonest: Soonest,
    compacted: Mono,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Soonest {
    Unknown,
    Never,
    At(Timestamp),
}

enum Go {
    On,
    Away,
}

impl Applier {
    fn new(bench: Bench, fence: Fence) -> Self {
        let producer = Producer(bench.dice.u64());
        let now = bench.clock.monotonic();
        Self { bench, fence, producer, number: 0, soonest: Soonest::Unknown, compacted: now }
    }

    /// Until the shard is another's.
    async fn run(mut self, mut given: mpsc::Receiver<Given>) {
        loop {
            // None: it may come back, since a store that does not answer renews nothing for a while. Meanwhile the fence decides.
            let tenure = self.bench.shards.tenure(self.fence.shard);
            let stays = tenure.is_none_or(|t| t.generation == self.fence.generation && t.asked == Asked::Stay);
            if !stays {
                given.close();
            }
            let mut batch = Vec::new();
            let clock = self.bench.clock.clone();
            tokio::select! {
                biased;
                got = given.recv() => match got {
                    Some(first) => batch.push(first),
                    None => return,
                },
                () = clock.sleep(self.nap(clock.now())) => {}
            }
            self.fill(&mut batch, &mut given);
            if let Go::Away = self.settle(batch).await {
                given.close();
            }
            if stays && let Go::Away = self.tidy().await {
                given.close();
            }
        }
    }

    fn nap(&self, now: Timestamp) -> Duration {
        match self.soonest {
            Soonest::At(at) => at.since(now).min(LOOK),
            Soonest::Never | Soonest::Unknown => LOOK,
        }
    }

    /// Takes what waits already, as much as goes into one batch.
    fn fill(&self, batch: &mut Vec<Given>, given: &mut mpsc::Receiver<Given>) {
        let mut bytes: usize = batch.iter().map(|given| given.write.bytes()).sum();
        while !batch.is_empty() && batch.len() < BATCH_WRITES_MAX && bytes < BATCH_BYTES_MAX {
            let Ok(next) = given.try_recv() else { return };
            bytes += next.write.bytes();
            batch.push(next);
        }
    }

    async fn settle(&mut self, batch: Vec<Given>) -> Go {
        if batch.is_empty() {
            return Go::On;
        }
        self.number += 1;
        let (writes, waiting): (Vec<Write>, Vec<_>) =
            batch.into_iter().map(|given| (given.write, given.answer)).unzip();
        let lasts = |write: &Write| match &write.change {
            Change::Put { lasts, .. } => *lasts,
            Change::Delete => None,
        };
        if let Some(shortest) = writes.iter().filter_map(lasts).min() {
            self.heed(self.bench.clock.now().plus(shortest));
        }
        let parcel = Parcel { producer: self.producer, number: self.number, writes };
        let outcome = self.apply(parcel).await;
        let gone = matches!(outcome, Outcome::All(Answer::Lost));
        for (index, answer) in waiting.into_iter().enumerate() {
            let id = self.id(index as u32);
            // Whoever asked may have gone.
            let _ = answer.send(match &outcome {
                Outcome::Each(fates) => Answer::Settled { id, fate: fates[index] },
                Outcome::All(Answer::Unknown { why, .. }) => Answer::Unknown { id, why: why.clone() },
                Outcome::All(all) => all.clone(),
            });
        }
        if gone { Go::Away } else { Go::On }
    }

    async fn apply(&self, parcel: Parcel) -> Outcome {
        let clock = &self.bench.clock;
        let begun = clock.monotonic();
        loop {
            let applying = self.bench.store.apply(self.fence.clone(), vec![parcel.clone()], clock.now()).await;
            let error = match applying {
                Ok(Applying::Done { revision, mut taken }) => {
                    self.applied(revision);
                    let Some(taken) = taken.pop() else { return self.recall(parcel.writes.len() as u32).await };
                    return Outcome::Each(taken.fates);
                }
                Ok(Applying::Fenced) => return Outcome::All(Answer::Lost),
                Err(error) => error,
            };
            match error {
                StoreError::Unreachable { .. } | StoreError::Locked | StoreError::Busy { .. }
                    if clock.monotonic().since(begun) < TRY_FOR =>
                {
                    clock.sleep(PAUSE).await;
                }
                StoreError::Unreachable { why } => return Outcome::All(Answer::Unknown { id: self.id(0), why }),
                refused => return Outcome::All(Answer::Refused(Arc::new(refused))),
            }
        }
    }

    /// It had been applied by a try whose answer got lost.
    async fn recall(&self, writes: u32) -> Outcome {
        let mut fates = Vec::new();
        for index in 0..writes {
            fates.push(match self.bench.store.known(self.id(index)).await {
                Ok(Known::Applied { revision, .. }) => Fate::Applied { revision },
                Ok(Known::Conflict) => Fate::Conflict { there: None },
                Ok(Known::No | Known::LongAgo) => return Outcome::All(Answer::Lost),
                Err(error) => {
                    return Outcome::All(Answer::Unknown { id: self.id(0), why: error.to_string() });
                }
            });
        }
        Outcome::Each(fates)
    }

    fn id(&self, index: u32) -> WriteId {
        WriteId { shard: self.fence.shard, producer: self.producer, number: self.number, index }
    }

    fn heed(&mut self, at: Timestamp) {
        self.soonest = match self.soonest {
            Soonest::Unknown => Soonest::Unknown,
            Soonest::Never => Soonest::At(at),
            Soonest::At(known) => Soonest::At(known.min(at)),
        };
    }

    fn applied(&self, revision: u64) {
        self.bench.applied[self.fence.shard.0 as usize].send_replace(revision);
    }

    /// Ends what is over, and forgets what is old.
    async fn tidy(&mut self) -> Go {
        let (clock, store) = (self.bench.clock.clone(), self.bench.store.clone());
        let now = clock.monotonic();
        let is_due = match self.soonest {
            Soonest::Unknown => true,
            Soonest::Never => false,
            Soonest::At(at) => at <= clock.now(),
        };
        if is_due {
            match store.expire(self.fence.clone(), clock.now(), EXPIRE_ROWS).await {
                Ok(Applying::Done { revision, .. }) => self.applied(revision),
                Ok(Applying::Fenced) => return Go::Away,
                Err(error) => tracing::debug!(%error, "entries that are over stay for now; the next round ends them"),
            }
            match store.soonest(self.fence.shard).await {
                Ok(soonest) => self.soonest = soonest.map_or(Soonest::Never, Soonest::At),
                Err(error) => tracing::debug!(%error, "when the next entry is over is not known yet"),
            }
        }
        if now.since(self.compacted) >= COMPACT_EVERY {
            self.compacted = now;
            let before = Timestamp(clock.now().0.saturating_sub(self.bench.keep.as_millis() as i64));
            loop {
                match store.compact(self.fence.clone(), before, COMPACT_ROWS).await {
                    Ok(gone) if gone >= u64::from(COMPACT_ROWS) => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::debug!(%error, "old history stays for now; the next round removes it");
                        break;
                    }
                }
            }
        }
        Go::On
    }
}

/// What became of a batch.
enum Outcome {
    Each(Vec<Fate>),
    /// The same for all of it.
    All(Answer),
}
