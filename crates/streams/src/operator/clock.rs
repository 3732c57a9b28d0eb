//! The time of an operator that remembers nothing else.

use super::{Outlet, Piece};
use crate::state::{self, Reader, Unreadable, Writer};
use crate::window::watermark::Watermarks;

pub struct Clock {
    watermarks: Watermarks,
    snapshot: Option<Vec<u8>>,
}

impl Clock {
    pub fn of(inputs: usize) -> Self {
        Self { watermarks: Watermarks::of(inputs), snapshot: None }
    }

    pub fn tell(&mut self, input: usize, time: i64, out: &mut Outlet) {
        out.extend(self.watermarks.tell(input, time).map(Piece::Watermark));
    }

    pub fn begin_snapshot(&mut self) {
        let mut to = Writer::default();
        self.watermarks.store(&mut to);
        self.snapshot = Some(state::seal(0, to.into_bytes()));
    }

    pub fn take_snapshot(&mut self) -> Option<Vec<u8>> {
        self.snapshot.take()
    }

    pub fn restore(&mut self, snapshot: &[u8]) -> Result<(), Unreadable> {
        let mut watermarks = self.watermarks.clone();
        let mut from = Reader::new(state::open(0, snapshot)?);
        watermarks.load(&mut from)?;
        from.end()?;
        self.watermarks = watermarks;
        Ok(())
    }
}
