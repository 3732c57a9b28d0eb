//! Letting jobs go that waited for others to end. Pulled, not pushed: whoever owns a shard looks at what is written, when
//! something ended and every few seconds, so that no end is missed whoever dies when.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::envelope::shard_of;
use mutirao_core::id::JobKey;
use mutirao_core::{Clock, ShardId};
use mutirao_shards::Shards;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;

use crate::asking::Asking;
use crate::meters::ENDED;
use crate::news::News;
use crate::question::Question;
use crate::store::Shared as Store;
use crate::store::held::{Released, Rest};

/// Between two looks though nothing was heard: a word may get lost.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long news gathers before a look: a busy shard settles hundreds of times a second.
const GATHER: Duration = Duration::from_millis(100);

pub(super) struct Holding {
    pub store: Store,
    pub shards: Shards,
    pub asking: Arc<Asking>,
    pub news: News,
    pub clock: Arc<dyn Clock>,
    pub bell: Arc<Notify>,
}

impl Holding {
    pub async fn run(self) {
        let mut changes = self.news.follow();
        let mut rest = Rest::Some;
        loop {
            tokio::select! {
                () = self.clock.sleep(LOOK_EVERY) => {}
                () = self.bell.notified() => {}
                // Where nothing is held, nobody needs to know what ended.
                heard = changes.recv(), if rest == Rest::Some => {
                    if let Err(RecvError::Closed) = heard {
                        return;
                    }
                    self.clock.sleep(GATHER).await;
                    changes = changes.resubscribe();
                }
            }
            rest = self.look().await;
        }
    }

    /// Until nothing more may go: who was let go or cancelled may be what another waited for.
    async fn look(&self) -> Rest {
        loop {
            let shards: Vec<ShardId> = self.shards.owned().borrow().keys().copied().collect();
            if shards.is_empty() {
                return Rest::Some;
            }
            match self.store.release(shards, self.clock.now()).await {
                Ok(released) if released.is_empty() => return released.rest,
                Ok(released) => self.tell(released).await,
                Err(error) => {
                    tracing::debug!(%error, "jobs that wait for others could not be looked at; the next look will");
                    return Rest::Some;
                }
            }
        }
    }

    async fn tell(&self, released: Released) {
        let tasks: u64 = released.cancelled.iter().map(|(_, tasks)| tasks).sum();
        metrics::counter!(ENDED, "state" => "cancelled").increment(tasks);
        let mut changed: Vec<JobKey> = released.cancelled.into_iter().map(|(job, _)| job).collect();
        for (job, queue) in released.free {
            // Were nobody to hear this, the owner would find the job by itself.
            self.asking.tell(shard_of(&queue), Question::Admit { job }).await;
            changed.push(job);
        }
        self.news.tell(changed);
    }
}
