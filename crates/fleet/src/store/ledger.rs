//! What is owed and who is who: identities that are still to be revoked, and which resource manager goes by which name in the
//! lease. One implementation for each engine.

use async_trait::async_trait;
use mutirao_core::WorkerId;
use mutirao_store::StoreError;

/// Identities revoked at one go; the rest waits for the next.
pub const REVOKED_AT_ONCE: u32 = 100;

#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Some of those whose identities are still to be revoked, the oldest first.
    async fn to_revoke(&self) -> Result<Vec<WorkerId>, StoreError>;

    /// Their identities are worth nothing any more.
    async fn revoked(&self, workers: Vec<WorkerId>) -> Result<(), StoreError>;

    /// The resource manager that goes by this name; from now on `manager` when nobody did.
    async fn named(&self, member: &str, manager: &str) -> Result<String, StoreError>;
}
