//! Workers and nodes as people see them, how elasticity stands, and how resource managers are let in. What a resource
//! manager itself says is beside it.

use mutirao_core::QueueName;
use mutirao_core::auth::{ElasticEnrolled, ElasticInvitation, ElasticKeyView, Enrol, NewKey};
use mutirao_core::job::Page;
use mutirao_elastic::view::{ElasticStatus, HistoryLine, NodeView, Plan, WorkerDetail};

use crate::error::ClientError;
use crate::http::{Call, Client, Repeat};
use crate::jobs::PageArgs;
use crate::target::Target;

impl Client {
    /// Makes a one-time token for a resource manager.
    pub async fn invite_elastic(&self) -> Result<ElasticInvitation, ClientError> {
        self.fetch(Call::post(Target::new("/v1/elastic/invitations"), Repeat::Never)).await
    }

    /// Spends a one-time token on a resource manager's first key.
    pub async fn enrol_elastic(&self, enrol: &Enrol) -> Result<ElasticEnrolled, ClientError> {
        self.fetch(Call::post(Target::new("/v1/elastic/enrol"), Repeat::Never).json(enrol)?).await
    }

    /// A further key of the resource manager whose key this client has.
    pub async fn add_elastic_key(&self, key: &NewKey) -> Result<ElasticEnrolled, ClientError> {
        self.fetch(Call::post(Target::new("/v1/elastic/keys"), Repeat::Never).json(key)?).await
    }

    /// The keys of resource managers, the oldest first.
    pub async fn elastic_keys(&self, page: PageArgs) -> Result<Page<ElasticKeyView>, ClientError> {
        self.fetch(Call::get(page.of(Target::new("/v1/elastic/keys")))).await
    }

    pub async fn revoke_elastic_key(&self, key: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(Target::new("/v1/elastic/keys").part(key))).await.map(drop)
    }

    pub async fn elastic_status(&self) -> Result<ElasticStatus, ClientError> {
        self.fetch(Call::get(Target::new("/v1/elastic/status"))).await
    }

    /// What the resource manager would do now, and why.
    pub async fn elastic_plan(&self) -> Result<Plan, ClientError> {
        self.fetch(Call::get(Target::new("/v1/elastic/plan"))).await
    }

    /// The latest changes first, of one queue or all.
    pub async fn elastic_history(
        &self,
        queue: Option<&QueueName>,
        page: PageArgs,
    ) -> Result<Page<HistoryLine>, ClientError> {
        self.fetch(Call::get(page.of(Target::new("/v1/elastic/history").arg("queue", queue)))).await
    }

    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/nodes"))).await
    }

    pub async fn node(&self, name: &str) -> Result<NodeView, ClientError> {
        self.fetch(Call::get(node(name))).await
    }

    pub async fn cordon_node(&self, name: &str) -> Result<NodeView, ClientError> {
        self.fetch(Call::post(node(name).part("cordon"), Repeat::Safe)).await
    }

    pub async fn uncordon_node(&self, name: &str) -> Result<NodeView, ClientError> {
        self.fetch(Call::post(node(name).part("uncordon"), Repeat::Safe)).await
    }

    pub async fn drain_node(&self, name: &str) -> Result<NodeView, ClientError> {
        self.fetch(Call::post(node(name).part("drain"), Repeat::Safe)).await
    }

    pub async fn worker(&self, worker: &str) -> Result<WorkerDetail, ClientError> {
        self.fetch(Call::get(self::worker(worker))).await
    }

    pub async fn drain_worker(&self, worker: &str) -> Result<WorkerDetail, ClientError> {
        self.fetch(Call::post(self::worker(worker).part("drain"), Repeat::Safe)).await
    }

    pub async fn resume_worker(&self, worker: &str) -> Result<WorkerDetail, ClientError> {
        self.fetch(Call::post(self::worker(worker).part("resume"), Repeat::Safe)).await
    }
}

fn node(name: &str) -> Target {
    Target::new("/v1/nodes").part(name)
}

fn worker(worker: &str) -> Target {
    Target::new("/v1/workers").part(worker)
}
