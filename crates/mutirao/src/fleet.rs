//! The fleet among the others: what it asks of jobs and of the API, what jobs ask of it, put together here so that none
//! of them knows another.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_api::{Auth, Ways};
use mutirao_core::auth::Duty;
use mutirao_core::job::WorkerView;
use mutirao_core::{Problem, QueueName, ShardId, WorkerId};
use mutirao_elastic::Elastic;
use mutirao_elastic::packing::Need;
use mutirao_elastic::protocol::Invitation;
use mutirao_fleet::{Fleets, Floor, Identities};
use mutirao_jobs::{Elasticity, Jobs, Roll};
use mutirao_queues::{QueueSight, QueueSpec, Reason};

/// Jobs, as the fleet asks them.
pub struct JobsFloor(pub Jobs);

#[async_trait]
impl Floor for JobsFloor {
    async fn queues(&self) -> Result<Vec<QueueSpec>, Problem> {
        self.0.queue_specs().await
    }

    async fn look(&self, queues: &[QueueName]) -> Vec<QueueSight> {
        self.0.sights(queues).await
    }

    async fn workers(&self) -> (Vec<WorkerView>, Vec<ShardId>) {
        self.0.workers().await
    }

    async fn drain(&self, all: &[(WorkerId, QueueName)], news: Option<&QueueName>) {
        self.0.rest(all, news).await;
    }
}

/// Who lets workers in, as jobs ask it.
pub struct Enrolments(pub Arc<Auth>);

#[async_trait]
impl Roll for Enrolments {
    async fn serves(&self, worker: &WorkerId, queue: &QueueName) -> Result<bool, String> {
        let worker = self.0.enrolled(worker).await.map_err(|problem| problem.line())?;
        Ok(worker.is_none_or(|worker| matches!(&worker.duty, Duty::Tasks(own) if own == queue)))
    }
}

/// Who lets workers in, as the fleet asks it.
pub struct Gatekeeper {
    pub auth: Arc<Auth>,
    pub ways: Arc<dyn Ways>,
}

#[async_trait]
impl Identities for Gatekeeper {
    fn mint(&self) -> WorkerId {
        self.auth.mint_worker()
    }

    fn is_minted(&self, worker: &WorkerId) -> bool {
        mutirao_api::auth::secret::is_given_out(&worker.0)
    }

    async fn invite(&self, worker: &WorkerId, queue: &QueueName, by: &str) -> Result<Invitation, Problem> {
        let enrolment = self.auth.invite_worker(worker, queue, by).await?;
        Ok(Invitation { token: enrolment.token, expires_at: enrolment.expires_at })
    }

    async fn revoke(&self, worker: &WorkerId, by: &str) -> Result<(), Problem> {
        match self.auth.revoke_worker(worker, by).await {
            // It never came; the invitation is worthless now.
            Err(problem) if problem.status == 404 => return Ok(()),
            revoked => revoked?,
        }
        let open = |why| Problem::unavailable(format!("the worker's way to the broker is open: {why}"));
        self.ways.close(worker).await.map_err(open)
    }

    async fn queue_of(&self, worker: &WorkerId) -> Result<Option<QueueName>, Problem> {
        Ok(self.auth.enrolled(worker).await?.and_then(|worker| match worker.duty {
            Duty::Tasks(queue) => Some(queue),
            Duty::Checks(_) => None,
        }))
    }
}

/// The fleet, as jobs ask it. A store that does not answer keeps nobody from being told the rest.
pub struct Advice(pub Fleets);

#[async_trait]
impl Elasticity for Advice {
    async fn impossible(&self, need: &Need) -> Option<String> {
        self.0.impossible(need).await.ok().flatten()
    }

    async fn standing(&self, queue: &QueueName, elastic: &Elastic) -> Vec<Reason> {
        self.0.standing(queue, elastic).await.unwrap_or_default()
    }
}
