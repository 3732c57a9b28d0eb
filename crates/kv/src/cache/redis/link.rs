//! A connection to one run of a Redis. What was kept by another run is another's: one that was restored from a snapshot, or
//! promoted, has words and values from before their last changes, and cannot know. So the names of all that is kept hold the run.

use std::sync::Arc;

use mutirao_core::{Mono, ShardId};
use redis::aio::MultiplexedConnection;

use crate::cache::{CacheError, VOUCHED_FOR};
use crate::write::Place;

#[derive(Clone)]
pub(super) struct Link {
    pub connection: MultiplexedConnection,
    /// What every name begins with.
    names: Arc<str>,
    clock: ServerClock,
}

/// What the server's clock said, and when by ours. The two run apart, and the server's is set now and then: so nobody goes by one look
/// for long, and the server refuses a word that it cannot have been given so.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClock {
    pub server_ms: u64,
    pub ours: Mono,
}

impl Link {
    /// `info`: what the server says of itself.
    pub fn new(
        connection: MultiplexedConnection,
        prefix: &str,
        info: &str,
        clock: ServerClock,
    ) -> Result<Self, CacheError> {
        let run = said(info, "run_id").ok_or_else(|| CacheError::Refused("it does not say which run it is".into()))?;
        Ok(Self { connection, names: format!("{prefix}{run}:").into(), clock })
    }

    /// The server's clock was looked at again.
    pub fn set_clock(&mut self, clock: ServerClock) {
        self.clock = clock;
    }

    pub fn word(&self, shard: ShardId) -> String {
        format!("{}{{{}}}:word", self.names, shard.0)
    }

    pub fn slot(&self, shard: ShardId, place: &Place) -> String {
        format!("{}{{{}}}:{}/{}", self.names, shard.0, place.namespace, place.key)
    }

    /// Until when a word that was said then counts, by the server's clock.
    pub fn until(&self, said: Mono) -> u64 {
        self.clock.until(said)
    }
}

impl ServerClock {
    fn until(self, said: Mono) -> u64 {
        let (since, before) = (said.since(self.ours), self.ours.since(said));
        let until = self.server_ms + (since + VOUCHED_FOR).as_millis() as u64;
        until.saturating_sub(before.as_millis() as u64)
    }
}

/// A line of what a server says of itself.
pub(super) fn said<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).filter(|said| !said.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_word_counts_from_when_it_was_said_also_when_the_clock_was_looked_at_after_it() {
        let clock = ServerClock { server_ms: 1_000_000, ours: Mono(Duration::from_secs(50)) };
        let until = |said_ms| clock.until(Mono(Duration::from_millis(said_ms)));
        assert_eq!((until(50_000), until(50_300), until(49_700)), (1_002_000, 1_002_300, 1_001_700));
    }
}
