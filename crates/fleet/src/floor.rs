//! What the fleet asks of those who hand out tasks. Given to it, so that it does not know them.

use async_trait::async_trait;
use mutirao_core::job::WorkerView;
use mutirao_core::{Problem, QueueName, ShardId, WorkerId};
use mutirao_elastic::view::ManagersStatus;
use mutirao_queues::{QueueSight, QueueSpec};

#[async_trait]
pub trait Floor: Send + Sync + 'static {
    /// Every queue there is, by name.
    async fn queues(&self) -> Result<Vec<QueueSpec>, Problem>;

    /// Those of the queues whose owners answer. One question for each owner, not for each queue.
    async fn look(&self, queues: &[QueueName]) -> Vec<QueueSight>;

    /// The worker processes that are alive, and the shards whose owners did not say.
    async fn workers(&self) -> (Vec<WorkerView>, Vec<ShardId>);

    /// How many managers there are, and should be; none where there can be but one.
    fn managers(&self) -> Option<ManagersStatus> {
        None
    }

    /// These, and no others, are to be handed nothing. Said to the owners in this process every few seconds and to the
    /// owner of a queue at once when one of its workers is added.
    async fn drain(&self, all: &[(WorkerId, QueueName)], news: Option<&QueueName>);
}
