//! A single cell: for definitions, tests, and whatever is passed seldom.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::schema::Kind;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    /// Microseconds since the epoch.
    Time(i64),
}

impl Value {
    pub fn kind(&self) -> Kind {
        match self {
            Value::Int(_) => Kind::Int,
            Value::Float(_) => Kind::Float,
            Value::Bool(_) => Kind::Bool,
            Value::Text(_) => Kind::Text,
            Value::Time(_) => Kind::Time,
        }
    }

    /// Whether both are written the same: what is not a number is itself, and zero is not minus zero.
    pub fn same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Float(one), Value::Float(other)) => {
                one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan()
            }
            (one, other) => one == other,
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Float(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.to_owned())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Text(value) => write!(f, "{value:?}"),
            Value::Time(value) => write!(f, "{value} us"),
        }
    }
}
