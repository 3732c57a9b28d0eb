//! Streams. What is answered is the caller's to name: those types live with the capability, which this crate does not know.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use mutirao_core::declared::Wrong;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::http::{Call, Client, Repeat};
use crate::target::Target;

/// What comes out of a stream, as it comes.
pub type EventStream<T> = Pin<Box<dyn Stream<Item = Result<T, ClientError>> + Send>>;

/// What is done with a stream of the same name that says something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Refuse,
    Replace,
}

impl Over {
    fn replace(self) -> Option<bool> {
        (self == Over::Replace).then_some(true)
    }
}

impl Client {
    /// A definition in YAML or JSON. The same again changes nothing, so it may be repeated.
    pub async fn deploy_stream<T: DeserializeOwned>(&self, definition: &str, over: Over) -> Result<T, ClientError> {
        let target = Target::new("/v1/streams").arg("replace", over.replace());
        let call = Call::post(target, Repeat::Safe).body(Bytes::copy_from_slice(definition.as_bytes()));
        self.fetch(call.header("content-type", "application/yaml")).await
    }

    /// What would be refused of these, and why; nothing is written.
    pub async fn check_streams(&self, all: &[&str], over: Over) -> Result<Vec<Wrong>, ClientError> {
        let target = Target::new("/v1/check/streams").arg("replace", over.replace());
        self.fetch(Call::post(target, Repeat::Safe).json(&all)?).await
    }

    /// A page of them, by name, after this one.
    pub async fn streams<T: DeserializeOwned>(&self, after: Option<&str>) -> Result<Vec<T>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/streams").arg("after", after))).await
    }

    pub async fn stream<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::get(stream(name))).await
    }

    pub async fn explain_stream<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::get(stream(name).part("explain"))).await
    }

    pub async fn pause_stream(&self, name: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::post(stream(name).part("pause"), Repeat::Safe)).await.map(drop)
    }

    pub async fn resume_stream(&self, name: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::post(stream(name).part("resume"), Repeat::Safe)).await.map(drop)
    }

    /// It is asked for once: who asks again is told that it is on its way.
    pub async fn migrate_stream<T: DeserializeOwned>(
        &self,
        name: &str,
        ask: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.fetch(Call::post(stream(name).part("migrate"), Repeat::Never).json(ask)?).await
    }

    pub async fn delete_stream(&self, name: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(stream(name))).await.map(drop)
    }

    /// Events as JSON: one, an array, or one a line. With a key, the same manager takes them once.
    pub async fn push<T: DeserializeOwned>(
        &self,
        name: &str,
        source: &str,
        events: Bytes,
        key: &str,
    ) -> Result<T, ClientError> {
        let call = Call::post(stream(name).part("sources").part(source), Repeat::Safe).body(events);
        self.fetch(call.header("content-type", "application/json").header("idempotency-key", key)).await
    }

    pub async fn stream_hosts<T: DeserializeOwned>(&self) -> Result<Vec<T>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/stream-hosts"))).await
    }

    /// What comes out at a port, from now on or from an offset of its log.
    pub async fn tap<T: DeserializeOwned + Send + 'static>(
        &self,
        name: &str,
        port: &str,
        from: Option<u64>,
    ) -> Result<EventStream<T>, ClientError> {
        let events = self.events(Call::get(stream(name).part("tap").part(port).arg("from", from))).await?;
        let this = self.clone();
        let tapped = events.filter_map(move |event| {
            let tapped = match event {
                Ok(event) if event.name == "events" => Some(this.read_event(&event)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            };
            std::future::ready(tapped)
        });
        Ok(Box::pin(tapped))
    }
}

fn stream(name: &str) -> Target {
    Target::new("/v1/streams").part(name)
}
