//! Reading what small programs write: a truth as `1` or `"true"`, a number as a text, an object where its text was meant. And
//! a registration as it is written, whose actions may be told with what they declare.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{ActionInfo, Parameters};
use crate::Layer;
use crate::names::NodeId;

#[derive(Deserialize)]
pub struct Register {
    #[serde(default, deserialize_with = "text_or_nothing")]
    pub endpoint: String,
    pub layer: String,
    #[serde(rename = "type", default, deserialize_with = "text_or_nothing")]
    pub kind: String,
    #[serde(rename = "nodeId")]
    pub node: NodeId,
    #[serde(rename = "forceRegister", default, deserialize_with = "truth")]
    pub force_register: bool,
    #[serde(default)]
    pub actions: Vec<Told>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub slots: Option<u32>,
}

/// An action by its name, or with what there is to say of it.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Told {
    Name(String),
    Info(ActionInfo),
}

impl<'de> Deserialize<'de> for Told {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Value::deserialize(from)? {
            Value::String(name) => Ok(Self::Name(name)),
            info => serde_json::from_value(info)
                .map(Self::Info)
                .map_err(|error| serde::de::Error::custom(format!("an action: {error}"))),
        }
    }
}

/// Names, and what is declared of some. Whatever is not active is not there.
pub fn apart(told: Vec<Told>) -> (Vec<String>, BTreeMap<String, Parameters>) {
    let (mut actions, mut parameters) = (Vec::new(), BTreeMap::new());
    for one in told {
        match one {
            Told::Name(name) => actions.push(name),
            Told::Info(info) if info.life_state.eq_ignore_ascii_case("active") => {
                parameters.extend(info.parameters.map(|declared| (info.keyname.clone(), declared)));
                actions.push(info.keyname);
            }
            Told::Info(_) => {}
        }
    }
    (actions, parameters)
}

#[derive(Serialize)]
pub struct Written {
    endpoint: String,
    #[serde(serialize_with = "loud_layer")]
    layer: Layer,
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "nodeId")]
    node: NodeId,
    #[serde(rename = "forceRegister")]
    force_register: bool,
    actions: Vec<Told>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
}

impl From<super::Register> for Written {
    fn from(said: super::Register) -> Self {
        let super::Register { endpoint, layer, kind, node, force_register, actions, parameters, labels, slots } = said;
        let told = |name: String| match parameters.get(&name) {
            None => Told::Name(name),
            Some(declared) => {
                Told::Info(ActionInfo { keyname: name, life_state: ActionInfo::active(), parameters: Some(*declared) })
            }
        };
        let actions = actions.into_iter().map(told).collect();
        Self { endpoint, layer, kind, node, force_register, actions, labels, slots }
    }
}

pub fn yes() -> bool {
    true
}

pub fn one() -> u32 {
    1
}

pub fn nothing() -> String {
    "{}".into()
}

pub fn layer(text: &str) -> Option<Layer> {
    match text.trim().to_ascii_uppercase().as_str() {
        "EDGE" => Some(Layer::Edge),
        "FOG" => Some(Layer::Fog),
        "CLOUD" => Some(Layer::Cloud),
        _ => None,
    }
}

pub fn loud_layer<S: Serializer>(layer: &Layer, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match layer {
        Layer::Edge => "EDGE",
        Layer::Fog => "FOG",
        Layer::Cloud => "CLOUD",
    })
}

pub fn truth<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match Value::deserialize(from)? {
        Value::Bool(truth) => Ok(truth),
        Value::Null => Ok(false),
        Value::Number(number) if number.as_i64() == Some(0) => Ok(false),
        Value::Number(number) if number.as_i64() == Some(1) => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        other => Err(serde::de::Error::custom(format!("{} is neither true nor false", short(&other)))),
    }
}

pub fn maybe_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    let value = Value::deserialize(from)?;
    let number = match &value {
        Value::Null => return Ok(None),
        // A float: JavaScript and small C libraries know no other number.
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.map(Some).ok_or_else(|| serde::de::Error::custom(format!("{} is not a number", short(&value))))
}

pub fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    maybe_number(from).map(Option::unwrap_or_default)
}

pub fn count<'de, D: Deserializer<'de>, T: TryFrom<i64>>(from: D) -> Result<T, D::Error> {
    let number = number(from)?;
    T::try_from(number).map_err(|_| serde::de::Error::custom(format!("{number} is too small or too large")))
}

pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) if !text.is_empty() => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(serde::de::Error::custom(format!("{} is not an id", short(&other)))),
    }
}

fn text_or_nothing<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Option::<String>::deserialize(from).map(Option::unwrap_or_default)
}

/// A text that holds JSON; JSON itself is taken for its text.
pub fn json_text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => text,
        Value::Null => nothing(),
        other => other.to_string(),
    })
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}
