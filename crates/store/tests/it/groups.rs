//! Writes that share a transaction: what they share and what they do not.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::clock::ManualClock;
use mutirao_store::{Sqlite, StoreError};

use crate::gate::{Gate, queue};
use crate::{ROWS, insert, keys};

/// A store whose groups are never cut short by time.
fn timeless(dir: &tempfile::TempDir) -> Sqlite {
    let clock = ManualClock::starting_at(Timestamp(0));
    Sqlite::open_with_clock(&dir.path().join("store.db"), &[ROWS], clock).unwrap()
}

#[tokio::test]
async fn everything_that_waits_shares_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = timeless(&dir);
    let gate = Gate::close(&store).await;
    let mut waiting = Vec::new();
    for k in 0..64 {
        waiting.push(queue(&store, insert(k)).await);
    }
    assert_eq!(store.stats().groups, 0, "nothing is committed while the first write runs");
    gate.open().await.unwrap();
    for write in waiting {
        write.await.unwrap().unwrap();
    }
    let stats = store.stats();
    assert_eq!((stats.groups, stats.writes, stats.group_max_writes), (1, 65, 65));
    assert_eq!(keys(&store).await, (0..64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_writers_at_once_share_commits() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&dir.path().join("store.db"), &[ROWS]).unwrap();
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..20 {
                    store.write(insert(writer * 1_000 + n)).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.writes, 64 * 20);
    assert!(stats.groups * 4 <= stats.writes, "{stats:?}");
}

#[tokio::test]
async fn a_group_is_cut_short_when_its_time_is_up() {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::starting_at(Timestamp(0));
    let store = Sqlite::open_with_clock(&dir.path().join("store.db"), &[ROWS], clock.clone()).unwrap();
    let gate = Gate::close(&store).await;
    let mut waiting = Vec::new();
    for k in 0..5 {
        let clock = clock.clone();
        let slow = move |sql: &rusqlite::Connection| {
            clock.advance(Duration::from_millis(50));
            insert(k)(sql)
        };
        waiting.push(queue(&store, slow).await);
    }
    gate.open().await.unwrap();
    for write in waiting {
        write.await.unwrap().unwrap();
    }
    assert_eq!(store.stats().groups, 5, "the gate and the first slow write, then one each");
}

#[tokio::test]
async fn a_write_that_fails_or_panics_undoes_itself_and_no_neighbour() {
    let dir = tempfile::tempdir().unwrap();
    let store = timeless(&dir);
    let gate = Gate::close(&store).await;
    let before = queue(&store, insert(1)).await;
    let failing = queue(&store, |sql| insert(2)(sql).and_then(|()| insert(1)(sql))).await;
    let between = queue(&store, insert(3)).await;
    let panicking = queue(&store, |sql| -> rusqlite::Result<()> {
        insert(4)(sql)?;
        panic!("on purpose");
    })
    .await;
    let after = queue(&store, insert(5)).await;
    gate.open().await.unwrap();

    for fine in [before, between, after] {
        fine.await.unwrap().unwrap();
    }
    let failed = failing.await.unwrap().unwrap_err();
    assert!(failed.to_string().contains("UNIQUE"), "{failed}");
    let panicked = panicking.await.unwrap().unwrap_err();
    assert!(matches!(&panicked, StoreError::Panicked { what } if what == "on purpose"), "{panicked}");
    assert_eq!(keys(&store).await, [1, 3, 5]);
    assert_eq!(store.stats().groups, 1, "they shared a group, or this proves nothing");
}

#[tokio::test]
async fn a_commit_that_fails_fails_everybody_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = timeless(&dir);
    let gate = Gate::close(&store).await;
    let innocent = queue(&store, insert(1)).await;
    // A constraint that is only looked at by COMMIT makes it fail.
    let culprit =
        queue(&store, |sql| sql.execute_batch("PRAGMA defer_foreign_keys = ON; INSERT INTO child VALUES (9)")).await;
    assert!(gate.open().await.is_err());
    for write in [innocent, culprit] {
        let failed = write.await.unwrap().unwrap_err();
        assert!(failed.to_string().contains("FOREIGN KEY"), "{failed}");
    }
    assert!(keys(&store).await.is_empty());
    assert_eq!((store.stats().groups, store.stats().groups_failed), (0, 1));
    store.write(insert(2)).await.unwrap();
    assert_eq!(keys(&store).await, [2], "the next group is not affected");
}

#[tokio::test]
async fn a_write_that_ends_its_transaction_gets_nobody_a_false_yes() {
    let dir = tempfile::tempdir().unwrap();
    let store = timeless(&dir);
    let gate = Gate::close(&store).await;
    let innocent = queue(&store, insert(1)).await;
    let culprit = queue(&store, |sql| sql.execute_batch("ROLLBACK")).await;
    assert!(gate.open().await.is_err());
    assert!(innocent.await.unwrap().is_err());
    culprit.await.unwrap().unwrap_err();
    assert!(keys(&store).await.is_empty());
    store.write(insert(2)).await.unwrap();
}

#[tokio::test]
async fn without_space_a_yes_is_kept_and_a_no_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = timeless(&dir);
    // The file may not grow: the same error as a full disk, without one.
    let limit = |pages: &'static str| {
        move |sql: &rusqlite::Connection| {
            sql.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0))
        }
    };
    store.write(limit("8")).await.unwrap();
    let gate = Gate::close(&store).await;
    let small = queue(&store, insert(1)).await;
    let large =
        queue(&store, |sql| sql.execute("INSERT INTO rows VALUES (2, zeroblob(1000000))", []).map(|_| ())).await;
    let small_too = queue(&store, insert(3)).await;
    let _ = gate.open().await;

    let refused = large.await.unwrap().unwrap_err();
    assert!(matches!(refused, StoreError::DiskFull { .. }), "{refused}");
    let mut expected = Vec::new();
    for (k, write) in [(1, small), (3, small_too)] {
        match write.await.unwrap() {
            Ok(()) => expected.push(k),
            Err(error) => assert!(matches!(error, StoreError::DiskFull { .. }), "{error}"),
        }
    }
    assert_eq!(keys(&store).await, expected);
    store.write(limit("1000000")).await.unwrap();
    store.write(insert(4)).await.unwrap();
}

#[tokio::test]
async fn writes_beyond_the_inbox_wait_and_beyond_the_room_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = timeless(&dir);
    let gate = Gate::close(&store).await;
    let mut waiting = Vec::new();
    // The room holds 16,384; the gate's own write is one of them.
    for k in 1..16_384 {
        waiting.push(queue(&store, insert(k)).await);
    }
    let refused = store.write(insert(0)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Busy { waiting: 16_384 }), "{refused}");
    gate.open().await.unwrap();
    for write in waiting {
        write.await.unwrap().unwrap();
    }
    store.write(insert(0)).await.unwrap();
    assert_eq!(keys(&store).await.len(), 16_384);
}
