//! The definitions of queues, brought to the posts of this process: every few seconds those that changed, so that a word
//! that got lost costs no more. One small question to the store for the whole process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::envelope::shard_of;
use mutirao_core::{Clock, ShardId};

use crate::doors::{Ask, Doors};
use crate::store::Shared as Store;
use crate::store::queues::QueueRow;

const COMPARE: Duration = Duration::from_secs(5);

/// For as long as it is not dropped.
pub(crate) async fn run(store: Store, doors: Doors, clock: Arc<dyn Clock>) {
    // The generation of each post, and the revision up to which it was told.
    let mut told: BTreeMap<ShardId, (u64, u64)> = BTreeMap::new();
    loop {
        clock.sleep(COMPARE).await;
        let open = doors.all();
        let known = |(shard, generation): (ShardId, u64)| {
            told.get(&shard).filter(|(post, _)| *post == generation).map_or(0, |(_, revision)| *revision)
        };
        let Some(after) = open.iter().map(|(shard, door)| known((*shard, door.generation))).min() else { continue };
        let changed = match store.queues(after).await {
            Ok(changed) => changed,
            Err(error) => {
                tracing::debug!(%error, "definitions of queues could not be read; the next round will");
                continue;
            }
        };
        let latest = changed.iter().map(|row| row.revision).max().unwrap_or(after);
        told = open.iter().map(|(shard, door)| (*shard, (door.generation, latest))).collect();
        for (shard, door) in open {
            let mine: Vec<QueueRow> = changed.iter().filter(|row| shard_of(&row.spec.name) == shard).cloned().collect();
            if !mine.is_empty() {
                // A post that has just ended has a successor, which reads them itself.
                let _ = door.asks.send(Ask::Define(mine)).await;
            }
        }
    }
}
