//! What nodes, managers and clients say to each other, in the JSON that workers out there were written for. What is read
//! is read with patience: fields nobody knows are passed over, a number may be written as a text. What is written is exact.
//! Where it travels is in [`places`].
//!
//! Everything read has a bound, and what cannot be read says why in a line ([`Rubbish`]), for dead letters. A field that
//! comes twice is refused: which of the two was meant is not to be guessed at, least of all who speaks.

mod patient;
pub mod places;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use mutirao_core::tolerant;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::names::NodeId;
use crate::{Layer, Namespace};

/// Bytes of anything read.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Actions that a node may have, and steps of a [`TaskRequest`].
pub const ACTIONS_MAX: usize = 256;
/// Characters of a request's id, an endpoint or a URN.
pub const TEXT_CHARS_MAX: usize = 300;
pub const LABELS_MAX: usize = 32;
/// The buffer of a microcontroller's client, for a whole packet.
pub const DEVICE_BYTES_MAX: usize = 2_048;
/// What workers poll to see a manager come and go.
pub const HEALTH_PATH: &str = "/actuator/health";
pub const HEALTH_UP: &str = r#"{"status":"UP"}"#;

/// Why something that was received cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rubbish {
    #[error("{what} of {bytes} bytes is longer than {MESSAGE_BYTES_MAX}")]
    Long { what: &'static str, bytes: usize },
    #[error("{what} cannot be read: {why}")]
    Unreadable { what: &'static str, why: String },
    #[error("\"{0}\" is not a layer: write EDGE, FOG or CLOUD")]
    Layer(String),
}

/// A node says that it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "patient::Written")]
pub struct Register {
    /// Where it answers HTTP; empty if it does not.
    pub endpoint: String,
    pub layer: Layer,
    pub kind: String,
    pub node: NodeId,
    pub force_register: bool,
    pub actions: Vec<String>,
    /// What it declares of some of them: then they are written as [`ActionInfo`], others by their names alone.
    pub parameters: BTreeMap<String, Parameters>,
    /// What flows may ask for. Workers of the document's time say nothing of it, nor of how much they take at once.
    pub labels: BTreeMap<String, String>,
    pub slots: Option<u32>,
}

/// A manager says that it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    #[serde(default = "patient::yes", deserialize_with = "patient::truth")]
    pub available: bool,
    #[serde(rename = "forceRegister", default, deserialize_with = "patient::truth")]
    pub force_register: bool,
    #[serde(default, deserialize_with = "patient::number")]
    pub ts: i64,
    #[serde(default = "patient::one")]
    pub schema: u32,
}

impl Heartbeat {
    pub const SCHEMA: u32 = 1;
}

/// A registration was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    pub token: String,
    #[serde(rename = "nodeId")]
    pub node: NodeId,
    /// Those of its actions that will be asked for.
    #[serde(default)]
    pub actions: Vec<String>,
}

/// One action to be run, and in the same shape what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    #[serde(rename = "actionTo")]
    pub action: String,
    #[serde(rename = "requestID", alias = "requestId", deserialize_with = "patient::text")]
    pub request: String,
    /// JSON as a text.
    #[serde(rename = "messageData", default = "patient::nothing", deserialize_with = "patient::json_text")]
    pub data: String,
}

/// Several actions to be run one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRequest {
    #[serde(deserialize_with = "patient::text")]
    pub id: String,
    pub task_id: String,
    pub target_actions: Vec<String>,
    /// JSON as a text.
    #[serde(default = "patient::nothing", deserialize_with = "patient::json_text")]
    pub message_data: String,
    #[serde(default, deserialize_with = "patient::maybe_number", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<i64>,
    #[serde(default, deserialize_with = "patient::maybe_number", skip_serializing_if = "Option::is_none")]
    pub processing_time: Option<i64>,
}

/// What is known of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionInfo {
    pub keyname: String,
    #[serde(default = "ActionInfo::active", deserialize_with = "patient::text")]
    pub life_state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Parameters>,
}

impl ActionInfo {
    fn active() -> String {
        "ACTIVE".into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// Milliseconds.
    #[serde(default = "Parameters::timeout_ms", deserialize_with = "patient::count")]
    pub timeout: u64,
    #[serde(default = "Parameters::retries", deserialize_with = "patient::count")]
    pub retry: u32,
}

impl Parameters {
    fn timeout_ms() -> u64 {
        30_000
    }

    fn retries() -> u32 {
        3
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self { timeout: Self::timeout_ms(), retry: Self::retries() }
    }
}

/// What can be received.
pub trait Word: Sized {
    const WHAT: &'static str;
    fn read(bytes: &[u8]) -> Result<Self, Rubbish>;
}

fn parse<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Rubbish> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(Rubbish::Long { what, bytes: bytes.len() });
    }
    // Small C programs count the NUL that ends their strings.
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    tolerant::read(bytes).map_err(|error| unreadable(what, &error.to_string()))
}

