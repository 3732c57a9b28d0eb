//! Queues: their definitions, and why their tasks do not run.

use mutirao_core::declared::Wrong;
use mutirao_core::{QueueName, TaskKey};
use mutirao_queues::{Explanation, QueueSpec, QueueView};
use serde::Deserialize;

use crate::error::ClientError;
use crate::http::{Call, Client, Repeat};
use crate::jobs::task;
use crate::target::Target;

/// What becomes of the unfinished jobs of a queue that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// There must not be any.
    Refuse,
    Cancel,
}

#[derive(Deserialize)]
struct Cancelled {
    cancelled: u64,
}

impl Client {
    pub async fn create_queue(&self, spec: &QueueSpec) -> Result<QueueView, ClientError> {
        self.fetch(Call::post(Target::new("/v1/queues"), Repeat::Never).json(spec)?).await
    }

    pub async fn queues(&self) -> Result<Vec<QueueView>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/queues"))).await
    }

    pub async fn queue(&self, name: &QueueName) -> Result<QueueView, ClientError> {
        self.fetch(Call::get(queue(name))).await
    }

    /// Makes a queue what the definition says. With a revision, only if nobody has changed it since.
    pub async fn put_queue(&self, spec: &QueueSpec, revision: Option<u64>) -> Result<QueueView, ClientError> {
        self.fetch(Call::put_json(queue(&spec.name).arg("revision", revision), spec)?).await
    }

    /// What would be refused of these, and why; nothing is written.
    pub async fn check_queues(&self, all: &[&QueueSpec]) -> Result<Vec<Wrong>, ClientError> {
        self.fetch(Call::post(Target::new("/v1/check/queues"), Repeat::Safe).json(&all)?).await
    }

    pub async fn pause_queue(&self, name: &QueueName) -> Result<QueueView, ClientError> {
        self.fetch(Call::post(queue(name).part("pause"), Repeat::Safe)).await
    }

    pub async fn resume_queue(&self, name: &QueueName) -> Result<QueueView, ClientError> {
        self.fetch(Call::post(queue(name).part("resume"), Repeat::Safe)).await
    }

    /// Says how many jobs were cancelled with it.
    pub async fn delete_queue(&self, name: &QueueName, unfinished: Unfinished) -> Result<u64, ClientError> {
        let cancel = (unfinished == Unfinished::Cancel).then_some(true);
        let gone: Cancelled = self.fetch(Call::delete(queue(name).arg("cancel", cancel))).await?;
        Ok(gone.cancelled)
    }

    pub async fn explain_queue(&self, name: &QueueName) -> Result<Explanation, ClientError> {
        self.fetch(Call::get(queue(name).part("explain"))).await
    }

    pub async fn explain_task(&self, key: TaskKey) -> Result<Explanation, ClientError> {
        self.fetch(Call::get(task(key).part("explain"))).await
    }
}

fn queue(name: &QueueName) -> Target {
    Target::new("/v1/queues").part(name)
}
