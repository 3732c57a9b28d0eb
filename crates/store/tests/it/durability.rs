//! What was answered is there after kill -9. (That it is there after a power cut as well rests on the fsync in each
//! commit, which SQLite makes when `synchronous` is FULL.)

use std::collections::HashSet;

use mutirao_store::Sqlite;

use crate::child::Other;
use crate::{ROWS, keys};

#[tokio::test]
async fn every_answered_write_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut answered = HashSet::new();
    for round in 1..=3 {
        let mut other = Other::start("writes_and_says_so", dir.path());
        for _ in 0..500 {
            answered.insert(other.hear().expect("it writes until it is killed"));
        }
        other.kill();
        answered.extend(std::iter::from_fn(|| other.hear()));

        let store = Sqlite::open(&dir.path().join("store.db"), &[ROWS]).unwrap();
        let kept: HashSet<i64> = keys(&store).await.into_iter().collect();
        let lost: Vec<_> = answered.difference(&kept).collect();
        assert!(lost.is_empty(), "round {round}: {} answered, lost {lost:?}", answered.len());
        let check = store.read(|sql| sql.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)));
        assert_eq!(check.await.unwrap(), "ok");
        store.close().await;
    }
}

#[tokio::test]
async fn every_commit_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&dir.path().join("store.db"), &[ROWS]).unwrap();
    let settings = store.write(|sql| {
        let synchronous: i64 = sql.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        let journal: String = sql.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let foreign_keys: i64 = sql.query_row("PRAGMA foreign_keys", [], |row| row.get(0))?;
        Ok((synchronous, journal, foreign_keys))
    });
    assert_eq!(settings.await.unwrap(), (2, "wal".into(), 1));
}
