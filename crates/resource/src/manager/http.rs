//! The manager over HTTP. Each call has a limit of its own, far below what the client would wait for: a pass that hangs
//! helps nobody, and the next one asks again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_client::{Client, ClientError};
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, QueueName, WorkerId};
use mutirao_elastic::protocol::{Balance, Create, Created, Fenced, Invitation, LeaseAnswer, LeaseCall, Offer, Record};
use parking_lot::RwLock;

use super::{Manager, ManagerError};

/// The longest one call may take, tries and all.
const CALL_MAX: Duration = Duration::from_secs(15);
/// What the manager calls a lease that was lost.
const NOT_THE_OWNER: &str = "not_the_owner";

pub struct HttpManager {
    client: RwLock<Client>,
    clock: Arc<dyn Clock>,
}

impl HttpManager {
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { client: RwLock::new(client), clock }
    }

    /// From now on requests are signed with another key. What is under way ends with the old one.
    pub fn speak_as(&self, client: Client) {
        *self.client.write() = client;
    }

    fn client(&self) -> Client {
        self.client.read().clone()
    }

    async fn within<T: Send>(
        &self,
        call: impl Future<Output = Result<T, ClientError>> + Send,
    ) -> Result<T, ManagerError> {
        match self.clock.timeout(CALL_MAX, call).await {
            Ok(answer) => answer.map_err(|error| explain(&error)),
            Err(_) => Err(ManagerError::Away(format!("the manager gave no answer within {} s", CALL_MAX.as_secs()))),
        }
    }
}

fn explain(error: &ClientError) -> ManagerError {
    match error {
        ClientError::Problem(problem) if problem.status == 409 && problem.kind.contains(NOT_THE_OWNER) => {
            ManagerError::NotTheOwner(problem.line())
        }
        error if error.is_away() => ManagerError::Away(error.to_string()),
        error => ManagerError::Refused(error.to_string()),
    }
}

#[async_trait]
impl Manager for HttpManager {
    async fn lease(&self, call: &LeaseCall) -> Result<LeaseAnswer, ManagerError> {
        self.within(self.client().elastic_lease(call)).await
    }

    async fn balance(&self) -> Result<Balance, ManagerError> {
        self.within(self.client().elastic_balance()).await
    }

    async fn create(&self, queue: &QueueName, create: &Create) -> Result<Created, ManagerError> {
        self.within(self.client().elastic_create(queue, create)).await
    }

    async fn invitation(&self, worker: &WorkerId, generation: u64) -> Result<Invitation, ManagerError> {
        self.within(self.client().elastic_invitation(worker, &Fenced { generation })).await
    }

    async fn drain(&self, worker: &WorkerId, generation: u64) -> Result<(), ManagerError> {
        self.within(self.client().elastic_drain(worker, &Fenced { generation })).await
    }

    async fn record(&self, queue: &QueueName, record: &Record) -> Result<(), ManagerError> {
        self.within(self.client().elastic_record(queue, record)).await
    }

    async fn offer(&self, offer: &Offer) -> Result<(), ManagerError> {
        self.within(self.client().elastic_offer(offer)).await
    }
}
