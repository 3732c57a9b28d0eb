//! Following a run: what of it is durable, each time that is more.

use std::time::Duration;

use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{Flows, GLANCE, LOOK_AGAIN};
use crate::foreman::words::RunKey;
use crate::shard_of;
use crate::store::Progress;
use crate::view::RunView;

pub struct Follower {
    flows: Flows,
    caller: Principal,
    run: RunKey,
    pace: Duration,
    changed: Receiver<RunKey>,
    /// What comes next; none when it is to be looked at.
    first: Option<RunView>,
    /// How far it was when it was looked at.
    last: Progress,
}

impl Flows {
    /// Of a run that is there.
    pub async fn follow(&self, caller: &Principal, run: u64, pace: Duration) -> Result<Follower, Problem> {
        let changed = self.0.bench.changed.subscribe();
        let (first, last) = self.look(caller, run).await?;
        let (flows, caller) = (self.clone(), caller.clone());
        Ok(Follower { flows, caller, run: RunKey(run), pace, changed, first: Some(first), last })
    }
}

impl Follower {
    /// The next state that differs from the last; none when there will be no more, or the manager is leaving.
    pub async fn next(&mut self) -> Option<RunView> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            self.flows.0.clock.sleep(self.pace).await;
            self.change().await?;
            // It may be large: all of it is read only where there is more of it than there was.
            if self.flows.0.store.progress(self.run).await.ok()?? != self.last {
                let (view, progress) = self.flows.look(&self.caller, self.run.0).await.ok()?;
                self.last = progress;
                return Some(view);
            }
        }
    }

    /// Until it may have changed.
    async fn change(&mut self) -> Option<()> {
        let inner = &self.flows.0;
        let known_here = inner.bench.doors.of(shard_of(self.run)).is_some();
        let look_again = inner.clock.sleep(if known_here { LOOK_AGAIN } else { GLANCE });
        tokio::pin!(look_again);
        loop {
            tokio::select! {
                () = &mut look_again => return Some(()),
                () = inner.shutdown.cancelled() => return None,
                change = self.changed.recv() => match change {
                    Ok(run) if run != self.run => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return Some(()),
                    Err(RecvError::Closed) => return None,
                }
            }
        }
    }
}
