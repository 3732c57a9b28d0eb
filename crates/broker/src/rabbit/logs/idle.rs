//! Cursors that stay open for the reader that comes back for more.

use std::collections::HashMap;

use super::cursor::Cursor;

/// As many as one connection has channels for, with room for whatever else is done on it. The one that was not used for
/// longest makes way.
const CURSORS_MAX: usize = 1_024;

#[derive(Default)]
pub(super) struct Idle {
    /// By their queues, each with when it came.
    cursors: HashMap<String, Vec<(u64, Cursor)>>,
    count: usize,
    last: u64,
}

impl Idle {
    /// One that goes on at this offset.
    pub fn take(&mut self, queue: &str, offset: u64, generation: u64) -> Option<Cursor> {
        let here = self.cursors.get_mut(queue)?;
        let before = here.len();
        here.retain(|(_, cursor)| cursor.generation == generation);
        let found = here.iter().position(|(_, cursor)| cursor.next == offset).map(|at| here.swap_remove(at).1);
        self.count -= before - here.len();
        if here.is_empty() {
            self.cursors.remove(queue);
        }
        found
    }

    pub fn keep(&mut self, cursor: Cursor) {
        if self.count >= CURSORS_MAX {
            self.drop_oldest();
        }
        self.last += 1;
        self.count += 1;
        self.cursors.entry(cursor.queue.clone()).or_default().push((self.last, cursor));
    }

    pub fn forget(&mut self, queue: &str) {
        self.count -= self.cursors.remove(queue).map_or(0, |gone| gone.len());
    }

    fn drop_oldest(&mut self) {
        let age = |here: &Vec<(u64, Cursor)>| here.iter().map(|(came, _)| *came).min();
        let oldest = self.cursors.iter().filter_map(|(queue, here)| Some((age(here)?, queue.clone()))).min();
        let Some((came, queue)) = oldest else { return };
        if let Some(here) = self.cursors.get_mut(&queue) {
            here.retain(|(other, _)| *other != came);
            self.count -= 1;
            if here.is_empty() {
                self.cursors.remove(&queue);
            }
        }
    }
}
