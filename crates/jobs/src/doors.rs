//! Where questions to the shards owned here are put: one door for each post that is open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, ShardId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::foreman;
use crate::question::Answer;
use crate::settler::Vitals;

/// How long whoever only has something to tell stands at a door that takes nothing in.
const TELL_WITHIN: Duration = Duration::from_secs(1);

/// What may be asked at a door, by somebody in this process who waits for the answer.
pub(crate) type Ask = foreman::Ask<oneshot::Sender<Answer>>;

/// One post's.
#[derive(Clone)]
pub(crate) struct Door {
    pub generation: u64,
    pub asks: mpsc::Sender<Ask>,
    pub vitals: Arc<Vitals>,
}

impl Door {
    /// Says something that the post would find out by itself, only later. Not for long: one that cannot write as fast as it
    /// hears leaves everything at its door.
    pub async fn tell(&self, ask: Ask, clock: &dyn Clock) {
        // A post that has just ended has a successor, which finds out.
        let _ = clock.timeout(TELL_WITHIN, self.asks.send(ask)).await;
    }
}

/// Those of this process; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Doors(Arc<watch::Sender<BTreeMap<ShardId, Door>>>);

impl Doors {
    /// Open until the returned value is dropped.
    pub fn open(&self, shard: ShardId, door: Door) -> OpenDoor {
        let generation = door.generation;
        self.0.send_modify(|doors| drop(doors.insert(shard, door)));
        OpenDoor { doors: self.clone(), shard, generation }
    }

    pub fn of(&self, shard: ShardId) -> Option<Door> {
        self.0.borrow().get(&shard).cloned()
    }

    pub fn all(&self) -> Vec<(ShardId, Door)> {
        self.0.borrow().iter().map(|(shard, door)| (*shard, door.clone())).collect()
    }

    /// Wakes its readers when a door opens or closes.
    pub fn changes(&self) -> watch::Receiver<BTreeMap<ShardId, Door>> {
        self.0.subscribe()
    }
}

pub(crate) struct OpenDoor {
    doors: Doors,
    shard: ShardId,
    generation: u64,
}

impl Drop for OpenDoor {
    fn drop(&mut self) {
        self.doors.0.send_if_modified(|doors| {
            let mine = doors.get(&self.shard).is_some_and(|door| door.generation == self.generation);
            mine && doors.remove(&self.shard).is_some()
        });
    }
}
