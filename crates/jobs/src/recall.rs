//! Reading the store for the foreman: everything when a shard gets a new owner, then what it wants to compare with. What is
//! made of it is the foreman's to say.

use mutirao_core::ShardId;
use mutirao_store::StoreError;
use tokio::sync::mpsc;

use crate::foreman::{Errand, Found, Recalled};
use crate::store::Shared as Store;

/// Reads one errand at a time, until the foreman hangs up.
pub(crate) async fn run(store: Store, shard: ShardId, mut errands: mpsc::Receiver<Errand>, found: mpsc::Sender<Found>) {
    while let Some(errand) = errands.recv().await {
        let read = match errand {
            Errand::Keys => store.open_keys(shard).await.map(Found::Keys),
            Errand::Jobs(keys) => store.open_jobs(keys).await.map(Found::Jobs),
        };
        let read = read.unwrap_or_else(|error| {
            tracing::debug!(%shard, %error, "the store could not be compared with; the next round will");
            Found::Nothing
        });
        if found.send(read).await.is_err() {
            return;
        }
    }
}

/// Everything a new owner must know. Sessions are read first: one that comes later beats, and is heard.
pub(crate) async fn everything(store: &Store, shard: ShardId, generation: u64) -> Result<Recalled, StoreError> {
    let sessions = store.sessions(shard).await?;
    let keys = store.open_keys(shard).await?;
    let jobs = if keys.is_empty() { Vec::new() } else { store.open_jobs(keys).await? };
    let queues = store.queues_of(shard).await?;
    Ok(Recalled { generation, jobs, sessions, queues })
}
