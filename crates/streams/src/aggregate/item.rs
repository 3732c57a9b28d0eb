//! One value among others: what can be told apart, put in order and counted.

use std::sync::Arc;

use crate::aggregate::{of_rank, rank};
use crate::batch::{Column, Value};
use crate::hash;
use crate::state::{Reader, Stored, Unreadable, Writer};

/// Within one column all are of one variant, and their order is that of the values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// An int, a time, or a bool as 0 and 1.
    Whole(i64),
    /// Where a float stands among all floats.
    Rank(i64),
    Text(Arc<str>),
}

impl Item {
    /// What it holds beside itself.
    pub fn bytes(&self) -> usize {
        if let Item::Text(text) = self { 16 + text.len() } else { 0 }
    }

    pub fn of(column: &Column, row: usize) -> Self {
        match column {
            Column::Int(all) | Column::Time(all) => Item::Whole(all[row]),
            Column::Float(all) => Item::Rank(rank(all[row])),
            Column::Bool(all) => Item::Whole(i64::from(all[row])),
            Column::Text(all) => Item::Text(all.get(row).into()),
        }
    }

    pub fn of_value(value: &Value) -> Self {
        match value {
            Value::Int(value) | Value::Time(value) => Item::Whole(*value),
            Value::Float(value) => Item::Rank(rank(*value)),
            Value::Bool(value) => Item::Whole(i64::from(*value)),
            Value::Text(value) => Item::Text(value.as_str().into()),
        }
    }

    /// As the next row of a column of its kind.
    pub fn push_to(&self, column: &mut Column) {
        if !self.fits_into(column) {
            unreachable!("{self:?} in a column of {}", column.kind());
        }
    }

    /// The same for one that may be of another kind; whether it is of the right one.
    pub fn fits_into(&self, column: &mut Column) -> bool {
        match (self, column) {
            (Item::Whole(value), Column::Int(all) | Column::Time(all)) => all.push(*value),
            (Item::Whole(value), Column::Bool(all)) => all.push(*value != 0),
            (Item::Rank(rank), Column::Float(all)) => all.push(of_rank(*rank)),
            (Item::Text(text), Column::Text(all)) => all.push(text),
            _ => return false,
        }
        true
    }

    /// The [`hash`] of a cell: the same on each machine.
    pub fn hash_of(column: &Column, row: usize) -> u64 {
        match column {
            Column::Int(all) | Column::Time(all) => hash::int(all[row]),
            Column::Float(all) => hash::int(rank(all[row])),
            Column::Bool(all) => hash::int(i64::from(all[row])),
            Column::Text(all) => hash::bytes(all.bytes_of(row)),
        }
    }

    /// A bool as 0 and 1, a time in microseconds.
    pub fn write_json(&self, to: &mut String) {
        match self {
            Item::Whole(value) => to.push_str(&value.to_string()),
            // What is no number has no form in JSON but a text.
            Item::Rank(rank) if !of_rank(*rank).is_finite() => to.push_str(&format!("\"{}\"", of_rank(*rank))),
            Item::Rank(rank) => to.push_str(&format!("{:?}", of_rank(*rank))),
            Item::Text(text) => to.push_str(&serde_json::Value::from(&**text).to_string()),
        }
    }
}

impl Stored for Item {
    fn store(&self, to: &mut Writer) {
        match self {
            Item::Whole(value) => {
                to.u8(0);
                to.i64(*value);
            }
            Item::Rank(value) => {
                to.u8(1);
                to.i64(*value);
            }
            Item::Text(text) => {
                to.u8(2);
                to.bytes(text.as_bytes());
            }
        }
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Ok(match from.u8()? {
            0 => Item::Whole(from.i64()?),
            1 => Item::Rank(from.i64()?),
            2 => Item::Text(from.text()?.into()),
            _ => return Err(Unreadable::Value),
        })
    }
}

impl<T: Stored> Stored for Option<T> {
    fn store(&self, to: &mut Writer) {
        to.u8(u8::from(self.is_some()));
        if let Some(value) = self {
            value.store(to);
        }
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Ok(match from.u8()? {
            0 => None,
            _ => Some(T::load(from)?),
        })
    }
}
