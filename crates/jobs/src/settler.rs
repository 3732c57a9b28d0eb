//! Writes settlements, one after the other, and says how each went. That one which failed is tried again is the foreman's to
//! decide; here it is told, once for each trouble, and made known to whoever asks whether all is well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mutirao_core::Clock;
use mutirao_core::id::{JobKey, QueueName};
use mutirao_core::life::Final;
use mutirao_shards::Fence;
use mutirao_store::StoreError;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::meters::{ENDED, SETTLE};
use crate::news::News;
use crate::store::{Settlement, Settling, Shared as Store};

/// What everybody in this process may know about a shard's state without asking.
#[derive(Default)]
pub struct Vitals {
    pub open_tasks: AtomicU64,
    pub workers: AtomicU64,
    /// Tasks that have not ended, by queue, as of a few seconds ago.
    pub depths: Mutex<BTreeMap<QueueName, u64>>,
    /// Why nothing can be written at the moment, if so.
    pub trouble: Mutex<Option<String>>,
    /// Why no worker can be heard at the moment, if so, though the broker may be there.
    pub deaf: Mutex<Option<String>>,
}

pub struct Settler {
    pub store: Store,
    pub fence: Fence,
    pub clock: Arc<dyn Clock>,
    pub vitals: Arc<Vitals>,
    pub news: News,
}

impl Settler {
    /// Until the foreman hangs up. None is said of what could not be written.
    pub async fn run(self, mut settlements: mpsc::Receiver<Arc<Settlement>>, says: mpsc::Sender<Option<Settling>>) {
        while let Some(settlement) = settlements.recv().await {
            let began = self.clock.monotonic();
            let settled = self.write(settlement.clone()).await;
            metrics::histogram!(SETTLE).record(self.clock.monotonic().since(began).as_secs_f64());
            if says.send(settled).await.is_err() {
                return;
            }
            if settled == Some(Settling::Written) {
                self.tell(&settlement);
            }
        }
    }

    fn tell(&self, settlement: &Settlement) {
        let mut ends = [0u64; Final::ALL.len()];
        for ended in &settlement.ended {
            if let Some(place) = Final::ALL.iter().position(|how| *how == ended.how) {
                ends[place] += 1;
            }
        }
        for (how, n) in Final::ALL.into_iter().zip(ends).filter(|(_, n)| *n > 0) {
            metrics::counter!(ENDED, "state" => how.as_str()).increment(n);
        }
        let mut jobs: Vec<JobKey> = settlement.ended.iter().map(|ended| ended.task.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        self.news.tell(jobs);
    }

    async fn write(&self, settlement: Arc<Settlement>) -> Option<Settling> {
        match self.store.settle(settlement, self.fence.clone()).await {
            Ok(settled) => {
                if self.vitals.trouble.lock().take().is_some() {
                    tracing::info!(shard = %self.fence.shard, "outcomes can be written again");
                }
                Some(settled)
            }
            Err(error) => {
                let line = error.to_string();
                let before = self.vitals.trouble.lock().replace(line.clone());
                // Every shard meets a lack of rights, and the store says it for all of them.
                if before.as_ref() != Some(&line) && !matches!(error, StoreError::Denied { .. }) {
                    tracing::error!(
                        shard = %self.fence.shard,
                        error = line,
                        "outcomes cannot be written; nothing is handed out until they can"
                    );
                }
                None
            }
        }
    }
}
