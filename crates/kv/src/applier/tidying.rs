//! What an applier does between batches: it ends what is over, and forgets what is old. A value lasts until it is ended here,
//! whatever time it is elsewhere: whoever reads sees it until then, and never again.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_store::StoreError;

use super::due::Left;
use super::{Applier, Go};
use crate::SHARDS;
use crate::store::{Applying, Bound, Forget, Forgot};

/// Entries that are ended at once.
const EXPIRE_ROWS: u32 = 1_000;
/// Rows that are forgotten at once: writes wait for so many.
const FORGET_ROWS: u32 = 1_000;
/// What is younger stays, however much it is: longer than anybody waits for a write, or is away between two pages of a list.
const YOUNG: Duration = Duration::from_secs(120);
/// At least this long after they were last heard to live senders are known; those who live say so much more often.
const SENDERS_KEPT: Duration = Duration::from_secs(86_400);

impl Applier {
    /// Ends what is over, and forgets what is old.
    pub(super) async fn tidy(&mut self) -> Go {
        let clock = self.bench.clock.clone();
        if self.due.ends(clock.now(), clock.monotonic()) {
            match self.expire().await {
                Ok(Go::On) => {}
                Ok(Go::Away) => return Go::Away,
                Err(error) => {
                    tracing::debug!(%error, "entries that are over stay for now; the next round ends them");
                    self.due.is_away(clock.monotonic());
                }
            }
        }
        match self.due.forgets(clock.now(), clock.monotonic()) {
            Ok(true) => self.forget().await,
            Ok(false) => {}
            Err(jump) => tracing::warn!(
                jump_s = jump.as_secs(),
                shard = self.fence.shard.0,
                "the clock of this machine was set; nothing of kv is forgotten for some minutes"
            ),
        }
        Go::On
    }

    async fn expire(&mut self) -> Result<Go, StoreError> {
        let (store, now) = (self.bench.store.clone(), self.bench.clock.now());
        let over = store.over(self.fence.shard, now, EXPIRE_ROWS).await?;
        if !over.is_empty() {
            // As with any other change: whoever finds them at hand finds what the store says.
            let marked = self.warden.mark(&over).await;
            let expiring = store.expire(self.fence.clone(), over.clone(), now).await;
            match expiring.inspect_err(|_| self.warden.is_in_doubt())? {
                Applying::Done { revision, entries, .. } => {
                    self.warden.offer(marked, over, entries).await;
                    self.warden.is_settled();
                    self.reached(revision);
                }
                Applying::Fenced => return Ok(Go::Away),
            }
        }
        let soonest = store.soonest(self.fence.shard).await?;
        self.due.is_known(soonest);
        Ok(Go::On)
    }

    async fn forget(&mut self) {
        let now = self.bench.clock.now();
        let before = |keep: Duration| Timestamp(now.0.saturating_sub(keep.as_millis() as i64));
        let keep = self.bench.keep;
        let bound = |all: u64| Bound { bytes_max: all / u64::from(SHARDS), past: before(YOUNG) };
        let forget = Forget {
            past: before(keep),
            senders: before(keep.max(SENDERS_KEPT)),
            bound: self.bench.keep_bytes.map(bound),
        };
        let left = match self.bench.store.compact(self.fence.clone(), forget, FORGET_ROWS).await {
            Ok(Forgot { rows, bytes_left }) => {
                self.history.set(bytes_left);
                if rows >= u64::from(FORGET_ROWS) { Left::More } else { Left::Nothing }
            }
            Err(error) => {
                tracing::debug!(%error, "old history stays for now; the next round removes it");
                Left::Nothing
            }
        };
        self.due.forgot(left, self.bench.clock.monotonic());
    }
}
