//! Ways for workers to a broker of their own, past the manager. Whoever runs the process knows the broker; the API only
//! knows who asks.

use async_trait::async_trait;
use mutirao_core::WorkerId;
use mutirao_core::auth::Way;

use crate::auth::registry::Worker;

#[async_trait]
pub trait Ways: Send + Sync + 'static {
    /// The way for this worker, good from now on; a way that it was given before is not good any more.
    async fn open(&self, worker: &Worker) -> Way;

    /// The worker does not come that way again. An error is for an admin to read.
    async fn close(&self, worker: &WorkerId) -> Result<(), String>;
}

/// Where there is no other broker than the one behind the link.
pub struct OnlyLink;

#[async_trait]
impl Ways for OnlyLink {
    async fn open(&self, _: &Worker) -> Way {
        Way::Link
    }

    async fn close(&self, _: &WorkerId) -> Result<(), String> {
        Ok(())
    }
}
