//! One field of each event of a batch.

use std::ops::Range;

use super::texts::Texts;
use super::value::Value;
use crate::schema::Kind;

#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Bool(Vec<bool>),
    Text(Texts),
    /// Microseconds since the epoch.
    Time(Vec<i64>),
}

impl Column {
    pub fn new(kind: Kind) -> Self {
        Self::with_capacity(kind, 0)
    }

    pub fn with_capacity(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::Int => Column::Int(Vec::with_capacity(rows)),
            Kind::Float => Column::Float(Vec::with_capacity(rows)),
            Kind::Bool => Column::Bool(Vec::with_capacity(rows)),
            Kind::Text => Column::Text(Texts::with_capacity(rows, 0)),
            Kind::Time => Column::Time(Vec::with_capacity(rows)),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Column::Int(_) => Kind::Int,
            Column::Float(_) => Kind::Float,
            Column::Bool(_) => Kind::Bool,
            Column::Text(_) => Kind::Text,
            Column::Time(_) => Kind::Time,
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Column::Int(all) | Column::Time(all) => all.len(),
            Column::Float(all) => all.len(),
            Column::Bool(all) => all.len(),
            Column::Text(all) => all.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes its cells take.
    pub fn bytes(&self) -> usize {
        match self {
            Column::Int(all) | Column::Time(all) => 8 * all.len(),
            Column::Float(all) => 8 * all.len(),
            Column::Bool(all) => all.len(),
            Column::Text(all) => 4 * all.len() + all.all().len(),
        }
    }

    /// Of an int or time column.
    pub fn ints(&self) -> Option<&[i64]> {
        match self {
            Column::Int(all) | Column::Time(all) => Some(all),
            _ => None,
        }
    }

    pub fn floats(&self) -> Option<&[f64]> {
        match self {
            Column::Float(all) => Some(all),
            _ => None,
        }
    }

    pub fn bools(&self) -> Option<&[bool]> {
        match self {
            Column::Bool(all) => Some(all),
            _ => None,
        }
    }

    pub fn texts(&self) -> Option<&Texts> {
        match self {
            Column::Text(all) => Some(all),
            _ => None,
        }
    }

    pub fn get(&self, row: usize) -> Value {
        match self {
            Column::Int(all) => Value::Int(all[row]),
            Column::Float(all) => Value::Float(all[row]),
            Column::Bool(all) => Value::Bool(all[row]),
            Column::Text(all) => Value::Text(all.get(row).to_owned()),
            Column::Time(all) => Value::Time(all[row]),
        }
    }

    /// Whoever calls has seen that the kinds are the same.
    pub(super) fn push(&mut self, value: &Value) {
        match (self, value) {
            (Column::Int(all), Value::Int(value)) | (Column::Time(all), Value::Time(value)) => all.push(*value),
            (Column::Float(all), Value::Float(value)) => all.push(*value),
            (Column::Bool(all), Value::Bool(value)) => all.push(*value),
            (Column::Text(all), Value::Text(value)) => all.push(value),
            (column, value) => unreachable!("a {} in a column of {}", value.kind(), column.kind()),
        }
    }

    pub fn clear(&mut self) {
        self.truncate(0);
    }

    pub fn truncate(&mut self, rows: usize) {
        match self {
            Column::Int(all) | Column::Time(all) => all.truncate(rows),
            Column::Float(all) => all.truncate(rows),
            Column::Bool(all) => all.truncate(rows),
            Column::Text(all) => all.truncate(rows),
        }
    }

    /// Adds some rows of a column of the same kind.
    pub(super) fn append(&mut self, other: &Column, rows: Range<usize>) {
        match (self, other) {
            (Column::Int(all), Column::Int(more)) | (Column::Time(all), Column::Time(more)) => {
                all.extend_from_slice(&more[rows]);
            }
            (Column::Float(all), Column::Float(more)) => all.extend_from_slice(&more[rows]),
            (Column::Bool(all), Column::Bool(more)) => all.extend_from_slice(&more[rows]),
            (Column::Text(all), Column::Text(more)) => all.append(more, rows),
            (column, other) => unreachable!("a column of {} after one of {}", other.kind(), column.kind()),
        }
    }

    /// The rows of these numbers, in place of what is in `into`, which is of the same kind.
    pub fn take_into(&self, rows: &[u32], into: &mut Column) {
        match (self, into) {
            (Column::Int(all), Column::Int(into)) | (Column::Time(all), Column::Time(into)) => gather(all, rows, into),
            (Column::Float(all), Column::Float(into)) => gather(all, rows, into),
            (Column::Bool(all), Column::Bool(into)) => gather(all, rows, into),
            (Column::Text(all), Column::Text(into)) => all.take_into(rows, into),
            (column, into) => {
                *into = Column::with_capacity(column.kind(), rows.len());
                column.take_into(rows, into);
            }
        }
    }
}

fn gather<T: Copy>(from: &[T], rows: &[u32], into: &mut Vec<T>) {
    into.clear();
    into.extend(rows.iter().map(|n| from[*n as usize]));
}
