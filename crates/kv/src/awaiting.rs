//! Whoever waits for something to be applied. However many they are, the store is asked once for all of them: when something was
//! applied here, and otherwise now and then, since other managers tell nobody what they apply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::select_all;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Mono, Problem, ShardId};
use mutirao_store::StoreError;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::point::Point;
use crate::problems::crowded;
use crate::store::Shared as Store;
use crate::write::Producer;

/// Whoever comes when so many wait is asked to come again.
pub const WAITING_MAX: usize = 4_096;
/// How often the store is asked while another manager applies some of what is awaited; and where this one applies all of it, lest it
/// has passed to another.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_HERE: Duration = Duration::from_millis(500);
/// But no more often than this, however fast writes come.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(10);
/// How long a store that does not answer is left alone.
const PAUSE: Duration = Duration::from_millis(500);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// That a parcel is heard of, or one that its sender sent later.
    Parcel { shard: ShardId, producer: Producer, number: u64 },
    /// That a shard is there.
    Revision { shard: ShardId, revision: u64 },
}

impl What {
    fn shard(self) -> ShardId {
        match self {
            Self::Parcel { shard, .. } | Self::Revision { shard, .. } => shard,
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    Reached,
    /// It was not, as far as is known.
    Over,
}

/// Who is asked.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// The last parcel of each that was applied.
    async fn heard(&self, asked: Vec<(ShardId, Producer)>) -> Result<Vec<Option<u64>>, StoreError>;
    async fn point(&self) -> Result<Point, StoreError>;
}

#[async_trait]
impl Source for Store {
    async fn heard(&self, asked: Vec<(ShardId, Producer)>) -> Result<Vec<Option<u64>>, StoreError> {
        self.as_ref().heard(asked).await
    }

    async fn point(&self) -> Result<Point, StoreError> {
        self.as_ref().point().await
    }
}

/// Whether a shard's writes are applied in this process.
pub type IsHere = Box<dyn Fn(ShardId) -> bool + Send + Sync>;

#[derive(Debug)]
struct Waiting {
    what: What,
    reached: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Room {
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
}

pub struct Awaiting {
    source: Box<dyn Source>,
    clock: Arc<dyn Clock>,
    applied: Arc<Vec<watch::Sender<u64>>>,
    is_here: IsHere,
    room: Mutex<Room>,
    /// Rung by whoever begins to wait.
    bell: Notify,
}

/// Given back when it is dropped.
struct Seat<'a> {
    awaiting: &'a Awaiting,
    number: u64,
    reached: Arc<Notify>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.awaiting.room.lock().waiting.remove(&self.number);
    }
}

impl Awaiting {
    /// `applied`: the revision of each shard as far as it was applied here.
    pub fn new(
        source: Box<dyn Source>,
        clock: Arc<dyn Clock>,
        applied: Arc<Vec<watch::Sender<u64>>>,
        is_here: IsHere,
    ) -> Arc<Self> {
        Arc::new(Self { source, clock, applied, is_here, room: Mutex::default(), bell: Notify::new() })
    }

    /// Until it is reached, or that long. Refused where too many wait.
    pub async fn until(&self, what: What, by: Mono) -> Result<Waited, Problem> {
        let seat = self.sit(what)?;
        let left = by.since(self.clock.monotonic());
        let waited = self.clock.timeout(left, seat.reached.notified()).await;
        Ok(if waited.is_ok() { Waited::Reached } else { Waited::Over })
    }

    fn sit(&self, what: What) -> Result<Seat<'_>, Problem> {
        let reached = Arc::new(Notify::new());
        let mut room = self.room.lock();
        if room.waiting.len() >= WAITING_MAX {
            return Err(crowded());
        }
        let number = room.next;
        room.next += 1;
        room.waiting.insert(number, Waiting { what, reached: reached.clone() });
        drop(room);
        self.bell.notify_one();
        Ok(Seat { awaiting: self, number, reached })
    }

    /// What was applied here, as far as the shard was ever here.
    pub fn applied_here(&self, shard: ShardId) -> u64 {
        self.applied.get(shard.0 as usize).map_or(0, |applied| *applied.borrow())
    }

    /// Asks for as long as it is polled; nothing, while nobody waits.
    pub async fn follow(self: Arc<Self>) {
        let mut applied: Vec<_> = self.applied.iter().map(watch::Sender::subscribe).collect();
        loop {
            let shards: BTreeSet<ShardId> = self.room.lock().waiting.values().map(|one| one.what.shard()).collect();
            if shards.is_empty() {
                self.bell.notified().await;
                continue;
            }
            let pause = match self.look().await {
                Ok(()) => LOOK_AT_MOST_EVERY,
                Err(error) => {
                    tracing::debug!(%error, "what was applied is not known for now; whoever waits for it waits");
                    PAUSE
                }
            };
            self.clock.sleep(pause).await;
            let longest = if shards.iter().all(|shard| (self.is_here)(*shard)) { LOOK_HERE } else { LOOK };
            let awaited = (0..).zip(&mut applied).filter(|(shard, _)| shards.contains(&ShardId(*shard)));
            let any = select_all(awaited.map(|(_, one)| Box::pin(one.changed())));
            tokio::select! {
                _ = any => {}
                () = self.bell.notified() => {}
                () = self.clock.sleep(longest) => {}
            }
        }
    }

    async fn look(&self) -> Result<(), StoreError> {
        let whats: Vec<What> = self.room.lock().waiting.values().map(|one| one.what).collect();
        let parcels: BTreeSet<(ShardId, Producer)> = whats
            .iter()
            .filter_map(|what| match what {
                What::Parcel { shard, producer, .. } => Some((*shard, *producer)),
                What::Revision { .. } => None,
            })
            .collect();
        let mut heard = BTreeMap::new();
        if !parcels.is_empty() {
            let asked: Vec<_> = parcels.into_iter().collect();
            heard.extend(asked.iter().copied().zip(self.source.heard(asked.clone()).await?));
        }
        let elsewhere = |what: &What| match what {
            What::Revision { shard, revision } => self.applied_here(*shard) < *revision,
            What::Parcel { .. } => false,
        };
        let point = if whats.iter().any(elsewhere) { self.source.point().await? } else { Point::start() };
        let is_reached = |what: What| match what {
            What::Parcel { shard, producer, number } => {
                let last = heard.get(&(shard, producer)).copied().flatten();
                // No write is in an introduction.
                number > 0 && last.is_some_and(|last| last >= number)
            }
            What::Revision { shard, revision } => point.at(shard).max(self.applied_here(shard)) >= revision,
        };
        for one in self.room.lock().waiting.values().filter(|one| is_reached(one.what)) {
            one.reached.notify_one();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
