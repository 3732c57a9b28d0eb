//! Reports that came to the wrong shard. Workers of the version before there were shards send their heartbeats, and the
//! outcomes of what they were given by a manager of that version, to shard 0, whatever their queue. They are passed on to
//! where they belong, so that a manager can be upgraded under its workers. A worker that no manager has spoken to yet sends
//! a copy of its heartbeat there as well, so that it can be upgraded under its manager.
//!
//! To be removed, with [`Reports::detour`], when no such worker can be left.

use std::collections::HashMap;

use mutirao_broker::{BrokerError, Shared as Broker};
use mutirao_core::ShardId;
use mutirao_core::envelope::{Reports, results_at, seal, shard_of};
use mutirao_core::id::SessionId;

use crate::store::Shared as Store;

/// The one that everything was sent to.
const FORMER: ShardId = ShardId(0);
/// Sessions whose shard is remembered.
const SESSIONS_MAX: usize = 10_000;

pub(crate) struct Strays {
    shard: ShardId,
    store: Store,
    broker: Broker,
    homes: HashMap<SessionId, ShardId>,
}

impl Strays {
    pub fn at(shard: ShardId, store: Store, broker: Broker) -> Self {
        Self { shard, store, broker, homes: HashMap::new() }
    }

    /// The reports, without what belonged elsewhere and was passed on.
    pub async fn pass_on(&mut self, mut reports: Reports) -> Result<Reports, BrokerError> {
        if self.shard != FORMER {
            return Ok(reports);
        }
        let home = self.home_of(&reports).await;
        if home == self.shard {
            return Ok(reports);
        }
        let rest = Reports::new(reports.session.clone(), reports.worker.clone());
        if reports.detour {
            // A copy that a worker sent in case its manager is of that version; the other went home.
            return Ok(rest);
        }
        reports.detour = true;
        self.broker.publish(&results_at(home), vec![seal(&reports)]).await?;
        Ok(rest)
    }

    async fn home_of(&mut self, reports: &Reports) -> ShardId {
        if let Some(home) = self.homes.get(&reports.session) {
            return *home;
        }
        let home = match &reports.beat {
            Some(beat) => shard_of(&beat.queue),
            // A session is written down before it is given anything to speak of.
            None => match self.store.queue_of(reports.session.clone()).await {
                Ok(Some(queue)) => shard_of(&queue),
                Ok(None) => return self.shard,
                Err(error) => {
                    tracing::warn!(%error, session = %reports.session, "where a report belongs cannot be looked up");
                    return self.shard;
                }
            },
        };
        if self.homes.len() >= SESSIONS_MAX {
            self.homes.clear();
        }
        self.homes.insert(reports.session.clone(), home);
        home
    }
}
