//! Hearing that definitions have changed, for all the posts of this process at once: whoever changes a monitor says in which
//! shard, and the post of that shard looks. What is not heard is found by looking now and then.

use std::array;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard, Shared as Broker};
use mutirao_core::envelope::open;
use mutirao_core::{Clock, ShardId};
use tokio::sync::Notify;

use crate::SHARDS;
use crate::envelope::{CHANGES, Changed};

const PAUSE: Duration = Duration::from_millis(500);

pub struct Notices([Notify; SHARDS as usize]);

impl Default for Notices {
    fn default() -> Self {
        Self(array::from_fn(|_| Notify::new()))
    }
}

impl Notices {
    /// Ends when something has changed in the shard since it was asked last. One post waits for each.
    pub async fn told(&self, shard: ShardId) {
        match self.0.get(shard.0 as usize) {
            Some(bell) => bell.notified().await,
            None => std::future::pending().await,
        }
    }

    fn ring(&self, shard: u32) {
        if let Some(bell) = self.0.get(shard as usize) {
            bell.notify_one();
        }
    }

    fn ring_all(&self) {
        self.0.iter().for_each(Notify::notify_one);
    }
}

/// For as long as it is not dropped.
pub async fn listen(notices: Arc<Notices>, broker: Broker, clock: Arc<dyn Clock>) {
    loop {
        match hear(&notices, &broker).await {
            Err(BrokerError::Closed) => return,
            Err(error) => tracing::debug!(%error, "changes of monitors are not heard; trying again"),
            Ok(()) => {}
        }
        clock.sleep(PAUSE).await;
    }
}

async fn hear(notices: &Notices, broker: &Broker) -> Result<(), BrokerError> {
    let mut ear = broker.subscribe(CHANGES).await?;
    // What was said before anybody listened.
    notices.ring_all();
    loop {
        match ear.next().await? {
            Heard::Message(body) => match open::<Changed>(&body) {
                Ok(changed) => notices.ring(changed.shard),
                Err(_) => notices.ring_all(),
            },
            Heard::Gap => notices.ring_all(),
        }
    }
}