fn unreadable(what: &'static str, why: &str) -> Rubbish {
    Rubbish::Unreadable { what, why: why.chars().take(TEXT_CHARS_MAX).collect() }
}

fn bounded<'a>(what: &'static str, texts: impl IntoIterator<Item = &'a str>) -> Result<(), Rubbish> {
    match texts.into_iter().find(|text| text.chars().count() > TEXT_CHARS_MAX) {
        None => Ok(()),
        Some(_) => Err(unreadable(what, &format!("a text in it has more than {TEXT_CHARS_MAX} characters"))),
    }
}

fn few(what: &'static str, actions: &[String]) -> Result<(), Rubbish> {
    match actions.len() > ACTIONS_MAX {
        false => bounded(what, actions.iter().map(String::as_str)),
        true => Err(unreadable(what, &format!("it names {} actions, the most is {ACTIONS_MAX}", actions.len()))),
    }
}

impl Word for Register {
    const WHAT: &'static str = "a registration";

    fn read(bytes: &[u8]) -> Result<Self, Rubbish> {
        let raw: patient::Register = parse(Self::WHAT, bytes)?;
        let (actions, parameters) = patient::apart(raw.actions);
        few(Self::WHAT, &actions)?;
        bounded(Self::WHAT, [raw.endpoint.as_str(), raw.kind.as_str()])?;
        let layer = patient::layer(&raw.layer).ok_or_else(|| Rubbish::Layer(raw.layer.chars().take(40).collect()))?;
        if raw.labels.len() > LABELS_MAX {
            return Err(unreadable(Self::WHAT, &format!("it has more than {LABELS_MAX} labels")));
        }
        bounded(Self::WHAT, raw.labels.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]))?;
        let patient::Register { endpoint, kind, node, force_register, labels, slots, .. } = raw;
        Ok(Self { endpoint, layer, kind, node, force_register, actions, parameters, labels, slots })
    }
}

impl Word for Heartbeat {
    const WHAT: &'static str = "a heartbeat";

    fn read(bytes: &[u8]) -> Result<Self, Rubbish> {
        parse(Self::WHAT, bytes)
    }
}

impl Word for Ack {
    const WHAT: &'static str = "an acknowledgement";

    fn read(bytes: &[u8]) -> Result<Self, Rubbish> {
        parse(Self::WHAT, bytes).and_then(|ack: Self| few(Self::WHAT, &ack.actions).map(|()| ack))
    }
}

impl Word for Message {
    const WHAT: &'static str = "a message";

    fn read(bytes: &[u8]) -> Result<Self, Rubbish> {
        let message: Self = parse(Self::WHAT, bytes)?;
        bounded(Self::WHAT, [message.action.as_str(), message.request.as_str()]).map(|()| message)
    }
}

impl Word for TaskRequest {
    const WHAT: &'static str = "a task";

    fn read(bytes: &[u8]) -> Result<Self, Rubbish> {
        let task: Self = parse(Self::WHAT, bytes)?;
        few(Self::WHAT, &task.target_actions)?;
        bounded(Self::WHAT, [task.id.as_str(), task.task_id.as_str()])?;
        match task.target_actions.is_empty() {
            false => Ok(task),
            true => Err(unreadable(Self::WHAT, "target_actions is empty: there is nothing to do")),
        }
    }
}

/// As it travels.
pub fn written<T: Serialize>(word: &T) -> String {
    // Texts, numbers and lists of them: nothing that JSON could not hold.
    serde_json::to_string(word).unwrap_or_default()
}

/// Whether a microcontroller's client can hold the packet; one that is longer it drops without a word.
pub fn fits_device(topic: &str, payload: &str) -> bool {
    // Five bytes of header, two for the length of the topic, two for the packet's number.
    9 + topic.len() + payload.len() <= DEVICE_BYTES_MAX
}

/// In place of an answer that fits into no packet: the same, but for what came of it.
pub fn too_long(answer: &str, bytes: usize, most: usize) -> String {
    let why = format!("the answer has {bytes} bytes, the most here is {most}; it can be read at /v1/runs");
    let instead = serde_json::json!({ "error": why, "state": "too_long" }).to_string();
    let mut shorter: serde_json::Map<String, serde_json::Value> = tolerant::read(answer.as_bytes()).unwrap_or_default();
    for (name, value) in &mut shorter {
        if matches!(name.as_str(), "messageData" | "message_data") {
            *value = instead.clone().into();
        }
    }
    serde_json::Value::Object(shorter).to_string()
}

/// The URN of a task, in a namespace.
pub fn task_urn(namespace: &Namespace, name: &str) -> String {
    format!("urn:{namespace}:Task:{name}")
}
