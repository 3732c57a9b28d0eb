//! A plan, run over the columns of a batch. Each step is one loop over slices; what is the same for all rows stays a single
//! value until it meets a column. Buffers of steps that are done are used again by the next.

mod apply;
mod cells;
mod numbers;
mod texts;

pub use cells::{Cells, Scratch};

use super::plan::{Node, Op};
use crate::batch::{Batch, Column, Value, chosen};
use crate::schema::Kind;

/// What the plan gives, a value for each row.
pub fn column(node: &Node, kind: Kind, batch: &Batch, scratch: &mut Scratch) -> Column {
    match cells(node, batch, scratch) {
        Cells::Own(column) => column,
        Cells::Lent(column) => scratch.copy(column),
        Cells::One(value) => scratch.filled(&value, kind, batch.rows()),
    }
}

/// The rows for which it gives true.
pub fn select(node: &Node, batch: &Batch, scratch: &mut Scratch, rows: &mut Vec<u32>) {
    let answer = cells(node, batch, scratch);
    match (&answer, answer.column().and_then(Column::bools)) {
        (_, Some(keep)) => chosen(keep, rows),
        (Cells::One(Value::Bool(true)), None) => {
            rows.clear();
            rows.extend(0..batch.rows() as u32);
        }
        (_, None) => rows.clear(),
    }
    scratch.give(answer);
}

/// One step over single values.
pub fn once(op: Op, kind: Kind, values: Vec<Value>) -> Value {
    let of: Vec<Cells<'_>> = values.into_iter().map(Cells::One).collect();
    apply::apply(op, kind, &of, 1, &mut Scratch::default()).get(0)
}

fn cells<'b>(node: &Node, batch: &'b Batch, scratch: &mut Scratch) -> Cells<'b> {
    let (op, kind, of) = match node {
        Node::One(value) => return Cells::One(value.clone()),
        Node::Field(field) => return Cells::Lent(batch.column(*field)),
        Node::Step { op, kind, of } => (*op, *kind, of),
    };
    let given: Vec<Cells<'b>> = of.iter().map(|node| cells(node, batch, scratch)).collect();
    let made = apply::apply(op, kind, &given, batch.rows(), scratch);
    given.into_iter().for_each(|cells| scratch.give(cells));
    Cells::Own(made)
}
