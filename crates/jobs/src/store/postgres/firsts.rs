//! What is said first of each task of a batch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use mutirao_core::id::{JobKey, TaskKey};
use mutirao_store::StoreError;
use mutirao_store::postgres::Row;

use crate::desk::Ended;

/// The first word on a task is what counts; and one statement cannot meet the same row twice.
pub struct Firsts<'a> {
    pub batch: Vec<&'a Ended>,
    places: HashMap<TaskKey, usize>,
}

impl<'a> Firsts<'a> {
    pub fn of(all: impl Iterator<Item = &'a Ended>) -> Self {
        let mut firsts = Self { batch: Vec::new(), places: HashMap::new() };
        for one in all {
            if let Entry::Vacant(place) = firsts.places.entry(one.task) {
                place.insert(firsts.batch.len());
                firsts.batch.push(one);
            }
        }
        firsts
    }

    /// Those whose job and index a statement returned.
    pub fn among(self, rows: &[Row]) -> Result<Vec<&'a Ended>, StoreError> {
        if rows.len() == self.batch.len() {
            return Ok(self.batch);
        }
        let mut found = Vec::with_capacity(rows.len());
        for row in rows {
            let (job, index): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let task = TaskKey { job: JobKey(job as u64), index: index as u32 };
            found.extend(self.places.get(&task).map(|place| self.batch[*place]));
        }
        Ok(found)
    }
}
