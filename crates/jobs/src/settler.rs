//! Writes settlements, one after the other, for as long as it takes; or until it hears that the shard has another owner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mutirao_core::Clock;
use mutirao_core::id::{JobKey, QueueName, SessionId};
use mutirao_core::life::Final;
use mutirao_shards::Fence;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::desk::SessionChange;
use crate::meters::{ENDED, SETTLE};
use crate::news::News;
use crate::question::Answer;
use crate::reports::Mark;
use crate::store::{Settlement, Settling, Shared as Store};

/// Between two tries at writing when the store refuses.
const PAUSE: Duration = Duration::from_millis(500);

/// What everybody in this process may know about a shard's state without asking.
#[derive(Default)]
pub struct Vitals {
    pub open_tasks: AtomicU64,
    pub workers: AtomicU64,
    /// Tasks that have not ended, by queue, as of a few seconds ago.
    pub depths: Mutex<BTreeMap<QueueName, u64>>,
    /// Why nothing can be written at the moment, if so.
    pub trouble: Mutex<Option<String>>,
}

/// What is written together, and who waits for it.
pub struct Batch {
    pub settlement: Settlement,
    /// The reports that are settled with it.
    pub through: Mark,
    /// Whoever wanted a task cancelled.
    pub answers: Vec<oneshot::Sender<Answer>>,
}

pub enum Said {
    Settled {
        through: Mark,
        came: Vec<SessionId>,
    },
    /// The shard has had another owner since. Nothing more is to be done for it here.
    Fenced,
}

pub struct Settler {
    pub store: Store,
    pub fence: Fence,
    pub clock: Arc<dyn Clock>,
    pub vitals: Arc<Vitals>,
    pub news: News,
}

impl Settler {
    pub async fn run(self, mut batches: mpsc::Receiver<Batch>, says: mpsc::Sender<Said>) {
        while let Some(Batch { settlement, through, answers }) = batches.recv().await {
            let settlement = Arc::new(settlement);
            let began = self.clock.monotonic();
            let settling = self.write(&settlement).await;
            metrics::histogram!(SETTLE).record(self.clock.monotonic().since(began).as_secs_f64());
            if settling == Settling::Fenced {
                // The foreman may be gone as well.
                let _ = says.send(Said::Fenced).await;
                return;
            }
            for answer in answers {
                // A caller that went away does not undo what it asked.
                let _ = answer.send(Answer::CancelTask(true));
            }
            let came = |change: &SessionChange| match change {
                SessionChange::Came(session, ..) => Some(session.clone()),
                SessionChange::Went(_) => None,
            };
            let came = settlement.sessions.iter().filter_map(came).collect();
            if says.send(Said::Settled { through, came }).await.is_err() {
                return;
            }
            // Last: what is written must not wait for a broker that may be waiting for it to be acknowledged.
            self.tell(&settlement).await;
        }
    }

    async fn tell(&self, settlement: &Settlement) {
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
        self.news.tell(jobs).await;
    }

    /// Only an answer ends this: what workers did must not be forgotten because a disk was full for an hour.
    async fn write(&self, settlement: &Arc<Settlement>) -> Settling {
        loop {
            match self.store.settle(settlement.clone(), self.fence.clone()).await {
                Ok(settling) => {
                    if self.vitals.trouble.lock().take().is_some() {
                        tracing::info!(shard = %self.fence.shard, "outcomes can be written again");
                    }
                    return settling;
                }
                Err(error) => {
                    let line = error.to_string();
                    let before = self.vitals.trouble.lock().replace(line.clone());
                    if before.as_ref() != Some(&line) {
                        tracing::error!(
                            shard = %self.fence.shard,
                            error = line,
                            "outcomes cannot be written; nothing is handed out until they can"
                        );
                    }
                }
            }
            self.clock.sleep(PAUSE).await;
        }
    }
}
