//! Many events, as columns. A batch is bounded: at most [`ROWS_MAX`] rows, and no text longer than [`TEXT_BYTES_MAX`], so
//! that what stands in one is always numbered by 32 bits.
//!
//! - [`Column`] is one field of each event; [`Texts`] those of texts, back to back. [`Value`] is a single cell, for places
//!   that are passed seldom.
//! - [`binary`] is a batch in the log, [`json`] are events as people and devices write them.
//!
//! What goes through by the million takes columns as slices ([`Column::ints`] and so on) and fills columns that it was
//! given.

pub mod binary;
mod column;
pub mod json;
mod texts;
mod value;

use std::ops::Range;
use std::sync::Arc;

pub use column::Column;
pub use texts::{TEXT_BYTES_MAX, Texts, cut};
pub use value::Value;

use crate::schema::{Kind, Schema};

/// The most rows of one batch.
pub const ROWS_MAX: usize = 1 << 16;

/// Why something has no place in a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("{found} values for {wanted} fields")]
    Width { wanted: usize, found: usize },
    #[error("field \"{field}\" is {wanted}, and this is {found}")]
    Kind { field: String, wanted: Kind, found: Kind },
    #[error("the text of \"{field}\" has {bytes} bytes, the most is {TEXT_BYTES_MAX}")]
    LongText { field: String, bytes: usize },
    #[error("the columns have different lengths")]
    Ragged,
    #[error("the events are of another schema")]
    OtherSchema,
    #[error("a batch holds {ROWS_MAX} rows and no more")]
    Full,
}

/// Events of one schema. Each column is as long as the batch has rows, and of its field's kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    schema: Arc<Schema>,
    columns: Vec<Column>,
    rows: usize,
}

impl Batch {
    /// One without rows.
    pub fn new(schema: Arc<Schema>) -> Self {
        Self::with_capacity(schema, 0)
    }

    pub fn with_capacity(schema: Arc<Schema>, rows: usize) -> Self {
        let columns = schema.fields.iter().map(|field| Column::with_capacity(field.kind, rows)).collect();
        Self { schema, columns, rows: 0 }
    }

    /// Of columns that were made elsewhere.
    pub fn of(schema: Arc<Schema>, columns: Vec<Column>) -> Result<Self, Unfit> {
        if columns.len() != schema.len() {
            return Err(Unfit::Width { wanted: schema.len(), found: columns.len() });
        }
        let rows = columns.first().map_or(0, Column::len);
        for (field, column) in schema.fields.iter().zip(&columns) {
            if column.kind() != field.kind {
                let (wanted, found) = (field.kind, column.kind());
                return Err(Unfit::Kind { field: field.name.clone(), wanted, found });
            }
            if column.len() != rows {
                return Err(Unfit::Ragged);
            }
        }
        if rows > ROWS_MAX {
            return Err(Unfit::Full);
        }
        Ok(Self { schema, columns, rows })
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn into_columns(self) -> Vec<Column> {
        self.columns
    }

    pub fn column(&self, n: usize) -> &Column {
        &self.columns[n]
    }

    pub fn named(&self, name: &str) -> Option<&Column> {
        self.schema.index(name).map(|n| &self.columns[n])
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How many bytes its cells take, about.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(Column::bytes).sum()
    }

    /// Forgets the rows and keeps the room.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(Column::clear);
        self.rows = 0;
    }

    pub fn row(&self, n: usize) -> Vec<Value> {
        self.columns.iter().map(|column| column.get(n)).collect()
    }

    /// All of the row, or nothing of it.
    pub fn push_row(&mut self, values: &[Value]) -> Result<(), Unfit> {
        if values.len() != self.columns.len() {
            return Err(Unfit::Width { wanted: self.columns.len(), found: values.len() });
        }
        if self.rows == ROWS_MAX {
            return Err(Unfit::Full);
        }
        for (field, value) in self.schema.fields.iter().zip(values) {
            if value.kind() != field.kind {
                let (wanted, found) = (field.kind, value.kind());
                return Err(Unfit::Kind { field: field.name.clone(), wanted, found });
            }
            if let Value::Text(text) = value
                && text.len() > TEXT_BYTES_MAX
            {
                return Err(Unfit::LongText { field: field.name.clone(), bytes: text.len() });
            }
        }
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value);
        }
        self.rows += 1;
        Ok(())
    }

    /// Adds the rows of another of the same schema: all, or none.
    pub fn append(&mut self, other: &Batch) -> Result<(), Unfit> {
        self.append_rows(other, 0..other.rows)
    }

    /// Adds some rows of another.
    pub fn append_rows(&mut self, other: &Batch, rows: Range<usize>) -> Result<(), Unfit> {
        if !Arc::ptr_eq(&self.schema, &other.schema) && self.schema != other.schema {
            return Err(Unfit::OtherSchema);
        }
        let rows = rows.start.min(other.rows)..rows.end.min(other.rows);
        if self.rows + rows.len() > ROWS_MAX {
            return Err(Unfit::Full);
        }
        for (column, more) in self.columns.iter_mut().zip(&other.columns) {
            column.append(more, rows.clone());
        }
        self.rows += rows.len();
        Ok(())
    }

    /// One of several, in their order.
    pub fn concat(schema: Arc<Schema>, batches: &[Batch]) -> Result<Self, Unfit> {
        let mut whole = Self::with_capacity(schema, batches.iter().map(Batch::rows).sum::<usize>().min(ROWS_MAX));
        batches.iter().try_for_each(|batch| whole.append(batch))?;
        Ok(whole)
    }

    /// Rows that stand side by side. What of the range is not there is left out.
    pub fn slice(&self, rows: Range<usize>) -> Self {
        let rows = rows.start.min(self.rows)..rows.end.min(self.rows);
        let cut = |column: &Column| {
            let mut part = Column::with_capacity(column.kind(), rows.len());
            part.append(column, rows.clone());
            part
        };
        Self { schema: self.schema.clone(), columns: self.columns.iter().map(cut).collect(), rows: rows.len() }
    }

    /// The rows of these numbers, in this order; a row may be named twice.
    pub fn take(&self, rows: &[u32]) -> Self {
        let mut taken = Self::new(self.schema.clone());
        self.take_into(rows, &mut taken);
        taken
    }

    /// As [`take`](Self::take), into a batch of the same schema whose rows are forgotten and whose room is used again.
    pub fn take_into(&self, rows: &[u32], into: &mut Batch) {
        debug_assert_eq!(self.schema, into.schema);
        for (from, to) in self.columns.iter().zip(&mut into.columns) {
            from.take_into(rows, to);
        }
        into.rows = rows.len();
    }

    /// The rows for which `keep` says so; it has an answer for each.
    pub fn filter(&self, keep: &[bool]) -> Self {
        let mut rows = Vec::new();
        chosen(keep, &mut rows);
        self.take(&rows)
    }
}

/// The numbers of the rows that are kept. Without a branch on what is kept: that could not be foretold.
pub fn chosen(keep: &[bool], rows: &mut Vec<u32>) {
    rows.clear();
    rows.resize(keep.len(), 0);
    let mut count = 0;
    for (n, keep) in keep.iter().enumerate() {
        rows[count] = n as u32;
        count += usize::from(*keep);
    }
    rows.truncate(count);
}

#[cfg(test)]
pub(crate) mod tests;
