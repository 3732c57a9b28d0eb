//! Monitors: their definitions, how they stand, what is remembered. What is sent and answered is the caller's to name: those
//! types live with the capability, which this crate does not know.

use std::collections::BTreeSet;

use mutirao_core::declared::Wrong;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::http::{Call, Client, Repeat};
use crate::target::Target;

impl Client {
    pub async fn create_monitor<T: DeserializeOwned>(&self, spec: &impl Serialize) -> Result<T, ClientError> {
        self.fetch(Call::post(Target::new("/v1/monitors"), Repeat::Never).json(spec)?).await
    }

    /// A page of them, by name, after this one.
    pub async fn monitors<T: DeserializeOwned>(&self, after: Option<&str>) -> Result<Vec<T>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/monitors").arg("after", after))).await
    }

    pub async fn monitor<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::get(monitor(name))).await
    }

    /// Makes all of them what they are declared to be, or none.
    pub async fn declare_monitors<T: DeserializeOwned>(&self, all: &impl Serialize) -> Result<Vec<T>, ClientError> {
        self.fetch(Call::put_json(Target::new("/v1/monitors"), all)?).await
    }

    /// What would be refused of these, and why; nothing is written. These channels count as there.
    pub async fn check_monitors(
        &self,
        all: &[impl Serialize],
        channels: &BTreeSet<String>,
    ) -> Result<Vec<Wrong>, ClientError> {
        #[derive(Serialize)]
        struct Draft<'a, T> {
            monitors: &'a [T],
            channels: &'a BTreeSet<String>,
        }
        let draft = Draft { monitors: all, channels };
        self.fetch(Call::post(Target::new("/v1/check/monitors"), Repeat::Safe).json(&draft)?).await
    }

    /// What would be refused of these, and why; nothing is written.
    pub async fn check_channels(&self, all: &[impl Serialize]) -> Result<Vec<Wrong>, ClientError> {
        self.fetch(Call::post(Target::new("/v1/check/channels"), Repeat::Safe).json(&all)?).await
    }

    /// Makes a monitor what the definition says. With a revision, only if nobody has changed it since.
    pub async fn put_monitor<T: DeserializeOwned>(
        &self,
        name: &str,
        spec: &impl Serialize,
        revision: Option<u64>,
    ) -> Result<T, ClientError> {
        self.fetch(Call::put_json(monitor(name).arg("revision", revision), spec)?).await
    }

    pub async fn pause_monitor<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::post(monitor(name).part("pause"), Repeat::Safe)).await
    }

    pub async fn resume_monitor<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::post(monitor(name).part("resume"), Repeat::Safe)).await
    }

    pub async fn remove_monitor(&self, name: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(monitor(name))).await.map(drop)
    }

    /// Gives one that calls another token.
    pub async fn renew_monitor_token<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::post(monitor(name).part("token"), Repeat::Never)).await
    }

    /// Makes one check now.
    pub async fn run_monitor<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::post(monitor(name).part("run"), Repeat::Safe)).await
    }

    /// `by`: minute, hour or day, for sums instead of outcomes.
    pub async fn monitor_history<T: DeserializeOwned>(
        &self,
        name: &str,
        limit: u32,
        by: Option<&str>,
    ) -> Result<T, ClientError> {
        self.fetch(Call::get(monitor(name).part("history").arg("limit", Some(limit)).arg("by", by))).await
    }

    /// Alerts of a monitor, the latest first.
    pub async fn monitor_alerts<T: DeserializeOwned>(&self, name: &str, limit: u32) -> Result<T, ClientError> {
        self.fetch(Call::get(monitor(name).part("alerts").arg("limit", Some(limit)))).await
    }

    pub async fn acknowledge_monitor<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::post(monitor(name).part("ack"), Repeat::Safe)).await
    }

    pub async fn silence_monitor<T: DeserializeOwned>(
        &self,
        name: &str,
        silence: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.fetch(Call::put_json(monitor(name).part("silence"), silence)?).await
    }

    pub async fn unsilence_monitor(&self, name: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(monitor(name).part("silence"))).await.map(drop)
    }

    /// By name.
    pub async fn channels<T: DeserializeOwned>(&self) -> Result<Vec<T>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/channels"))).await
    }

    pub async fn channel<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.fetch(Call::get(channel(name))).await
    }

    /// Makes a channel what the definition says.
    pub async fn put_channel<T: DeserializeOwned>(&self, name: &str, spec: &impl Serialize) -> Result<T, ClientError> {
        self.fetch(Call::put_json(channel(name), spec)?).await
    }

    /// `anyway`: also when monitors tell it.
    pub async fn remove_channel(&self, name: &str, anyway: bool) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(channel(name).arg("force", anyway.then_some(true)))).await.map(drop)
    }

    /// Sends something harmless through it.
    pub async fn test_channel(&self, name: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::post(channel(name).part("test"), Repeat::Never)).await.map(drop)
    }
}

fn channel(name: &str) -> Target {
    Target::new("/v1/channels").part(name)
}

fn monitor(name: &str) -> Target {
    Target::new("/v1/monitors").part(name)
}
