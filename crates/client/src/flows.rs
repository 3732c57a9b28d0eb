//! Flows and their runs. What is sent and answered is the caller's to name: those types live with the capability, which this
//! crate does not know.

use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use mutirao_core::declared::Wrong;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::http::{Call, Client, Repeat};
use crate::target::Target;

/// A run, each time that more of it is known.
pub type RunStream<T> = Pin<Box<dyn Stream<Item = Result<T, ClientError>> + Send>>;

impl Client {
    /// Makes all of them what they are declared to be, or none.
    pub async fn declare_flows<T: DeserializeOwned>(&self, all: &impl Serialize) -> Result<Vec<T>, ClientError> {
        self.fetch(Call::put_json(Target::new("/v1/flows"), all)?).await
    }

    /// What would be refused of these, and why; nothing is written.
    pub async fn check_flows(&self, all: &[impl Serialize]) -> Result<Vec<Wrong>, ClientError> {
        self.fetch(Call::post(Target::new("/v1/check/flows"), Repeat::Safe).json(&all)?).await
    }

    /// A page of them, by name, after this one.
    pub async fn flows<T: DeserializeOwned>(&self, after: Option<&str>) -> Result<Vec<T>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/flows").arg("after", after))).await
    }

    pub async fn flow<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::get(flow(name))).await
    }

    pub async fn remove_flow(&self, name: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(flow(name))).await.map(drop)
    }

    /// With a key, whoever asks again gets the same run.
    pub async fn run_flow<T: DeserializeOwned>(
        &self,
        name: &str,
        body: &impl Serialize,
        key: Option<&str>,
    ) -> Result<T, ClientError> {
        let repeat = if key.is_some() { Repeat::Safe } else { Repeat::Never };
        let call = Call::post(flow(name).part("runs"), repeat).json(body)?;
        self.fetch(match key {
            Some(key) => call.header("idempotency-key", key),
            None => call,
        })
        .await
    }

    /// Newest first, those before this one; of all flows, or of one.
    pub async fn runs<T: DeserializeOwned>(
        &self,
        of: Option<&str>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<T>, ClientError> {
        let target = of.map_or(Target::new("/v1/runs"), |name| flow(name).part("runs"));
        self.fetch(Call::get(target.arg("before", before).arg("limit", Some(limit)))).await
    }

    /// Waits for its end for a while, if asked to: `10s`.
    pub async fn run<T: DeserializeOwned>(&self, run: u64, wait: Option<&str>) -> Result<T, ClientError> {
        self.fetch(Call::get(Target::new("/v1/runs").part(run).arg("wait", wait))).await
    }

    pub async fn cancel_run<T: DeserializeOwned>(&self, run: u64) -> Result<T, ClientError> {
        self.fetch(Call::post(Target::new("/v1/runs").part(run).part("cancel"), Repeat::Safe)).await
    }

    /// The run whenever a step of it has ended, the last time when it has itself.
    pub async fn run_events<T: DeserializeOwned + Send + 'static>(
        &self,
        run: u64,
    ) -> Result<RunStream<T>, ClientError> {
        let events = self.events(Call::get(Target::new("/v1/runs").part(run).part("events"))).await?;
        let this = self.clone();
        let views = events.filter_map(move |event| {
            let view = match event {
                Ok(event) if event.name == "run" => Some(this.read_event(&event)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            };
            std::future::ready(view)
        });
        Ok(Box::pin(views))
    }

    /// What nodes offer, by name.
    pub async fn actions<T: DeserializeOwned>(&self) -> Result<Vec<T>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/actions"))).await
    }

    pub async fn action<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::get(Target::new("/v1/actions").part(name))).await
    }

    pub async fn explain_run<T: DeserializeOwned>(&self, run: u64) -> Result<T, ClientError> {
        self.fetch(Call::get(Target::new("/v1/runs").part(run).part("explain"))).await
    }
}

fn flow(name: &str) -> Target {
    Target::new("/v1/flows").part(name)
}
