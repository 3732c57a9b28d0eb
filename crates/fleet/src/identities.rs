//! What the fleet asks of those who let workers in. Given to it, so that it does not know them.

use async_trait::async_trait;
use mutirao_core::{Problem, QueueName, WorkerId};
use mutirao_elastic::protocol::Invitation;

#[async_trait]
pub trait Identities: Send + Sync + 'static {
    /// An id for a worker that does not exist yet.
    fn mint(&self) -> WorkerId;

    /// Whether the id was given out by [`mint`](Self::mint), and not to a worker that people let in.
    fn is_minted(&self, worker: &WorkerId) -> bool;

    /// The one-time token with which the worker of this id comes in; the one before is worthless.
    async fn invite(&self, worker: &WorkerId, queue: &QueueName, by: &str) -> Result<Invitation, Problem>;

    /// The worker of this id is not let in any more, whether it ever came or not. Again changes nothing.
    async fn revoke(&self, worker: &WorkerId, by: &str) -> Result<(), Problem>;

    /// The queue of a worker that is let in.
    async fn queue_of(&self, worker: &WorkerId) -> Result<Option<QueueName>, Problem>;
}
