//! Values at hand in this process, up to a bound in bytes. Whoever applies is in this process too, so its word never lapses while
//! anybody could listen.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::{Clock, Mono, ShardId};
use parking_lot::Mutex;

use super::slots::Slots;
use super::{Cache, CacheError, Looked, Reign, Token};
use crate::fold::Entry;
use crate::write::Place;

/// Longer than any process lives.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

pub struct Memory {
    slots: Mutex<Slots>,
    clock: Arc<dyn Clock>,
}

impl Memory {
    pub fn new(bytes_max: usize, clock: Arc<dyn Clock>) -> Self {
        Self { slots: Mutex::new(Slots::new(bytes_max)), clock }
    }

    fn counts(&self, done: bool) -> Result<(), CacheError> {
        if done { Ok(()) } else { Err(CacheError::Lapsed) }
    }

    fn now(&self) -> Mono {
        self.clock.monotonic()
    }
}

#[async_trait]
impl Cache for Memory {
    async fn look(&self, place: &Place, token: Token) -> Looked {
        self.slots.lock().look(place.shard(), place, token, self.now())
    }

    async fn fill(&self, place: &Place, token: Token, entry: &Entry) {
        self.slots.lock().fill(place, token, entry, self.now());
    }

    fn renew_every(&self) -> Option<Duration> {
        None
    }

    async fn reach(&self) -> Result<(), CacheError> {
        Ok(())
    }

    async fn begin(&self, shard: ShardId, reign: Reign, _said: Mono) -> Result<(), CacheError> {
        let now = self.now();
        self.counts(self.slots.lock().begin(shard, reign, now.plus(FOR_EVER), now))
    }

    async fn renew(&self, shard: ShardId, reign: Reign, _said: Mono) -> Result<(), CacheError> {
        let now = self.now();
        self.counts(self.slots.lock().renew(shard, reign, now.plus(FOR_EVER), now))
    }

    async fn mark(&self, shard: ShardId, reign: Reign, places: &[Place]) -> Result<Vec<usize>, CacheError> {
        self.slots.lock().mark(shard, reign, places, self.now()).ok_or(CacheError::Lapsed)
    }

    async fn offer(&self, shard: ShardId, reign: Reign, entries: &[(Place, Option<Entry>)]) -> Result<(), CacheError> {
        self.counts(self.slots.lock().offer(shard, reign, entries, self.now()))
    }
}
