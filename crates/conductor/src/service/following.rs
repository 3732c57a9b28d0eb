//! Following a stream: how it is, each time that this is different.

use std::time::Duration;

use mutirao_core::Problem;
use mutirao_core::auth::Principal;

use super::Streams;
use crate::view::StreamView;

pub struct Follower {
    streams: Streams,
    caller: Principal,
    name: String,
    pace: Duration,
    first: Option<StreamView>,
    last: Option<StreamView>,
}

impl Streams {
    /// Of a stream that is there.
    pub async fn follow(&self, caller: &Principal, name: &str, pace: Duration) -> Result<Follower, Problem> {
        let first = Some(self.stream(caller, name).await?);
        let (streams, caller, name) = (self.clone(), caller.clone(), name.to_owned());
        Ok(Follower { streams, caller, name, pace, first, last: None })
    }
}

impl Follower {
    /// The next that differs from the last; none when it is deleted, or the manager is leaving.
    pub async fn next(&mut self) -> Option<StreamView> {
        if let Some(first) = self.first.take() {
            self.last = Some(first.clone());
            return Some(first);
        }
        let inner = self.streams.0.clone();
        loop {
            tokio::select! {
                () = inner.clock.sleep(self.pace) => {}
                () = inner.shutdown.cancelled() => return None,
            }
            match self.streams.stream(&self.caller, &self.name).await {
                Ok(view) if self.last.as_ref() == Some(&view) => {}
                Ok(view) => {
                    self.last = Some(view.clone());
                    return Some(view);
                }
                Err(problem) if problem.status == 404 => return None,
                // A store that does not answer now may do so in a moment.
                Err(_) => {}
            }
        }
    }
}
