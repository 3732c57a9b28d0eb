//! Opening: several at once, files that are not ours to open, modes.

use std::os::unix::fs::PermissionsExt;

use mutirao_store::{FolderLock, Migration, Sqlite, StoreError};

use crate::child::Other;
use crate::{ROWS, insert, keys};

#[tokio::test]
async fn processes_that_open_a_new_file_at_once_all_succeed() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let folder = tempfile::tempdir_in(dir.path()).unwrap();
        let others: Vec<_> = (0..6).map(|_| Other::start("opens", folder.path())).collect();
        let ours = Sqlite::open(&folder.path().join("store.db"), &[ROWS]).unwrap();
        assert!(others.into_iter().all(Other::ends_well));
        ours.write(insert(1)).await.unwrap();
    }
}

#[test]
fn threads_that_open_a_new_file_at_once_all_succeed() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("store.db");
        let together = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    together.wait();
                    Sqlite::open(&file, &[ROWS]).unwrap();
                });
            }
        });
    }
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_refused_and_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.db");
    let newer = [ROWS, Migration { version: 2, sql: "ALTER TABLE rows ADD COLUMN w INTEGER", ..ROWS }];
    let store = Sqlite::open(&file, &newer).unwrap();
    store.write(insert(1)).await.unwrap();
    store.close().await;
    let refused = Sqlite::open(&file, &[ROWS]).unwrap_err();
    assert!(matches!(refused, StoreError::Newer { found: 2, known: 1, .. }), "{refused}");
    assert!(refused.to_string().starts_with("rows in "), "{refused}");
    assert_eq!(keys(&Sqlite::open(&file, &newer).unwrap()).await, [1]);
}

#[tokio::test]
async fn what_is_no_database_or_damaged_is_told_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.db");
    std::fs::write(&file, "not a database at all, ".repeat(400)).unwrap();
    let refused = Sqlite::open(&file, &[ROWS]).unwrap_err();
    assert!(matches!(refused, StoreError::Unusable { .. }), "{refused}");
    assert!(refused.to_string().contains("not a SQLite database") && !refused.to_string().contains('\n'));

    std::fs::remove_file(&file).unwrap();
    let store = Sqlite::open(&file, &[ROWS]).unwrap();
    for k in 0..2_000 {
        store.write(insert(k)).await.unwrap();
    }
    store.close().await;
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100..].fill(0xa5);
    std::fs::write(&file, bytes).unwrap();
    let refused = Sqlite::open(&file, &[ROWS]).unwrap_err();
    assert!(refused.to_string().contains("damaged"), "{refused}");

    let refused = Sqlite::open(dir.path(), &[ROWS]).unwrap_err();
    assert!(matches!(refused, StoreError::Unusable { .. }), "a folder in place of the file: {refused}");
}

#[tokio::test]
async fn only_the_owner_can_read_what_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a/b");
    let file = folder.join("store.db");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let store = Sqlite::open(&file, &[ROWS]).unwrap();
    store.write(insert(1)).await.unwrap();
    assert_eq!((mode(&folder), mode(folder.parent().unwrap())), (0o700, 0o700));
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
}

#[test]
fn a_folder_is_free_again_when_its_holder_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = Other::start("holds_the_folder", dir.path());
    other.hear().expect("it holds the folder");
    let refused = FolderLock::take(dir.path()).unwrap_err();
    assert!(matches!(&refused, StoreError::InUse { pid, .. } if *pid == other.pid().to_string()), "{refused}");
    other.kill();
    assert!(!other.ends_well());
    FolderLock::take(dir.path()).unwrap();
}
