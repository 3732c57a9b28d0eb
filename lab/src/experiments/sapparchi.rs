//! The experiments of flows on nodes. Nodes are this program's, over MQTT ([`devices`]), or processes of the product's own
//! ([`runners`]); the manager is the product's own binary, in a process of its own.
//!
//! - [`one`]: the round trip of one action by each protocol, beside the raw one ([`raw`]) over the same.
//! - [`two`]: a manager killed with nodes registered and runs under way; what was done is the nodes' own account ([`effects`]).
//! - [`three`]: one node of eleven slowed to two seconds, by turns and by what was learned.
//! - [`four`]: forty light steps one after the other, the published benchmark of workflow engines.
//! - [`five`]: a thousand nodes on one machine.

pub mod devices;
pub mod effects;
pub mod five;
pub mod four;
pub mod one;
pub mod raw;
pub mod runners;
pub mod tasks;
pub mod three;
pub mod two;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mutirao_client::{Client, Credentials};
use mutirao_core::{Dice, Mono, SystemClock, clock::Clock};
use mutirao_testkit::installation::Setup;
use mutirao_testkit::{Installation, ports};
use serde_json::{Value, json};

use crate::services::{Backend, Backing};

/// An installation whose manager listens for MQTT, and a client of its.
pub struct Bench {
    pub up: Installation,
    pub mqtt: String,
    pub client: Client,
    backing: Backing,
}

impl Bench {
    pub fn start(backend: Backend) -> anyhow::Result<Self> {
        Self::start_with(backend, |setup| setup)
    }

    pub fn start_with(backend: Backend, fit: impl FnOnce(Setup) -> Setup) -> anyhow::Result<Self> {
        let backing = backend.start()?;
        let [port] = ports::free::<1>(&Dice::from_os())?;
        let mqtt = format!("127.0.0.1:{port}");
        let setup = Installation::setup()
            .workers(0)
            .arg("--mqtt-listen")
            .arg(&mqtt)
            .set("mqtt.allow_anonymous", "on")
            .env("MUTIRAO_LOG", "warn")
            .env("MUTIRAO_API_RATE", "1000000");
        let up = fit(backing.fit(setup)).start();
        let client = Client::new(&up.url(), Credentials::Token(up.token()))?;
        Ok(Self { up, mqtt, client, backing })
    }

    /// Where RabbitMQ is, if there is one.
    pub fn rabbit_url(&self) -> Option<String> {
        self.backing.servers().map(|servers| servers.rabbitmq.url().to_owned())
    }

    pub async fn declare(&self, flow: Value) -> anyhow::Result<()> {
        let _: Vec<Value> = self.client.declare_flows(&[flow]).await?;
        Ok(())
    }

    /// Declares a flow whose actions nodes may not have said yet that they have.
    pub async fn declare_when_known(&self, flow: Value) -> anyhow::Result<()> {
        let mut last = None;
        for _ in 0..200 {
            match self.declare(flow.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
            SystemClock.sleep(Duration::from_millis(100)).await;
        }
        Err(last.context("the flow was never taken")?)
    }

    pub async fn begin(&self, flow: &str, input: Value) -> anyhow::Result<u64> {
        let begun: Value = self.client.run_flow(flow, &json!({ "input": input }), None).await?;
        begun["run"].as_u64().context("a run without a number")
    }

    /// The run once it has ended.
    pub async fn ended(&self, run: u64) -> anyhow::Result<Value> {
        loop {
            let view: Value = self.client.run(run, Some("30s")).await?;
            if view["state"] != "running" {
                return Ok(view);
            }
        }
    }
}

pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn now() -> Mono {
    SystemClock.monotonic()
}

fn shared_dice() -> Arc<Dice> {
    Arc::new(Dice::from_os())
}

/// The value below which such a share of them lies.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}
