//! What there is, what there was, and what became of a write.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::auth::Principal;
use mutirao_core::{Mono, Problem, ShardId};
use mutirao_store::StoreError;

use super::{AtLeast, Kv, ListPage, Listed, PAGE_BYTES_MAX, PAUSE, Position, WriteState, WriteView};
use crate::applier::doubts::Doubt;
use crate::awaiting::{Waited, What};
use crate::cache::{self, Looked, Token};
use crate::fold::Entry;
use crate::point::Point;
use crate::problems::{compacted, forgotten, missing, not_yet, unknown, unread};
use crate::store::{Extent, Known, Page, Past, Range};
use crate::watch::tail::Watcher;
use crate::write::{Key, Named, Place, Standing, Value};

/// How far a page goes on while it finds nothing but what was deleted.
const LOOKED_AT_ROWS_MAX: u32 = 1_000;
/// How often it is looked what was found out of a write in doubt.
const DOUBT_LOOK: Duration = Duration::from_secs(1);

impl Kv {
    /// The entry as it is, or as of a write or a revision that must have been applied.
    pub async fn read(
        &self,
        caller: &Principal,
        key: Key,
        at_least: AtLeast,
        wait: Duration,
    ) -> Result<(Value, Entry), Problem> {
        let place = Place { namespace: caller.namespace.as_str().into(), key };
        if let Some(write) = at_least.write {
            match self.settled(caller, write, wait).await?.state {
                WriteState::Queued => {
                    return Err(not_yet(format!("the write {write} is queued")).remedy("wait longer with ?wait=30s"));
                }
                WriteState::InDoubt => {
                    return Err(not_yet(format!("nobody has confirmed the write {write}"))
                        .remedy("read the key without it, and decide anew"));
                }
                WriteState::Applied
                | WriteState::Superseded
                | WriteState::Conflict
                | WriteState::NotMade
                | WriteState::SetAside => {}
            }
        }
        if let Some(revision) = at_least.revision {
            self.reached(place.shard(), revision, wait).await?;
        }
        // Whether its time is over is for whoever applies to say, and was said with its end: one clock, not that of each reader.
        let found = self.find(&place).await.map_err(unread)?;
        found.and_then(|entry| Some((entry.value.clone()?, entry))).ok_or_else(|| missing(&place.key))
    }

    /// From the cache, or else from the store; those who want the same at once ask once.
    async fn find(&self, place: &Place) -> Result<Option<Entry>, Arc<StoreError>> {
        let ask = || async { self.0.store.entry(place.clone()).await.map_err(Arc::new) };
        let Some(cache) = &self.0.cache else { return ask().await };
        match cache.look(place, Token(self.0.dice.u64())).await {
            Looked::Hit(entry) => {
                self.0.looks.hit.increment(1);
                Ok(Some(entry))
            }
            Looked::Miss(token) => {
                self.0.looks.miss.increment(1);
                let found = self.0.flights.share(place, ask).await?;
                cache.fill(place, token, &found.clone().unwrap_or_else(cache::nothing)).await;
                Ok(found)
            }
            Looked::Past => {
                self.0.looks.past.increment(1);
                self.0.flights.share(place, ask).await
            }
        }
    }

    /// What is known of a write, after having waited for it as long as may be. Nobody is told of another namespace's.
    pub async fn settled(&self, caller: &Principal, write: Named, wait: Duration) -> Result<WriteView, Problem> {
        let namespace: Arc<str> = caller.namespace.as_str().into();
        let (clock, id) = (&self.0.clock, write.id);
        let by = clock.monotonic().plus(wait);
        let what = What::Parcel { shard: id.shard, producer: id.producer, number: id.number };
        let mut waited = Waited::Over;
        loop {
            let view = |state, revision| Ok(WriteView { write: write.to_string(), state, revision });
            let known = self.0.store.known(id, Some(namespace.clone())).await.map_err(unread)?;
            let now = clock.monotonic();
            let over = now >= by;
            let mut longest = by;
            match (known, write.standing) {
                (Known::Applied { revision, latest }, _) if latest > revision => {
                    return view(WriteState::Superseded, Some(revision));
                }
                (Known::Applied { revision, .. }, _) => return view(WriteState::Applied, Some(revision)),
                (Known::Conflict, _) => return view(WriteState::Conflict, None),
                (Known::Never, _) => return view(WriteState::NotMade, None),
                (Known::Aside, _) => return view(WriteState::SetAside, None),
                (Known::No | Known::Forgotten, Standing::InDoubt) if let Some(doubt) = self.0.intake.doubt(id) => {
                    match doubt {
                        Doubt::NotMade => return view(WriteState::NotMade, None),
                        Doubt::Open if over => return view(WriteState::InDoubt, None),
                        // Who finds it out says so here, and not always in the store.
                        Doubt::Open => longest = by.min(now.plus(DOUBT_LOOK)),
                    }
                }
                // It came, but whether its condition held is not known any more.
                (Known::LongAgo | Known::Forgotten, _) => return Err(forgotten(write)),
                // A sender says that it is there before it sends, so one that is not known any more has been forgotten, and
                // nothing of its will come. Whoever commits by hand may be about to, where that is in doubt.
                (Known::No, Standing::Confirmed) => return Err(unknown(write)),
                // Its parcel came, and it was not in it.
                (Known::No, Standing::InDoubt) if over || waited == Waited::Reached => return Err(unknown(write)),
                (Known::Coming, Standing::Confirmed) if over => return view(WriteState::Queued, None),
                (Known::Coming, Standing::InDoubt) if over => return view(WriteState::InDoubt, None),
                (Known::No | Known::Coming, _) => {}
            }
            if waited == Waited::Reached {
                clock.sleep(PAUSE).await;
            }
            waited = self.0.awaiting.until(what, longest).await?;
        }
    }

