//! What happens, read once for all who watch here, however many they are: the last of it is kept, and whoever is further behind
//! reads the store until it has caught up. While nobody watches nothing is read, and nothing kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::select_all;
use mutirao_core::{Clock, ShardId};
use mutirao_store::StoreError;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::SHARDS;
use crate::fold::Event;
use crate::store::{Extent, Past, Shared as Store};

/// Changes may be applied by another manager, who tells nobody here: look again this often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// But no more often than this, however fast writes come: each look wakes all who watch.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(10);
/// How long a store that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(1);
/// What is read at once.
const READ: Extent = Extent { rows: 500, bytes: 1 << 20 };
/// What is kept of a shard.
const KEPT_EVENTS_MAX: usize = 1_000;
const KEPT_BYTES_MAX: usize = 1 << 20;

pub struct Tail {
    store: Store,
    clock: Arc<dyn Clock>,
    rings: Mutex<Vec<Ring>>,
    watchers: AtomicUsize,
    /// Rung by whoever begins to watch.
    bell: Notify,
    moved: watch::Sender<u64>,
}

/// What is kept of one shard.
#[derive(Debug, Default)]
struct Ring {
    /// Everything after this, up to `until`, is here.
    after: u64,
    until: u64,
    events: VecDeque<Arc<Event>>,
    bytes: usize,
}

/// What there is for somebody who has seen a shard up to some revision.
#[derive(Debug)]
pub enum Since {
    Nothing,
    Events {
        events: Vec<Arc<Event>>,
        until: u64,
    },
    /// More than is kept: ask the store.
    Behind,
}

impl Ring {
    fn at(revision: u64) -> Self {
        Self { after: revision, until: revision, ..Self::default() }
    }

    fn push(&mut self, events: Vec<Event>, until: u64) {
        for event in events {
            self.bytes += weight(&event);
            self.events.push_back(Arc::new(event));
        }
        self.until = until;
        while self.events.len() > KEPT_EVENTS_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= weight(&oldest);
            self.after = oldest.revision;
        }
    }

    fn since(&self, seen: u64, is_wanted: impl Fn(&Event) -> bool) -> Since {
        if seen >= self.until {
            return Since::Nothing;
        }
        if seen < self.after {
            return Since::Behind;
        }
        let first = self.events.partition_point(|event| event.revision <= seen);
        let events = self.events.range(first..).filter(|event| is_wanted(event)).cloned().collect();
        Since::Events { events, until: self.until }
    }
}

fn weight(event: &Event) -> usize {
    event.value.as_ref().map_or(0, |value| value.bytes.len()) + event.place.key.as_str().len()
}

/// One who watches; the last that goes lets what is kept go too.
pub struct Watcher {
    tail: Arc<Tail>,
    moved: watch::Receiver<u64>,
}

impl Watcher {
    pub fn since(&self, shard: ShardId, seen: u64, is_wanted: impl Fn(&Event) -> bool) -> Since {
        let rings = self.tail.rings.lock();
        rings.get(shard.0 as usize).map_or(Since::Nothing, |ring| ring.since(seen, is_wanted))
    }

    /// Until something happened since this was last said; never, when the manager stops.
    pub async fn moved(&mut self) {
        if self.moved.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.tail.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Tail {
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (watchers, moved) = (AtomicUsize::new(0), watch::Sender::new(0));
        Arc::new(Self { store, clock, rings: Mutex::default(), watchers, bell: Notify::new(), moved })
    }

    pub fn watcher(self: &Arc<Self>) -> Watcher {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        self.bell.notify_one();
        let mut moved = self.moved.subscribe();
        // What is there already is news to it.
        moved.mark_changed();
        Watcher { tail: self.clone(), moved }
    }

    /// Reads for as long as it is polled. `applied`: what is applied in this process.
    pub async fn follow(self: Arc<Self>, applied: Arc<Vec<watch::Sender<u64>>>) {
        let mut applied: Vec<_> = applied.iter().map(watch::Sender::subscribe).collect();
        loop {
            if self.watchers.load(Ordering::SeqCst) == 0 {
                self.rings.lock().clear();
                self.bell.notified().await;
                continue;
            }
            let pause = match self.look().await {
                Ok(()) => LOOK_AT_MOST_EVERY,
                Err(error) => {
                    tracing::debug!(%error, "what happens is not known for now; whoever watches waits");
                    PAUSE
                }
            };
            self.clock.sleep(pause).await;
            let any = select_all(applied.iter_mut().map(|one| Box::pin(one.changed())));
            tokio::select! {
                _ = any => {}
                () = self.bell.notified() => {}
                () = self.clock.sleep(LOOK_AGAIN) => {}
            }
        }
    }

    async fn look(&self) -> Result<(), StoreError> {
        let now = self.store.point().await?;
        let mut has_moved = false;
        if self.rings.lock().is_empty() {
            *self.rings.lock() = (0..SHARDS).map(|shard| Ring::at(now.at(ShardId(shard)))).collect();
            has_moved = true;
        }
        for shard in (0..SHARDS).map(ShardId) {
            loop {
                let until = self.rings.lock()[shard.0 as usize].until;
                if until >= now.at(shard) {
                    break;
                }
                has_moved = true;
                let past = self.store.past(shard, until, READ).await?;
                let ring = &mut self.rings.lock()[shard.0 as usize];
                match past {
                    Past::Events { events, until } => ring.push(events, until),
                    // It was not read for very long.
                    Past::Compacted => *ring = Ring::at(now.at(shard)),
                }
            }
        }
        if has_moved {
            self.moved.send_modify(|looks| *looks += 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mutirao_core::Timestamp;

    use super::*;
    use crate::fold::Kind;
    use crate::write::{Place, Value};

    fn event(revision: u64, bytes: usize) -> Event {
        let place = Place { namespace: "default".into(), key: format!("k{}", revision % 2).parse().unwrap() };
        let value = Some(Value { bytes: Bytes::from(vec![0; bytes]), content_type: "t".into() });
        Event { revision, place, kind: Kind::Put, at: Timestamp(0), value, expires_at: None }
    }

    fn since(ring: &Ring, seen: u64) -> Option<(Vec<u64>, u64)> {
        match ring.since(seen, |event| event.place.key.as_str() == "k0") {
            Since::Nothing => Some((Vec::new(), seen)),
            Since::Events { events, until } => Some((events.iter().map(|event| event.revision).collect(), until)),
            Since::Behind => None,
        }
    }

    #[test]
    fn whoever_is_not_far_behind_is_told_from_what_is_kept_and_nothing_is_left_out() {
        let mut ring = Ring::at(10);
        ring.push((11..=16).map(|n| event(n, 1)).collect(), 18);
        assert_eq!(since(&ring, 18), Some((vec![], 18)));
        assert_eq!(since(&ring, 10), Some((vec![12, 14, 16], 18)));
        assert_eq!(since(&ring, 14), Some((vec![16], 18)));
        assert_eq!(since(&ring, 17), Some((vec![], 18)), "nothing for it, and that is known");
        assert_eq!(since(&ring, 9), None, "it may have missed something");
        ring.push((19..=3_000).map(|n| event(n, 1)).collect(), 3_000);
        assert_eq!((since(&ring, 1_000), ring.events.len()), (None, KEPT_EVENTS_MAX));
        assert_eq!(since(&ring, 2_000).unwrap().0.len(), 500);
        ring.push(vec![event(3_001, KEPT_BYTES_MAX + 1)], 3_001);
        assert_eq!((since(&ring, 3_000), since(&ring, 3_001), ring.bytes), (None, Some((vec![], 3_001)), 0));
    }
}
