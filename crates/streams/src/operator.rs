//! What windows and stateless steps have in common: batches go in at an input, with watermarks between them, and pieces come
//! out.
//!
//! - [`Chain`] is filters and maps one after the other, fused: a row is copied at most once by all of them together.
//! - [`Union`] puts inputs together, and [`KeyBy`] shares rows out among partitions.
//! - [`windowed`] is a window for each key.
//! - [`Pipe`] is the operators of a stage, one behind the other.
//! - [`Whole`] is all of a graph in one place.
//!
//! What comes out depends on what went in, on its order and on where the watermarks stood, and on nothing else: not on how rows
//! were cut into batches. Pieces may be cut differently, and the rows and watermarks in them are the same.

mod chain;
mod clock;
mod keyed;
mod pipe;
mod whole;

pub use chain::{Chain, Stage};
pub use keyed::{KeyBy, Union};
pub use pipe::{Pipe, Said};
pub use whole::{Sunk, Whole};

use crate::batch::Batch;
use crate::schema::Schema;
use crate::state::Unreadable;
use crate::window::{Counted, Grouping, Jumping, Refused, Sliding, Window, WindowError};

/// Where something comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    Main,
    /// Events that came too late for their window, as they came.
    Late,
    /// One of several, each on its way to another place.
    Part(u32),
}

/// What comes out.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Rows(Port, Batch),
    /// At each port.
    Watermark(i64),
}

/// What came out, in order.
pub type Outlet = Vec<Piece>;

pub trait Operator: Send {
    /// Events of an input, in their order.
    fn push(&mut self, input: usize, batch: Batch, out: &mut Outlet) -> Result<(), Refused>;

    /// Everything of an input that is before this time has come.
    fn watermark(&mut self, input: usize, time: i64, out: &mut Outlet) -> Result<(), Refused>;

    /// As [`watermark`](Self::watermark), and says no more of what follows than about so many rows: the rest is for
    /// [`go_on`](Self::go_on), before anything else comes in. Whether there is a rest.
    fn begin_watermark(&mut self, input: usize, time: i64, rows: usize, out: &mut Outlet) -> Result<bool, Refused> {
        let _ = rows;
        self.watermark(input, time, out).map(|()| false)
    }

    /// Says about so many rows more. Whether there is a rest still.
    fn go_on(&mut self, rows: usize, out: &mut Outlet) -> Result<bool, Refused> {
        let _ = (rows, out);
        Ok(false)
    }

    /// Begins a snapshot of what is remembered at this instant, in place of one that may be under way.
    fn begin_snapshot(&mut self);

    /// Goes on with the snapshot, by about so many keys (see [`state`](crate::state)). When nothing is left, the snapshot.
    fn advance_snapshot(&mut self, keys: usize) -> Option<Vec<u8>>;

    /// Goes on from a snapshot, in place of whatever is remembered. When that cannot be, nothing has changed.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), Unreadable>;
}

/// The operator of a window, for so many inputs.
pub fn windowed(grouping: &Grouping, input: &Schema, inputs: usize) -> Result<Box<dyn Operator>, WindowError> {
    Ok(match grouping.window {
        Window::Count { .. } => Box::new(Counted::of(grouping, input, inputs)?),
        Window::Time { .. } if grouping.window.jumps() => Box::new(Jumping::of(grouping, input, inputs)?),
        Window::Time { .. } => Box::new(Sliding::of(grouping, input, inputs)?),
    })
}

/// A snapshot in one go, for those who can wait.
pub fn snapshot(operator: &mut dyn Operator) -> Vec<u8> {
    operator.begin_snapshot();
    loop {
        if let Some(snapshot) = operator.advance_snapshot(usize::MAX) {
            return snapshot;
        }
    }
}
