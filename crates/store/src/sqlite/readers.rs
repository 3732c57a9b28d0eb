//! A few read-only connections, opened when first needed and lent out one call at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{connect, errors};
use crate::StoreError;
use crate::room::Room;

/// Reads at the same time.
const READERS: u32 = 4;
/// Reads that wait or run. Past this, [`StoreError::Busy`].
const READS_WAITING_MAX: usize = 4_096;

pub(super) struct Readers {
    file: Arc<Path>,
    idle: Mutex<Vec<Connection>>,
    /// One permit for each connection that may be lent out. Closed with the store.
    permits: Arc<Semaphore>,
    room: Room,
}

impl Readers {
    pub fn of(file: Arc<Path>) -> Self {
        Self {
            file,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(READERS as usize)),
            room: Room::for_at_most(READS_WAITING_MAX),
        }
    }

    pub async fn read<T, F>(self: &Arc<Self>, f: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let _place = self.room.enter()?;
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let readers = self.clone();
        // The permit goes along, so that a caller who stops waiting does not free a connection that is still in use.
        let reading = tokio::task::spawn_blocking(move || {
            let answer = readers.read_now(f);
            drop(permit);
            answer
        });
        // Panics are caught inside; only a runtime that shuts down drops the task.
        reading.await.map_err(|_| StoreError::Closed)?
    }

    fn read_now<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let idle = self.idle.lock().pop();
        let conn = match idle {
            Some(conn) => conn,
            None => connect::reader(&self.file)?,
        };
        let name = |error| errors::name(error, &self.file);
        // One transaction, so that all of the closure sees one state.
        conn.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([])).map_err(name)?;
        let answer = match catch_unwind(AssertUnwindSafe(|| f(&conn))) {
            Ok(answer) => answer.map_err(name),
            Err(payload) => return Err(errors::panicked(&*payload)),
        };
        let ended = conn.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
        // A connection that is not as it was when lent is dropped, and a fresh one opened when next needed.
        if ended.is_ok() && conn.is_autocommit() {
            self.idle.lock().push(conn);
        }
        answer
    }

    /// Waits for the reads that came before and closes their connections; whoever comes later is refused.
    pub async fn close(&self) {
        // An error says that another caller has closed it already.
        if let Ok(all) = self.permits.acquire_many(READERS).await {
            self.permits.close();
            self.idle.lock().clear();
            all.forget();
        }
    }
}
