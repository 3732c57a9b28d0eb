//! A waiting room with a door that closes: callers may wait, but not without number.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::StoreError;

pub(crate) struct Room {
    inside: AtomicUsize,
    max: usize,
}

/// Somebody's place in the room, given back when dropped.
pub(crate) struct Place<'a>(&'a Room);

impl Room {
    pub fn for_at_most(max: usize) -> Self {
        Self { inside: AtomicUsize::new(0), max }
    }

    pub fn enter(&self) -> Result<Place<'_>, StoreError> {
        let place = Place(self);
        let waiting = self.inside.fetch_add(1, Ordering::Relaxed);
        if waiting < self.max { Ok(place) } else { Err(StoreError::Busy { waiting }) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_room_refuses_until_somebody_leaves() {
        let room = Room::for_at_most(2);
        let (first, _second) = (room.enter().unwrap(), room.enter().unwrap());
        assert!(matches!(room.enter(), Err(StoreError::Busy { waiting: 2 })));
        assert!(matches!(room.enter(), Err(StoreError::Busy { waiting: 2 })), "a refusal takes no place");
        drop(first);
        assert!(room.enter().is_ok());
    }
}
