//! What the resource manager asks of the manager: `elastic::protocol`, call by call.
//!
//! A call that failed may have taken effect, or may still: everything here can be asked twice.

mod http;

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{QueueName, WorkerId};
use mutirao_elastic::protocol::{Balance, Create, Created, Invitation, LeaseAnswer, LeaseCall, Offer, Record};

pub use http::HttpManager;

pub type Shared = Arc<dyn Manager>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagerError {
    /// Somebody else acts now.
    #[error("another resource manager has taken over: {0}")]
    NotTheOwner(String),
    /// Asking again later may work.
    #[error("{0}")]
    Away(String),
    /// What was asked cannot be done.
    #[error("{0}")]
    Refused(String),
}

#[async_trait]
pub trait Manager: Send + Sync + 'static {
    async fn lease(&self, call: &LeaseCall) -> Result<LeaseAnswer, ManagerError>;

    async fn balance(&self) -> Result<Balance, ManagerError>;

    async fn create(&self, queue: &QueueName, create: &Create) -> Result<Created, ManagerError>;

    async fn invitation(&self, worker: &WorkerId, generation: u64) -> Result<Invitation, ManagerError>;

    async fn drain(&self, worker: &WorkerId, generation: u64) -> Result<(), ManagerError>;

    async fn record(&self, queue: &QueueName, record: &Record) -> Result<(), ManagerError>;

    async fn offer(&self, offer: &Offer) -> Result<(), ManagerError>;
}
