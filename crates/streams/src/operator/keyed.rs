//! Inputs put together, and rows shared out by key.

use super::clock::Clock;
use super::{Operator, Outlet, Piece, Port};
use crate::aggregate::item::Item;
use crate::batch::Batch;
use crate::hash;
use crate::state::Unreadable;
use crate::window::Refused;

/// Several inputs of one schema as one, in the order in which their events come. Time is where the input is that is furthest
/// behind.
pub struct Union {
    clock: Clock,
}

impl Union {
    pub fn of(inputs: usize) -> Self {
        Self { clock: Clock::of(inputs) }
    }
}

impl Operator for Union {
    fn push(&mut self, _: usize, batch: Batch, out: &mut Outlet) -> Result<(), Refused> {
        if !batch.is_empty() {
            out.push(Piece::Rows(Port::Main, batch));
        }
        Ok(())
    }

    fn watermark(&mut self, input: usize, time: i64, out: &mut Outlet) -> Result<(), Refused> {
        self.clock.tell(input, time, out);
        Ok(())
    }

    fn begin_snapshot(&mut self) {
        self.clock.begin_snapshot();
    }

    fn advance_snapshot(&mut self, _: usize) -> Option<Vec<u8>> {
        self.clock.take_snapshot()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), Unreadable> {
        self.clock.restore(snapshot)
    }
}

/// Rows with the same key go to the same partition, on each machine and in each version.
pub struct KeyBy {
    fields: Vec<usize>,
    parts: u32,
    clock: Clock,
    rows: Vec<Vec<u32>>,
}

impl KeyBy {
    pub fn of(fields: Vec<usize>, parts: u32) -> Self {
        let parts = parts.max(1);
        let rows = vec![Vec::new(); parts as usize];
        Self { fields, parts, clock: Clock::of(1), rows }
    }

    /// Where a row belongs.
    pub fn part_of(fields: &[usize], parts: u32, batch: &Batch, row: usize) -> u32 {
        let hash = match fields {
            [field] => Item::hash_of(batch.column(*field), row),
            fields => {
                let hashes = fields.iter().map(|field| Item::hash_of(batch.column(*field), row));
                hashes.fold(0, |all, one| hash::int((all ^ one) as i64))
            }
        };
        (hash % u64::from(parts)) as u32
    }
}

impl Operator for KeyBy {
    fn push(&mut self, _: usize, batch: Batch, out: &mut Outlet) -> Result<(), Refused> {
        if batch.is_empty() {
            return Ok(());
        }
        self.rows.iter_mut().for_each(Vec::clear);
        for row in 0..batch.rows() {
            let part = Self::part_of(&self.fields, self.parts, &batch, row);
            self.rows[part as usize].push(row as u32);
        }
        if let Some(part) = self.rows.iter().position(|rows| rows.len() == batch.rows()) {
            out.push(Piece::Rows(Port::Part(part as u32), batch));
            return Ok(());
        }
        for (part, rows) in (0..).zip(&self.rows) {
            if !rows.is_empty() {
                out.push(Piece::Rows(Port::Part(part), batch.take(rows)));
            }
        }
        Ok(())
    }

    fn watermark(&mut self, input: usize, time: i64, out: &mut Outlet) -> Result<(), Refused> {
        self.clock.tell(input, time, out);
        Ok(())
    }

    fn begin_snapshot(&mut self) {
        self.clock.begin_snapshot();
    }

    fn advance_snapshot(&mut self, _: usize) -> Option<Vec<u8>> {
        self.clock.take_snapshot()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), Unreadable> {
        self.clock.restore(snapshot)
    }
}
