//! Writes by hand that were given up while the store did not answer, and what is known of them since: whoever asks after one is told.
//! Of this process only: once it has gone, nobody is about to make them.

use std::collections::VecDeque;
use std::sync::Arc;

use mutirao_core::ShardId;
use parking_lot::Mutex;

use crate::write::{Producer, WriteId};

/// Parcels that are remembered.
pub(super) const KEPT_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It may be made yet.
    Open,
    /// It was not, and never will be.
    NotMade,
}

/// A parcel.
type Which = (ShardId, Producer, u64);

/// Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Doubts(Arc<Mutex<VecDeque<(Which, Doubt)>>>);

impl Doubts {
    pub fn of(&self, id: WriteId) -> Option<Doubt> {
        let which = (id.shard, id.producer, id.number);
        self.0.lock().iter().find(|(known, _)| *known == which).map(|(_, doubt)| *doubt)
    }

    pub(super) fn open(&self, which: Which) {
        let mut all = self.0.lock();
        if all.len() >= KEPT_MAX {
            all.pop_front();
        }
        all.push_back((which, Doubt::Open));
    }

    pub(super) fn was_not_made(&self, which: Which) {
        if let Some((_, doubt)) = self.0.lock().iter_mut().find(|(known, _)| *known == which) {
            *doubt = Doubt::NotMade;
        }
    }

    /// The store knows it.
    pub(super) fn was_made(&self, which: Which) {
        self.0.lock().retain(|(known, _)| *known != which);
    }
}
