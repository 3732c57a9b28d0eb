//! Reading the store for the foreman: everything when a shard gets a new owner, then what it wants to compare with. What is
//! made of it is the foreman's to say.
//!
//! A job that cannot be read (a newer manager's, while they are upgraded one by one, or damaged) is left where it is; all
//! others go on.

use std::collections::BTreeSet;

use mutirao_core::ShardId;
use mutirao_core::id::JobKey;
use mutirao_store::StoreError;
use tokio::sync::mpsc;

use crate::foreman::{Errand, Found, Recalled};
use crate::store::{OpenJob, OpenJobs, Shared as Store, Unreadable};

/// Jobs that one line of the log names.
const NAMED_MAX: usize = 10;

/// Reads for one post.
pub(crate) struct Reader {
    store: Store,
    shard: ShardId,
    /// Of which it was said that they cannot be read: each round finds them again.
    told: BTreeSet<JobKey>,
}

impl Reader {
    pub fn new(store: Store, shard: ShardId) -> Self {
        Self { store, shard, told: BTreeSet::new() }
    }

    /// Reads one errand at a time, until the foreman hangs up.
    pub async fn run(mut self, mut errands: mpsc::Receiver<Errand>, found: mpsc::Sender<Found>) {
        while let Some(errand) = errands.recv().await {
            let read = match errand {
                Errand::Keys => self.keys().await,
                Errand::Jobs(keys) => self.jobs(keys).await.map(Found::Jobs),
            };
            let read = read.unwrap_or_else(|error| {
                let shard = self.shard;
                tracing::debug!(%shard, %error, "the store could not be compared with; the next round will");
                Found::Nothing
            });
            if found.send(read).await.is_err() {
                return;
            }
        }
    }

    /// Everything a new owner must know. Sessions are read first: one that comes later beats, and is heard.
    pub async fn everything(&mut self, generation: u64) -> Result<Recalled, StoreError> {
        let sessions = self.store.sessions(self.shard).await?;
        let keys = self.store.open_keys(self.shard).await?;
        let jobs = if keys.is_empty() { Vec::new() } else { self.jobs(keys).await? };
        let queues = self.store.queues_of(self.shard).await?;
        Ok(Recalled { generation, jobs, sessions, queues })
    }

    async fn keys(&self) -> Result<Found, StoreError> {
        let open = self.store.open_keys(self.shard).await?;
        Ok(Found::Keys { open, revived: self.store.revived(self.shard).await? })
    }

    async fn jobs(&mut self, keys: Vec<JobKey>) -> Result<Vec<OpenJob>, StoreError> {
        let OpenJobs { jobs, unreadable } = self.store.open_jobs(keys).await?;
        let news: Vec<&Unreadable> = unreadable.iter().filter(|job| self.told.insert(job.job)).collect();
        if let Some(first) = news.first() {
            let named: Vec<String> = news.iter().take(NAMED_MAX).map(|job| job.job.to_string()).collect();
            tracing::warn!(
                shard = %self.shard,
                jobs = named.join(", "),
                count = news.len(),
                error = first.why,
                "jobs cannot be read by this version and wait; upgrade this manager, or cancel them"
            );
        }
        Ok(jobs)
    }
}
