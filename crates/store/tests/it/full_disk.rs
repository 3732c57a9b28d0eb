//! A disk without space: clear errors, nothing lost, and on it goes when there is space again.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use bytes::Bytes;
use mutirao_core::blobs::{BlobError, Blobs};
use mutirao_store::{FileBlobs, Sqlite, StoreError};

use crate::{ROWS, keys};

/// A disk of its own, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None, with a notice, where we may not mount.
    fn mount(at: PathBuf, size: &str) -> Option<SmallDisk> {
        std::fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "store-test"]).arg(&at).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(SmallDisk(at));
        }
        println!("SKIPPED: a full disk cannot be tried here, as mounting a tmpfs takes root");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn insert_large(store: &Sqlite, k: i64) -> Result<(), StoreError> {
    let insert = move |sql: &rusqlite::Connection| {
        sql.prepare_cached("INSERT INTO rows VALUES (?1, zeroblob(20000))")?.execute([k]).map(|_| ())
    };
    store.write(insert).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_and_is_got_over() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path().join("disk"), "6m") else { return };
    let ballast = disk.0.join("ballast");
    std::fs::write(&ballast, vec![0; 2 << 20]).unwrap();
    let file = disk.0.join("store.db");
    let store = Sqlite::open(&file, &[ROWS]).unwrap();

    let (mut answered, mut refused) = (Vec::new(), 0);
    for batch in 0..100 {
        let writes: Vec<_> = (0..8)
            .map(|n| {
                let (store, k) = (store.clone(), batch * 8 + n);
                tokio::spawn(async move { (k, insert_large(&store, k).await) })
            })
            .collect();
        for write in writes {
            match write.await.unwrap() {
                (k, Ok(())) => answered.push(k),
                (_, Err(StoreError::DiskFull { path })) => {
                    assert_eq!(path, file.display().to_string());
                    refused += 1;
                }
                (_, Err(other)) => panic!("{other}"),
            }
        }
    }
    answered.sort_unstable();
    assert!(answered.len() > 20 && refused > 20, "{} answered, {refused} refused", answered.len());
    assert_eq!(keys(&store).await, answered, "while the disk is full");

    std::fs::remove_file(&ballast).unwrap();
    insert_large(&store, 10_000).await.unwrap();
    answered.push(10_000);
    store.close().await;
    let store = Sqlite::open(&file, &[ROWS]).unwrap();
    assert_eq!(keys(&store).await, answered, "after opening again");
    store.close().await;
}

#[tokio::test]
async fn opening_on_a_full_disk_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path().join("disk"), "1m") else { return };
    let _ = std::fs::write(disk.0.join("ballast"), vec![0; 2 << 20]);
    let refused = Sqlite::open(&disk.0.join("store.db"), &[ROWS]).unwrap_err();
    assert!(matches!(refused, StoreError::DiskFull { .. }), "{refused}");
    std::fs::remove_file(disk.0.join("ballast")).unwrap();
    Sqlite::open(&disk.0.join("store.db"), &[ROWS]).unwrap().close().await;
}

#[tokio::test]
async fn an_append_that_found_no_space_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path().join("disk"), "1m") else { return };
    let ballast = disk.0.join("ballast");
    std::fs::write(&ballast, vec![0; 512 << 10]).unwrap();
    let blobs = FileBlobs::open(&disk.0.join("blobs")).unwrap();
    let bytes: Bytes = (0..700 << 10).map(|n: u32| n as u8).collect();
    let refused = blobs.append("a/log", 0, bytes.clone()).await.unwrap_err();
    assert!(matches!(&refused, BlobError::Unreachable(why) if why.starts_with("the disk is full")), "{refused}");
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(blobs.append("a/log", 0, bytes.clone()).await, Ok(700 << 10));
    assert_eq!(blobs.read("a/log", 0, 1 << 20).await.unwrap(), bytes);
}
