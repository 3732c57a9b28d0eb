//! Which jobs changed, told to whoever follows them: in this process at once, in the others by the broker. Best effort:
//! followers look for themselves now and then.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard, Shared as Broker};
use mutirao_core::Clock;
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::id::JobKey;
use mutirao_shards::MemberId;
use tokio::sync::broadcast;

use crate::question::{CHANGES, Changes};

/// Changes that a follower may fall behind by.
const BACKLOG_MAX: usize = 4_096;
const PAUSE: Duration = Duration::from_millis(500);

/// Clones share it.
#[derive(Clone)]
pub struct News {
    here: broadcast::Sender<JobKey>,
    broker: Broker,
    me: Arc<str>,
}

impl News {
    pub fn new(broker: Broker, me: &MemberId) -> Self {
        Self { here: broadcast::Sender::new(BACKLOG_MAX), broker, me: me.0.as_str().into() }
    }

    pub fn follow(&self) -> broadcast::Receiver<JobKey> {
        self.here.subscribe()
    }

    pub async fn tell(&self, jobs: Vec<JobKey>) {
        if jobs.is_empty() {
            return;
        }
        self.tell_here(&jobs);
        let changes = Changes { v: Version::default(), from: self.me.as_ref().into(), jobs };
        if let Err(error) = self.broker.announce(CHANGES, seal(&changes)).await {
            tracing::debug!(%error, "changes not announced");
        }
    }

    fn tell_here(&self, jobs: &[JobKey]) {
        for job in jobs {
            // Nobody may be listening.
            let _ = self.here.send(*job);
        }
    }

    /// Passes on what other managers tell, until the broker is closed.
    pub async fn listen(self, clock: Arc<dyn Clock>) {
        loop {
            match self.hear().await {
                Err(BrokerError::Closed) => return,
                Err(error) => tracing::debug!(%error, "changes of other managers are not heard; trying again"),
                Ok(()) => {}
            }
            clock.sleep(PAUSE).await;
        }
    }

    async fn hear(&self) -> Result<(), BrokerError> {
        let mut heard = self.broker.subscribe(CHANGES).await?;
        loop {
            // A gap is made good by the next look.
            let Heard::Message(body) = heard.next().await? else { continue };
            match open::<Changes>(&body) {
                Ok(changes) if changes.from != *self.me => self.tell_here(&changes.jobs),
                Ok(_) => {}
                Err(unreadable) => tracing::debug!(%unreadable, "an announcement of changes cannot be read"),
            }
        }
    }
}
