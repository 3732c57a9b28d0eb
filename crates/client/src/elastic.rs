//! What a resource manager says to its manager: `elastic::protocol`, one method for each request. Everything may be asked
//! twice, so everything is repeated when the manager was away.

use mutirao_core::{QueueName, WorkerId};
use mutirao_elastic::protocol::{Balance, Create, Created, Fenced, Invitation, LeaseAnswer, LeaseCall, Offer, Record};

use crate::error::ClientError;
use crate::http::{Call, Client, Repeat};
use crate::target::Target;

fn elastic() -> Target {
    Target::new("/v1/elastic")
}

fn post(target: Target) -> Call {
    Call::post(target, Repeat::Safe)
}

impl Client {
    pub async fn elastic_lease(&self, call: &LeaseCall) -> Result<LeaseAnswer, ClientError> {
        self.fetch(post(elastic().part("lease")).json(call)?).await
    }

    pub async fn elastic_balance(&self) -> Result<Balance, ClientError> {
        self.fetch(Call::get(elastic().part("balance"))).await
    }

    pub async fn elastic_create(&self, queue: &QueueName, create: &Create) -> Result<Created, ClientError> {
        self.fetch(post(elastic().part("queues").part(queue).part("workers")).json(create)?).await
    }

    pub async fn elastic_invitation(&self, worker: &WorkerId, fenced: &Fenced) -> Result<Invitation, ClientError> {
        self.fetch(post(elastic().part("workers").part(worker).part("invitation")).json(fenced)?).await
    }

    pub async fn elastic_drain(&self, worker: &WorkerId, fenced: &Fenced) -> Result<(), ClientError> {
        self.fetch_bytes(post(elastic().part("workers").part(worker).part("drain")).json(fenced)?).await.map(drop)
    }

    pub async fn elastic_record(&self, queue: &QueueName, record: &Record) -> Result<(), ClientError> {
        self.fetch_bytes(Call::put_json(elastic().part("queues").part(queue), record)?).await.map(drop)
    }

    pub async fn elastic_offer(&self, offer: &Offer) -> Result<(), ClientError> {
        self.fetch_bytes(Call::put_json(elastic().part("offer"), offer)?).await.map(drop)
    }
}
