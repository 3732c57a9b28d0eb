//! What has been applied of what an outbox sent: another manager applies it, and tells nobody here. The store is asked once for all
//! shards.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::ShardId;
use mutirao_core::clock::ClockExt;
use mutirao_store::StoreError;

use super::Outbox;
use crate::SHARDS;
use crate::fold::Fate;
use crate::intake::Answer;

/// How often it is looked whether what another manager applies has been, while somebody waits for it and otherwise.
const LOOK_AWAITED: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(250);
pub(super) async fn follow(outbox: Arc<Outbox>) {
    loop {
        if outbox.followed().is_empty() {
            outbox.bell.notified().await;
        }
        let due = outbox.clock.monotonic().plus(LOOK);
        while !outbox.is_awaited_elsewhere() {
            tokio::select! {
                // Somebody may wait from now on.
                () = outbox.bell.notified() => {}
                () = outbox.clock.sleep_until(due) => break,
            }
        }
        let soon = outbox.clock.monotonic().plus(LOOK_AWAITED);
        outbox.clock.sleep_until(soon.min(due)).await;
        if let Err(error) = outbox.look().await {
            tracing::debug!(%error, "what was applied is not known for now");
            outbox.clock.sleep(LOOK).await;
        }
    }
}

impl Outbox {
    /// The shards to which something is under way, or of which somebody waits for something.
    fn followed(&self) -> Vec<ShardId> {
        let is_followed = |shard: &ShardId| !self.lane(*shard).book.lock().is_empty();
        (0..SHARDS).map(ShardId).filter(is_followed).collect()
    }

    /// Whoever applies in this process says so itself; then the store is looked at for what its predecessor applied only.
    fn is_awaited_elsewhere(&self) -> bool {
        let is_awaited = |shard: ShardId| self.lane(shard).book.lock().is_awaited();
        (0..SHARDS).map(ShardId).any(|shard| is_awaited(shard) && self.shards.tenure(shard).is_none())
    }

    async fn look(&self) -> Result<(), StoreError> {
        let followed = self.followed();
        let asked = followed.iter().map(|shard| (*shard, self.producer)).collect();
        let heard = self.store.heard(asked).await?;
        for (shard, last) in followed.into_iter().zip(heard).filter_map(|(shard, last)| Some((shard, last?))) {
            self.tell(shard, last).await?;
        }
        Ok(())
    }

    /// Everything up to this parcel was applied, or never will be.
    async fn tell(&self, shard: ShardId, last: u64) -> Result<(), StoreError> {
        let awaited = self.lane(shard).book.lock().awaited_through(last);
        for number in awaited {
            let taken = self.store.taken(shard, self.producer, number).await?;
            let waiters = self.lane(shard).book.lock().waiters_of(number);
            for (index, waiter) in waiters {
                let id = self.id(shard, number, index);
                // Where nothing is known of it any more, nothing is said: it was durable, and can be asked after.
                let Some(taken) = &taken else { continue };
                let _ = waiter.send(match taken.fates.get(index as usize).copied() {
                    Some(fate @ Fate::Applied { .. }) => Answer::Settled { id, fate },
                    Some(Fate::Conflict { .. }) => Answer::Unfit,
                    None => Answer::SetAside { id },
                });
            }
        }
        self.reach(shard, last);
        Ok(())
    }
}
