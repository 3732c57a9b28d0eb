//! Definitions that were read before. A stream's never changes, so each is read once.

use std::collections::HashMap;
use std::sync::Arc;

use mutirao_store::StoreError;
use mutirao_streams::wire::StreamId;
use mutirao_streams::{Graph, definition};
use parking_lot::Mutex;

use crate::store::{STREAMS_MAX, Shared as Store, StreamRow};

/// A definition, and what it becomes; or why it cannot be read. One that an earlier version took may be none to this one.
#[derive(Debug)]
pub struct Read {
    pub text: String,
    pub graph: Result<Graph, String>,
}

impl Read {
    fn of(text: &str) -> Self {
        let graph = match definition::check(text) {
            Ok(mut graphs) if graphs.len() == 1 => Ok(graphs.remove(0)),
            Ok(_) => Err("it defines several streams".into()),
            Err(faults) => Err(faults.first().map(ToString::to_string).unwrap_or_default()),
        };
        Self { text: text.to_owned(), graph }
    }
}

pub struct Graphs {
    store: Store,
    read: Mutex<HashMap<StreamId, Arc<Read>>>,
}

impl Graphs {
    pub fn new(store: Store) -> Self {
        Self { store, read: Mutex::default() }
    }

    /// Of those of these that there are.
    pub async fn of(
        &self,
        ids: impl IntoIterator<Item = &StreamId>,
    ) -> Result<HashMap<StreamId, Arc<Read>>, StoreError> {
        let (mut found, mut missing) = (HashMap::new(), Vec::new());
        {
            let read = self.read.lock();
            for id in ids {
                match read.get(id) {
                    Some(known) => _ = found.insert(id.clone(), known.clone()),
                    None => missing.push(id.clone()),
                }
            }
        }
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            for row in self.store.by_id(missing).await? {
                found.insert(row.id.clone(), self.keep(&row));
            }
        }
        Ok(found)
    }

    /// Of one whose definition is at hand.
    pub fn keep(&self, row: &StreamRow) -> Arc<Read> {
        if let Some(known) = self.read.lock().get(&row.id) {
            return known.clone();
        }
        let new = Arc::new(Read::of(&row.definition));
        let mut read = self.read.lock();
        if read.len() >= 2 * STREAMS_MAX as usize {
            read.clear();
        }
        read.entry(row.id.clone()).or_insert(new).clone()
    }

    pub fn forget(&self, id: &StreamId) {
        self.read.lock().remove(id);
    }
}
