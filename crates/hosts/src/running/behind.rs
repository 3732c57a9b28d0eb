//! How many records lie before a part. Asking costs the broker something, so it is asked more seldom where that takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::Means;

const EVERY: Duration = Duration::from_secs(1);
/// Of the time, this share is spent asking, at most.
const SHARE: u32 = 50;

pub struct Behind {
    end: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Behind {
    pub fn look(log: String, means: &Means, end: u64) -> Self {
        let end = Arc::new(AtomicU64::new(end));
        let (means, told) = (means.clone(), end.clone());
        let task = tokio::spawn(async move {
            loop {
                let begun = means.clock.monotonic();
                if let Ok((_, end)) = means.broker.extent(&log).await {
                    told.store(end, Ordering::Relaxed);
                }
                let took = means.clock.monotonic().since(begun);
                means.clock.sleep(EVERY.max(took * SHARE)).await;
            }
        });
        Self { end, task }
    }

    pub fn records(&self, next: u64) -> u64 {
        self.end.load(Ordering::Relaxed).saturating_sub(next)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.task.abort();
    }
}
