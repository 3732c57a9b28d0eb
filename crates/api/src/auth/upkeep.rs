//! What keeps the registry small and its readers quick, as a trait: one implementation for each engine. What was revoked or
//! ran out is kept for a while, for whoever looks at lists, and so are lines of the audit; signed requests that changed
//! something are remembered while they could be sent again; and whoever follows revocations reads the new ones only.

mod postgres;
mod sqlite;

use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::{Clock, Problem, Timestamp, WorkerId};
use mutirao_store::{StoreError, refused};

use super::Auth;
use super::nonces::{self, KEPT_FOR};
use super::signature::Claim;

pub const TIDY_EVERY: Duration = Duration::from_secs(3_600);
/// Rows of each table removed in one transaction; there are as many of these as it takes.
pub const ROWS_AT_ONCE: u32 = 5_000;

/// How long what is over is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Keys and tokens that were revoked or ran out.
    pub revoked: Duration,
    pub audit: Duration,
}

impl Default for Keep {
    fn default() -> Self {
        Self { revoked: Duration::from_secs(30 * 86_400), audit: Duration::from_secs(365 * 86_400) }
    }
}

#[async_trait]
pub trait Upkeep: Send + Sync + 'static {
    /// Whether this is the first request with that mark since `kept_from`; older marks are forgotten.
    async fn first_use(&self, mark: [u8; 16], at: Timestamp, kept_from: Timestamp) -> Result<bool, StoreError>;

    /// Forgets up to `rows` of each table: what was revoked or ran out before the one moment, audit lines of before the other.
    /// The most that went from any table.
    async fn forget(&self, revoked: Timestamp, audit: Timestamp, rows: u32) -> Result<u64, StoreError>;

    /// Workers that were revoked at this moment or later, in that order.
    async fn revoked_from(&self, from: Timestamp, rows: u32) -> Result<Vec<(Timestamp, WorkerId)>, StoreError>;
}

impl Auth {
    /// Refuses a signed request that this manager, another one, or one before a restart has let in already.
    pub async fn must_be_new(&self, claim: &Claim) -> Result<(), Problem> {
        let now = self.clock.now();
        let mark = nonces::mark(&claim.key, &claim.nonce).to_be_bytes();
        match self.registry.first_use(mark, now, before(now, KEPT_FOR)).await.map_err(refused)? {
            true => Ok(()),
            false => Err(nonces::used_before()),
        }
    }

    /// Workers that were revoked at this moment or later, in that order.
    pub async fn revoked_from(&self, from: Timestamp, rows: u32) -> Result<Vec<(Timestamp, WorkerId)>, Problem> {
        self.registry.revoked_from(from, rows).await.map_err(refused)
    }

    /// See [`keep_tidy`].
    pub async fn keep_tidy(&self, keep: Keep) {
        keep_tidy(&*self.registry, &*self.clock, keep).await;
    }
}

/// Forgets, every hour, what has been kept for long enough. Never ends.
pub async fn keep_tidy(upkeep: &dyn Upkeep, clock: &dyn Clock, keep: Keep) {
    loop {
        match tidy(upkeep, clock.now(), keep).await {
            Ok(0) => {}
            Ok(forgotten) => tracing::debug!(forgotten, "forgot keys, tokens and audit lines of long ago"),
            Err(error) => tracing::debug!(%error, "what is over could not be forgotten; the next round will"),
        }
        clock.sleep(TIDY_EVERY).await;
    }
}

async fn tidy(upkeep: &dyn Upkeep, now: Timestamp, keep: Keep) -> Result<u64, StoreError> {
    let mut all = 0;
    loop {
        let most = upkeep.forget(before(now, keep.revoked), before(now, keep.audit), ROWS_AT_ONCE).await?;
        all += most;
        if most < u64::from(ROWS_AT_ONCE) {
            return Ok(all);
        }
    }
}

fn before(now: Timestamp, span: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
}
