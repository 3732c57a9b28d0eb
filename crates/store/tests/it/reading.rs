//! What a read sees, and what it cannot do.

use std::sync::mpsc::sync_channel;

use mutirao_store::{Sqlite, StoreError};

use crate::{ROWS, insert, keys};

#[tokio::test]
async fn a_read_sees_no_write_before_its_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&dir.path().join("store.db"), &[ROWS]).unwrap();
    let (open, wait) = sync_channel::<()>(1);
    let (reached, has_reached) = tokio::sync::oneshot::channel();
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        let slow = writer.write(move |sql| {
            insert(1)(sql)?;
            let _ = reached.send(());
            let _ = wait.recv();
            Ok(())
        });
        slow.await
    });
    has_reached.await.unwrap();
    assert!(keys(&store).await.is_empty());
    open.send(()).unwrap();
    writing.await.unwrap().unwrap();
    assert_eq!(keys(&store).await, [1], "an answered write is seen by the next read");
}

#[tokio::test]
async fn all_of_one_read_sees_one_state() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&dir.path().join("store.db"), &[ROWS]).unwrap();
    let (go_on, wait) = sync_channel::<()>(1);
    let (reached, has_reached) = tokio::sync::oneshot::channel();
    let reader = store.clone();
    let reading = tokio::spawn(async move {
        let count =
            |sql: &rusqlite::Connection| sql.query_row("SELECT count(*) FROM rows", [], |row| row.get::<_, i64>(0));
        let twice = reader.read(move |sql| {
            let first = count(sql)?;
            let _ = reached.send(());
            let _ = wait.recv();
            Ok((first, count(sql)?))
        });
        twice.await
    });
    has_reached.await.unwrap();
    store.write(insert(1)).await.unwrap();
    go_on.send(()).unwrap();
    assert_eq!(reading.await.unwrap().unwrap(), (0, 0));
}

#[tokio::test]
async fn a_read_cannot_write() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&dir.path().join("store.db"), &[ROWS]).unwrap();
    store.read(insert(1)).await.unwrap_err();
    assert!(keys(&store).await.is_empty());
}

#[tokio::test]
async fn reads_that_panic_or_misbehave_do_not_use_up_the_connections() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&dir.path().join("store.db"), &[ROWS]).unwrap();
    for _ in 0..10 {
        let panicked = store.read(|_| -> rusqlite::Result<()> { panic!("on purpose") }).await.unwrap_err();
        assert!(matches!(panicked, StoreError::Panicked { .. }), "{panicked}");
        store.read(|sql| sql.execute_batch("ROLLBACK")).await.unwrap();
        store.read(|sql| sql.execute_batch("nonsense")).await.unwrap_err();
    }
    assert!(keys(&store).await.is_empty());
}
