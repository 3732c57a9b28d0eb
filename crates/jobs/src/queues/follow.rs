//! The definitions of queues, brought to the posts of this process: every few seconds those that changed or were deleted, so that a word
//! that got lost costs no more. One small question to the store for the whole process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::envelope::shard_of;
use mutirao_core::{Clock, ShardId};
use mutirao_store::StoreError;

use crate::doors::{Ask, Doors};
use crate::store::Shared as Store;
use crate::store::queues::{QueueRow, Removed};

const COMPARE: Duration = Duration::from_secs(5);

/// Up to which revisions a post was told. The two are read one after the other, so one does not speak for the other.
#[derive(Clone, Copy, Default)]
struct Told {
    defined: u64,
    removed: u64,
}

/// For as long as it is not dropped.
pub(crate) async fn run(store: Store, doors: Doors, clock: Arc<dyn Clock>) {
    // With the generation of each post.
    let mut told: BTreeMap<ShardId, (u64, Told)> = BTreeMap::new();
    loop {
        clock.sleep(COMPARE).await;
        let open = doors.all();
        let known = |(shard, generation): (ShardId, u64)| {
            told.get(&shard).filter(|(post, _)| *post == generation).map_or(Told::default(), |(_, told)| *told)
        };
        let known: Vec<Told> = open.iter().map(|(shard, door)| known((*shard, door.generation))).collect();
        let Some(defined) = known.iter().map(|told| told.defined).min() else { continue };
        let removed = known.iter().map(|told| told.removed).min().unwrap_or_default();
        let read = async { Ok::<_, StoreError>((store.queues(defined).await?, store.removed_queues(removed).await?)) };
        let (changed, gone) = match read.await {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%error, "definitions of queues could not be read; the next round will");
                continue;
            }
        };
        let latest = Told {
            defined: changed.iter().map(|row| row.revision).max().unwrap_or(defined),
            removed: gone.iter().map(|gone| gone.revision).max().unwrap_or(removed),
        };
        for row in &changed {
            if let Some(error) = &row.unreadable {
                let queue = &row.spec.name;
                tracing::warn!(%queue, error, "a definition cannot be read by this version; until it is replaced, the queue is held");
            }
        }
        let mut heard = BTreeMap::new();
        for ((shard, door), known) in open.into_iter().zip(known) {
            let defined: Vec<QueueRow> =
                changed.iter().filter(|row| shard_of(&row.spec.name) == shard).cloned().collect();
            let removed: Vec<Removed> = gone.iter().filter(|gone| shard_of(&gone.queue) == shard).cloned().collect();
            let nothing = defined.is_empty() && removed.is_empty();
            // A post that takes nothing in is told the next time, and keeps no other waiting; one that has just ended has a
            // successor, which reads them itself.
            let is_told = nothing || door.asks.try_send(Ask::Queues { defined, removed }).is_ok();
            heard.insert(shard, (door.generation, if is_told { latest } else { known }));
        }
        told = heard;
    }
}
