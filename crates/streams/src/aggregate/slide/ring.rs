//! The values that a sliding window holds.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::aggregate::item::Item;
use crate::aggregate::{rank, tidy};
use crate::batch::Column;
use crate::schema::Kind;
use crate::state::{Reader, Unreadable, Writer};

/// The values of one field, the oldest first.
#[derive(Clone, Debug)]
pub enum Ring {
    Whole(VecDeque<i64>),
    Float(VecDeque<f64>),
    Text(VecDeque<Arc<str>>),
}

impl Ring {
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::Int | Kind::Time | Kind::Bool => Ring::Whole(VecDeque::new()),
            Kind::Float => Ring::Float(VecDeque::new()),
            Kind::Text => Ring::Text(VecDeque::new()),
        }
    }

    pub fn push(&mut self, column: &Column, row: usize) {
        match (self, column) {
            (Ring::Whole(ring), Column::Int(all) | Column::Time(all)) => ring.push_back(all[row]),
            (Ring::Whole(ring), Column::Bool(all)) => ring.push_back(i64::from(all[row])),
            (Ring::Float(ring), Column::Float(all)) => ring.push_back(tidy(all[row])),
            (Ring::Text(ring), Column::Text(all)) => ring.push_back(all.get(row).into()),
            (_, column) => unreachable!("a column of {} in a window of something else", column.kind()),
        }
    }

    pub fn pop(&mut self) {
        match self {
            Ring::Whole(ring) => drop(ring.pop_front()),
            Ring::Float(ring) => drop(ring.pop_front()),
            Ring::Text(ring) => drop(ring.pop_front()),
        }
    }

    pub fn item(&self, at: usize) -> Item {
        match self {
            Ring::Whole(ring) => Item::Whole(ring[at]),
            Ring::Float(ring) => Item::Rank(rank(ring[at])),
            Ring::Text(ring) => Item::Text(ring[at].clone()),
        }
    }

    pub fn number(&self, at: usize) -> f64 {
        match self {
            Ring::Whole(ring) => ring[at] as f64,
            Ring::Float(ring) => ring[at],
            Ring::Text(_) => unreachable!("no number of text"),
        }
    }

    pub fn bytes(&self, at: usize) -> usize {
        match self {
            Ring::Whole(_) | Ring::Float(_) => 8,
            Ring::Text(ring) => 24 + ring[at].len(),
        }
    }

    pub fn store(&self, at: usize, to: &mut Writer) {
        match self {
            Ring::Whole(ring) => to.i64(ring[at]),
            Ring::Float(ring) => to.u64(ring[at].to_bits()),
            Ring::Text(ring) => to.bytes(ring[at].as_bytes()),
        }
    }

    pub fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Unreadable> {
        match self {
            Ring::Whole(ring) => ring.push_back(from.i64()?),
            Ring::Float(ring) => ring.push_back(f64::from_bits(from.u64()?)),
            Ring::Text(ring) => ring.push_back(from.text()?.into()),
        }
        Ok(())
    }
}
