//! Streams among the others: what they ask of the API, of keys and of flows, put together here so that none of them knows
//! another; and the host inside this process.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_api::Auth;
use mutirao_broker::{Limits, Rabbit};
use mutirao_conductor::Streams;
use mutirao_conductor::outside::{Receivers, Roll, Taken};
use mutirao_core::auth::Principal;
use mutirao_core::blobs::Blobs;
use mutirao_core::{Clock, Dice, Problem, WorkerId};
use mutirao_flows::Flows;
use mutirao_flows::start::RunRequest;
use mutirao_hosts::{Ends, Files, Host, HostParts, ManagerError};
use mutirao_kv::Kv;
use mutirao_kv::Until;
use mutirao_kv::write::{Change, Condition, Key, Value};
use mutirao_movers::settings::{Strategy, Terms};
use mutirao_nodes::embedded::Embedded;
use mutirao_streams::wire::{Beat, Delivered, Delivery, HostView, Orders, Standing};
use serde_json::Value as Json;

use crate::config::{OwnHost, Settings, StreamFiles, StreamMover};
use crate::failure::Failure;
use crate::{broker, checks, machine, tls};

/// Where streams read and write files, in the data folder, unless they may do so anywhere.
const FILES: &str = "files";
/// No more threads for the parts inside a manager than this, however many cores there are.
const THREADS_MAX: u32 = 16;

/// What a log keeps at most, by the broker that there is.
pub fn log_bytes(settings: &Settings) -> u64 {
    match settings.broker.set() {
        Some(_) => Limits::default().log_bytes_max,
        None => broker::limits(settings).log_bytes_max,
    }
}

/// By what replicas of stages move.
pub fn mover(settings: &Settings, dice: &Dice) -> mutirao_movers::Settings {
    let strategy = match settings.streams_mover {
        StreamMover::None => Strategy::None,
        StreamMover::Random => Strategy::Random { seed: dice.u64() },
        StreamMover::Adaptive => Strategy::adaptive(settings.streams_mover_sensitivity.0),
        StreamMover::Mutirao => {
            let goal_ms = settings.streams_latency.0.as_secs_f64() * 1_000.0;
            Strategy::Mutirao(Terms { goal_ms, ..Terms::default() })
        }
    };
    mutirao_movers::Settings::of(strategy)
}

/// Who was let in as a host.
pub struct Enrolled(pub Arc<Auth>);

#[async_trait]
impl Roll for Enrolled {
    async fn is_host(&self, id: &str) -> Result<bool, Problem> {
        let worker = self.0.enrolled(&WorkerId(id.into())).await?;
        Ok(worker.is_some_and(|worker| worker.duty.is_streams() && worker.revoked_at.is_none()))
    }
}

/// Keys and flows, for rows of sinks.
pub struct Doors {
    pub kv: Kv,
    pub flows: Flows,
}

#[async_trait]
impl Receivers for Doors {
    async fn keep(&self, owner: &Principal, entries: Vec<(String, Json)>) -> Vec<Taken> {
        let parsed: Vec<Result<(Key, Change, Condition), Problem>> = entries.into_iter().map(put).collect();
        let good = parsed.iter().filter_map(|one| one.as_ref().ok().cloned()).collect();
        let mut answers = self.kv.batch(owner, good, Until::Applied).await.into_iter();
        let answer = |one: Result<_, Problem>| match one {
            Ok(_) => answers.next().unwrap_or_else(|| Err(Problem::internal())).map(drop),
            Err(problem) => Err(problem),
        };
        parsed.into_iter().map(answer).collect()
    }

    async fn start(&self, owner: &Principal, flow: &str, key: String, input: Json) -> Taken {
        let request = RunRequest { flow: flow.into(), input, idempotency_key: Some(key) };
        match self.flows.run(owner, request).await {
            Ok(_) => Ok(()),
            // It may be declared in a moment, and what is to be started is worth waiting for.
            Err(problem) if problem.status == 404 => Err(Problem::unavailable(problem.line())),
            Err(problem) => Err(problem),
        }
    }
}

fn put((key, value): (String, Json)) -> Result<(Key, Change, Condition), Problem> {
    let value = Value::new(value.to_string().into(), Some("application/json"))?;
    Ok((key.parse()?, Change::Put { value, lasts: None }, Condition::None))
}

/// The manager for the host inside it: a call, and no request.
struct Inside(Streams);

#[async_trait]
impl mutirao_hosts::Manager for Inside {
    async fn beat(&self, beat: Beat) -> Result<Orders, ManagerError> {
        self.0.beat(beat).await.map_err(told)
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, ManagerError> {
        self.0.deliver(delivery).await.map_err(told)
    }
}

fn told(problem: Problem) -> ManagerError {
    match problem.status {
        400..500 if problem.status != 429 => ManagerError::Refused(problem.line()),
        _ => ManagerError::Away(problem.line()),
    }
}

/// What the host inside works with.
pub struct Around<'a> {
    pub streams: &'a Streams,
    pub member: &'a str,
    pub broker: &'a mutirao_broker::Shared,
    pub blobs: &'a Arc<dyn Blobs>,
    pub mqtt: Option<&'a Embedded>,
    pub rabbit: Option<&'a Arc<Rabbit>>,
    pub clock: &'a Arc<dyn Clock>,
    pub dice: &'a Arc<Dice>,
}

/// The host of this process, if it is to have one. It stands where the nodes of this machine stand.
pub fn host(settings: &Settings, around: &Around<'_>) -> Result<Option<Host>, Failure> {
    if settings.streams_host == OwnHost::None {
        return Ok(None);
    }
    let layer = format!("{:?}", settings.elastic_layer.0).to_lowercase();
    let view = HostView {
        id: around.member.to_owned(),
        name: machine::host_name(),
        standing: Standing::Inside,
        layer,
        labels: settings.elastic_labels.0.clone(),
        cores: machine::cpus(),
        memory_bytes: machine::memory(),
    };
    let ends = Ends {
        mqtt: around.mqtt.map(|mqtt| mqtt.port().clone()),
        amqp: around.rabbit.cloned(),
        web: Some(checks::calls(settings, around.clock)?),
        trust: tls::trust(settings, "https://elsewhere", None)?,
        files: files(settings)?,
    };
    let host = Host::start(HostParts {
        view,
        broker: around.broker.clone(),
        blobs: around.blobs.clone(),
        manager: Arc::new(Inside(around.streams.clone())),
        ends,
        threads: machine::cpus().clamp(1, THREADS_MAX) as usize,
        clock: around.clock.clone(),
        dice: around.dice.clone(),
    });
    host.map(Some).map_err(|error| Failure::failed(format!("streams have no threads to run on: {error}")))
}

/// Which files streams may read and write here.
pub fn files(settings: &Settings) -> Result<Files, Failure> {
    let data = std::path::absolute(&settings.data.0)?;
    Ok(match settings.streams_files {
        StreamFiles::Folder => Files::Within(data.join(FILES)),
        StreamFiles::Anywhere => Files::Anywhere(data.join(FILES)),
    })
}
