//! Which jobs changed, told to whoever follows them: in this process at once, in the others by the broker, a moment's
//! changes at a time, since a busy shard settles hundreds of times a second. Best effort: followers look for themselves now
//! and then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard, Shared as Broker};
use mutirao_core::Clock;
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::id::JobKey;
use mutirao_shards::MemberId;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};

use crate::question::{CHANGES, Changes};

/// Changes that a follower may fall behind by.
const BACKLOG_MAX: usize = 4_096;
const PAUSE: Duration = Duration::from_millis(500);
/// How long changes gather before other processes are told.
const GATHER: Duration = Duration::from_millis(50);

/// Clones share it.
#[derive(Clone)]
pub struct News {
    here: broadcast::Sender<JobKey>,
    broker: Broker,
    me: Arc<str>,
    untold: Arc<Untold>,
}

/// Jobs that changed and of which other processes have not been told.
#[derive(Default)]
struct Untold {
    jobs: Mutex<BTreeSet<JobKey>>,
    bell: Notify,
}

impl News {
    pub fn new(broker: Broker, me: &MemberId) -> Self {
        let (here, untold) = (broadcast::Sender::new(BACKLOG_MAX), Arc::default());
        Self { here, broker, me: me.0.as_str().into(), untold }
    }

    pub fn follow(&self) -> broadcast::Receiver<JobKey> {
        self.here.subscribe()
    }

    pub fn tell(&self, jobs: Vec<JobKey>) {
        if jobs.is_empty() {
            return;
        }
        self.tell_here(&jobs);
        {
            let mut untold = self.untold.jobs.lock();
            untold.extend(jobs);
            while untold.len() > BACKLOG_MAX {
                untold.pop_first();
            }
        }
        self.untold.bell.notify_one();
    }

    /// Tells other processes, for as long as this one lives.
    pub async fn announce(self, clock: Arc<dyn Clock>) {
        loop {
            self.untold.bell.notified().await;
            clock.sleep(GATHER).await;
            let jobs: Vec<JobKey> = std::mem::take(&mut *self.untold.jobs.lock()).into_iter().collect();
            let changes = Changes { v: Version::default(), from: self.me.as_ref().into(), jobs };
            if let Err(error) = self.broker.announce(CHANGES, seal(&changes)).await {
                tracing::debug!(%error, "changes not announced");
            }
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
