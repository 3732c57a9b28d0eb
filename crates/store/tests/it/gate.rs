//! Holds the writer up, so that a test decides what waits when it is free again.

use std::sync::mpsc::{SyncSender, sync_channel};

use mutirao_store::{Sqlite, StoreError};
use tokio::task::JoinHandle;

/// The writer stands still, inside a write of its own, until this is opened.
pub struct Gate {
    open: SyncSender<()>,
    held: JoinHandle<Result<(), StoreError>>,
}

impl Gate {
    /// Returns once the writer stands still.
    pub async fn close(store: &Sqlite) -> Gate {
        let (open, wait) = sync_channel::<()>(1);
        let (reached, has_reached) = tokio::sync::oneshot::channel();
        let store = store.clone();
        let held = tokio::spawn(async move {
            let standing = store.write(move |_| {
                let _ = reached.send(());
                let _ = wait.recv();
                Ok(())
            });
            standing.await
        });
        has_reached.await.unwrap();
        Gate { open, held }
    }

    /// The answer to the gate's own write, which shares the group of what waited behind it.
    pub async fn open(self) -> Result<(), StoreError> {
        self.open.send(()).unwrap();
        self.held.await.unwrap()
    }
}

/// Starts a write and returns when it waits for the writer. Needs a runtime of one thread: there, a task that has been
/// polled once has sent its message.
pub async fn queue<T, F>(store: &Sqlite, f: F) -> JoinHandle<Result<T, StoreError>>
where
    T: Send + 'static,
    F: FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
{
    let (polled, is_polled) = tokio::sync::oneshot::channel();
    let store = store.clone();
    let task = tokio::spawn(async move {
        let _ = polled.send(());
        store.write(f).await
    });
    is_polled.await.unwrap();
    task
}
