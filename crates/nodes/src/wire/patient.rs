//! Reading what small programs write: a truth as `1` or `"true"`, a number as a text, an object where its text was meant.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serializer};
use serde_json::Value;

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
    pub actions: Vec<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub slots: Option<u32>,
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