    async fn reached(&self, shard: ShardId, revision: u64, wait: Duration) -> Result<(), Problem> {
        let by = self.0.clock.monotonic().plus(wait);
        while self.0.awaiting.applied_here(shard) < revision {
            let at = self.0.store.point().await.map_err(unread)?.at(shard);
            if at >= revision {
                break;
            }
            if self.0.clock.monotonic() >= by {
                let detail = format!("the key's shard is at revision {at}, before {revision}");
                return Err(not_yet(detail)
                    .remedy("wait longer with ?wait=30s, or check the revision: it must be one of this very key"));
            }
            self.0.awaiting.until(What::Revision { shard, revision }, by).await?;
        }
        Ok(())
    }

    /// Keys that begin so, as they were when the list was begun; fewer than so many where their values are large.
    pub async fn list(
        &self,
        caller: &Principal,
        prefix: String,
        position: Option<Position>,
        rows: u32,
    ) -> Result<ListPage, Problem> {
        let (point, at, from) = match position {
            Some(Position { point, at, from }) => (point.checked()?, at, Some(from.parse::<Key>()?)),
            None => (self.0.store.point().await.map_err(unread)?, self.0.clock.now(), None),
        };
        let mut range = Range { namespace: caller.namespace.clone(), prefix, from };
        let mut looked_at = 0;
        loop {
            let extent = Extent { rows, bytes: PAGE_BYTES_MAX };
            let (found, next) = match self.0.store.page(range.clone(), point.clone(), extent).await.map_err(unread)? {
                Page::Compacted => return Err(compacted()),
                Page::Of { found, next } => (found, next),
            };
            looked_at += rows;
            // Of what was deleted there is nothing to show; whoever asks wants what comes after it.
            if let Some(next) = next.clone().filter(|_| found.is_empty() && looked_at < LOOKED_AT_ROWS_MAX) {
                range.from = Some(next);
                continue;
            }
            let entries = found.into_iter().map(|found| Listed { key: found.key, entry: found.entry }).collect();
            let next = next.map(|key| Position { point: point.clone(), at, from: key.as_str().into() });
            return Ok(ListPage { entries, point, next });
        }
    }

    /// Where everything is now.
    pub(crate) async fn point(&self) -> Result<Point, Problem> {
        self.0.store.point().await.map_err(unread)
    }

    pub(crate) async fn past(&self, shard: ShardId, after: u64, rows: u32) -> Result<Past, Problem> {
        self.0.store.past(shard, after, Extent { rows, bytes: PAGE_BYTES_MAX }).await.map_err(unread)
    }

    /// Refuses a point from before what is remembered.
    pub(crate) async fn still_known(&self, point: &Point) -> Result<(), Problem> {
        let nothing = Range { namespace: String::new(), prefix: String::new(), from: None };
        match self.0.store.page(nothing, point.clone(), Extent { rows: 1, bytes: 1 }).await.map_err(unread)? {
            Page::Compacted => Err(compacted()),
            Page::Of { .. } => Ok(()),
        }
    }

    /// For whoever watches.
    pub(crate) fn watcher(&self) -> Watcher {
        self.0.tail.watcher()
    }

    pub(crate) fn keep(&self) -> Duration {
        self.0.keep
    }

    pub(crate) fn monotonic(&self) -> Mono {
        self.0.clock.monotonic()
    }

    pub(crate) async fn sleep(&self, a_while: Duration) {
        self.0.clock.sleep(a_while).await;
    }

    /// None when the manager stops first.
    pub(crate) async fn while_it_runs<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.0.shutdown.cancelled() => None,
            done = what => Some(done),
        }
    }
}
