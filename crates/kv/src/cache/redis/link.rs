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
    /// What the server's clock said when it was made.
    server_ms: u64,
    ours: Mono,
}

impl Link {
    /// `info`: what the server says of itself.
    pub fn new(
        connection: MultiplexedConnection,
        prefix: &str,
        info: &str,
        server_ms: u64,
        ours: Mono,
    ) -> Result<Self, CacheError> {
        let run = said(info, "run_id").ok_or_else(|| CacheError::Refused("it does not say which run it is".into()))?;
        Ok(Self { connection, names: format!("{prefix}{run}:").into(), server_ms, ours })
    }

    pub fn word(&self, shard: ShardId) -> String {
        format!("{}{{{}}}:word", self.names, shard.0)
    }

    pub fn slot(&self, shard: ShardId, place: &Place) -> String {
        format!("{}{{{}}}:{}/{}", self.names, shard.0, place.namespace, place.key)
    }

    /// Until when a word that was said then counts, by the server's clock.
    pub fn until(&self, said: Mono) -> u64 {
        self.server_ms + (said.since(self.ours) + VOUCHED_FOR).as_millis() as u64
    }
}

/// A line of what a server says of itself.
pub(super) fn said<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).filter(|said| !said.is_empty())
}
