//! Closing: nothing that waits is lost, nothing comes after.

#![allow(clippy::disallowed_methods, reason = "waits for a thread that nobody can be told about")]

use std::time::Duration;

use mutirao_store::{Sqlite, StoreError};

use crate::gate::{Gate, queue};
use crate::{ROWS, insert, keys};

#[tokio::test]
async fn close_finishes_what_waits_and_folds_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.db");
    let store = Sqlite::open(&file, &[ROWS]).unwrap();
    assert!(keys(&store).await.is_empty());
    let gate = Gate::close(&store).await;
    let waiting = queue(&store, insert(1)).await;
    let closing = tokio::spawn({
        let store = store.clone();
        async move { store.close().await }
    });
    tokio::task::yield_now().await;
    gate.open().await.unwrap();
    closing.await.unwrap();
    waiting.await.unwrap().unwrap();
    store.close().await;

    assert!(matches!(store.write(insert(2)).await, Err(StoreError::Closed)));
    assert!(matches!(store.read(|_| Ok(())).await, Err(StoreError::Closed)));
    assert!(!dir.path().join("store.db-wal").exists(), "the log is folded into the file");
    assert_eq!(keys(&Sqlite::open(&file, &[ROWS]).unwrap()).await, [1]);
}

#[tokio::test]
async fn writes_outlive_their_callers_and_the_last_handle() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.db");
    let store = Sqlite::open(&file, &[ROWS]).unwrap();
    let gate = Gate::close(&store).await;
    for k in 0..10 {
        queue(&store, insert(k)).await.abort();
    }
    drop(store);
    gate.open().await.unwrap();
    let again = Sqlite::open(&file, &[ROWS]).unwrap();
    for _ in 0..500 {
        if keys(&again).await.len() == 10 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("after 5 s only {:?}", keys(&again).await);
}
