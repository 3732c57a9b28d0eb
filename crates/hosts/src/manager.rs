//! The manager, as a host sees it: one that it beats to, and that hands over what only a manager may keep. Over HTTP for a
//! host of its own; a call for the one inside a manager. Snapshots go through `mutirao_core::blobs::Blobs`, beside it.

use async_trait::async_trait;
use mutirao_client::{Client, ClientError};
use mutirao_streams::wire::{Beat, Delivered, Delivery, Orders};

/// Why it did not answer, or what it answered in place of what was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ManagerError {
    /// May work later.
    #[error("the manager cannot be reached: {0}")]
    Away(String),
    /// Will not work however often it is tried.
    #[error("the manager refuses: {0}")]
    Refused(String),
    /// Another process speaks for this host, and began after this one.
    #[error("{0}")]
    Followed(String),
}

#[async_trait]
pub trait Manager: Send + Sync + 'static {
    async fn beat(&self, beat: Beat) -> Result<Orders, ManagerError>;

    /// What came of it is durable when answered, and what is handed over twice counts once.
    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, ManagerError>;
}

/// What a beat is answered with whose host has been followed by another process.
const FOLLOWED: u16 = 409;

/// A manager over HTTP.
pub struct Remote(pub Client);

#[async_trait]
impl Manager for Remote {
    async fn beat(&self, beat: Beat) -> Result<Orders, ManagerError> {
        self.0.beat_host(&beat).await.map_err(|error| match error.status() {
            Some(FOLLOWED) => ManagerError::Followed(error.to_string()),
            _ => told(error),
        })
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, ManagerError> {
        self.0.deliver_rows(&delivery).await.map_err(told)
    }
}

fn told(error: ClientError) -> ManagerError {
    match error.status() {
        Some(status) if (400..500).contains(&status) && !error.is_busy() => ManagerError::Refused(error.to_string()),
        _ => ManagerError::Away(error.to_string()),
    }
}
