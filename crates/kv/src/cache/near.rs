//! Two caches, one behind the other: of the keys whose writes are applied in this process some values are in its own memory, before
//! the cache that all managers share. Whoever asks here for one of these asks nobody else. What is written to other keys is not heard of
//! here, so nothing of them is kept.
//!
//! An applier gives its word in both at the same moment and for the same while, marks and offers in both, and where one of the two was
//! not told nothing counts in either once its word has lapsed. Whoever applies next, in another process, takes away what was said in the
//! cache that all share, and cannot in this one: so here a word counts only while the shard is held under which it was given.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::{Clock, Mono, ShardId};
use parking_lot::Mutex;

use super::slots::Slots;
use super::{Cache, CacheError, Looked, Reign, Shared, Token, VOUCHED_FOR};
use crate::fold::Entry;
use crate::write::Place;

/// Whether this process holds a shard now, under this generation.
pub type Holds = Box<dyn Fn(ShardId, u64) -> bool + Send + Sync>;

pub struct Near {
    here: Mutex<Slots>,
    clock: Arc<dyn Clock>,
    holds: Holds,
    far: Shared,
}

impl Near {
    /// `bytes_max`: what may be kept here; how much is there is for the other to say.
    pub fn new(bytes_max: usize, clock: Arc<dyn Clock>, holds: Holds, far: Shared) -> Self {
        Self { here: Mutex::new(Slots::new(bytes_max)), clock, holds, far }
    }

    /// What is here; whether that counts is asked after it was found, so it did when it was.
    fn look_here(&self, place: &Place, token: Token) -> Looked {
        let (shard, now) = (place.shard(), self.now());
        let (found, generation) = {
            let mut slots = self.here.lock();
            (slots.look(shard, place, token, now), slots.generation(shard))
        };
        let counts = generation.is_some_and(|generation| (self.holds)(shard, generation));
        if counts { found } else { Looked::Past }
    }

    fn now(&self) -> Mono {
        self.clock.monotonic()
    }

    fn counts(&self, done: bool) -> Result<(), CacheError> {
        if done { Ok(()) } else { Err(CacheError::Lapsed) }
    }
}

#[async_trait]
impl Cache for Near {
    async fn look(&self, place: &Place, token: Token) -> Looked {
        let here = self.look_here(place, token);
        if let Looked::Hit(_) = here {
            return here;
        }
        let found = self.far.look(place, token).await;
        if let Looked::Miss(leased) = here {
            let mut slots = self.here.lock();
            match &found {
                // It was right at a moment after the lease was taken here; since then a change would have taken that away.
                Looked::Hit(entry) => {
                    slots.fill(place, leased, entry, self.now());
                }
                // Whoever asked for it fills in both.
                Looked::Miss(_) => {}
                Looked::Past => slots.give_up(place, leased),
            }
        }
        found
    }

    async fn fill(&self, place: &Place, token: Token, entry: &Entry) {
        self.here.lock().fill(place, token, entry, self.now());
        self.far.fill(place, token, entry).await;
    }

    fn renew_every(&self) -> Option<Duration> {
        self.far.renew_every()
    }

    async fn reach(&self) -> Result<(), CacheError> {
        self.far.reach().await
    }

    async fn begin(&self, shard: ShardId, reign: Reign, said: Mono) -> Result<(), CacheError> {
        self.far.begin(shard, reign, said).await?;
        self.counts(self.here.lock().begin(shard, reign, said.plus(VOUCHED_FOR), self.now()))
    }

    async fn renew(&self, shard: ShardId, reign: Reign, said: Mono) -> Result<(), CacheError> {
        self.far.renew(shard, reign, said).await?;
        self.counts(self.here.lock().renew(shard, reign, said.plus(VOUCHED_FOR), self.now()))
    }

    async fn mark(&self, shard: ShardId, reign: Reign, places: &[Place]) -> Result<Vec<usize>, CacheError> {
        let here = self.here.lock().mark(shard, reign, places, self.now()).ok_or(CacheError::Lapsed)?;
        let mut kept: BTreeSet<usize> = self.far.mark(shard, reign, places).await?.into_iter().collect();
        kept.extend(here);
        Ok(kept.into_iter().collect())
    }

    async fn offer(&self, shard: ShardId, reign: Reign, entries: &[(Place, Option<Entry>)]) -> Result<(), CacheError> {
        let here = self.here.lock().offer(shard, reign, entries, self.now());
        self.far.offer(shard, reign, entries).await?;
        self.counts(here)
    }
}
