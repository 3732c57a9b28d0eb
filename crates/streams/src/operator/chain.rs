//! Filters and maps, one after the other.
//!
//! A filter copies the rows that are left, and nothing where all are. A field that a map passes on is moved, and copied only
//! where it is passed on twice.

use std::sync::Arc;

use super::clock::Clock;
use super::{Operator, Outlet, Piece, Port};
use crate::batch::{Batch, Column, Unfit};
use crate::expression::{Expression, Scratch};
use crate::schema::Schema;
use crate::state::Unreadable;
use crate::window::Refused;

pub enum Stage {
    /// Rows for which it holds stay.
    Filter(Expression),
    /// Each field of the output is what its expression says.
    Map { output: Arc<Schema>, fields: Vec<Expression> },
}

pub struct Chain {
    stages: Vec<Stage>,
    clock: Clock,
    scratch: Scratch,
    rows: Vec<u32>,
}

impl Chain {
    pub fn of(stages: Vec<Stage>) -> Self {
        Self { stages, clock: Clock::of(1), scratch: Scratch::default(), rows: Vec::new() }
    }

    /// What is left of a batch, and what became of it.
    pub fn run(&mut self, mut batch: Batch) -> Result<Batch, Unfit> {
        let Self { stages, scratch, rows, .. } = self;
        for stage in stages {
            batch = match stage {
                Stage::Filter(test) => {
                    test.select(&batch, scratch, rows);
                    if rows.len() == batch.rows() { batch } else { batch.take(rows) }
                }
                Stage::Map { output, fields } => map(batch, output, fields, scratch)?,
            };
        }
        Ok(batch)
    }
}

fn map(batch: Batch, output: &Arc<Schema>, fields: &[Expression], scratch: &mut Scratch) -> Result<Batch, Unfit> {
    let made: Vec<Result<Column, usize>> =
        fields.iter().map(|field| field.field().map_or_else(|| Ok(field.run(&batch, scratch)), Err)).collect();
    // Moved where it is passed on for the last time.
    let mut left = vec![0; batch.columns().len()];
    made.iter().flat_map(|made| made.as_ref().err()).for_each(|passed| left[*passed] += 1);
    let mut columns = batch.into_columns();
    let mut pass = |passed: usize| {
        left[passed] -= 1;
        match left[passed] {
            0 => std::mem::replace(&mut columns[passed], Column::Bool(Vec::new())),
            _ => columns[passed].clone(),
        }
    };
    let columns = made.into_iter().map(|made| made.unwrap_or_else(&mut pass)).collect();
    Batch::of(output.clone(), columns)
}

impl Operator for Chain {
    fn push(&mut self, _: usize, batch: Batch, out: &mut Outlet) -> Result<(), Refused> {
        let batch = self.run(batch)?;
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
