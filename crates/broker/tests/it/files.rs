//! Logs over restarts, torn tails and damage.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use mutirao_broker::{Broker, BrokerError, Limits, Memory};
use mutirao_testkit::disk::tmpfs;

fn limits() -> Limits {
    Limits { segment_bytes: 2_000, ..Limits::default() }
}

async fn append(folder: &Path, records: std::ops::Range<u64>) {
    let broker = Memory::new(Some(folder.into()), limits());
    for n in records {
        assert_eq!(broker.append("log", vec![body(n)]).await, Ok(n));
    }
}

fn body(n: u64) -> Bytes {
    format!("record {n}, with something more to fill the segment").into()
}

async fn read_all(folder: &Path) -> Result<Vec<Bytes>, BrokerError> {
    let broker = Memory::new(Some(folder.into()), limits());
    let (first, next) = broker.extent("log").await?;
    let mut bodies = Vec::new();
    while first + (bodies.len() as u64) < next {
        bodies.extend(broker.read("log", first + bodies.len() as u64, 7).await?.into_iter().map(|record| record.body));
    }
    Ok(bodies)
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_log_is_all_there_after_a_restart_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    append(folder.path(), 0..100).await;
    append(folder.path(), 100..200).await;
    assert!(segments(folder.path()).len() > 3, "it spans several segments");
    assert_eq!(read_all(folder.path()).await, Ok((0..200).map(body).collect()));
}

#[tokio::test]
async fn a_torn_tail_is_cut_off_and_everything_before_it_stays() {
    let folder = tempfile::tempdir().unwrap();
    append(folder.path(), 0..50).await;
    let last = segments(folder.path()).pop().unwrap();
    let whole = std::fs::read(&last).unwrap();
    for cut in 1..40 {
        std::fs::write(&last, &whole[..whole.len() - cut]).unwrap();
        assert_eq!(read_all(folder.path()).await, Ok((0..49).map(body).collect()), "cut by {cut}");
    }
    append(folder.path(), 49..60).await;
    assert_eq!(read_all(folder.path()).await, Ok((0..60).map(body).collect()));
}

#[tokio::test]
async fn damage_is_an_error_that_names_the_file_and_loses_nothing_silently() {
    let folder = tempfile::tempdir().unwrap();
    append(folder.path(), 0..50).await;
    for (which, file) in segments(folder.path()).into_iter().enumerate() {
        let whole = std::fs::read(&file).unwrap();
        let mut damaged = whole.clone();
        damaged[30] ^= 1;
        std::fs::write(&file, &damaged).unwrap();
        match read_all(folder.path()).await {
            Err(BrokerError::Log { name, why }) => {
                assert!(name == "log" && why.contains(file.file_name().unwrap().to_str().unwrap()), "{why}");
            }
            other => panic!("damage in segment {which} gave {other:?}"),
        }
        std::fs::write(&file, &whole).unwrap();
    }
    assert_eq!(read_all(folder.path()).await, Ok((0..50).map(body).collect()), "mended, it is read again");
}

#[tokio::test]
async fn damage_under_an_open_log_is_noticed_by_the_read() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Memory::new(Some(folder.path().into()), Limits::default());
    broker.append("log", (0..50).map(body).collect()).await.unwrap();
    // What was written a moment ago is not asked of the disk.
    let large = Bytes::from(vec![1; 10 << 20]);
    for _ in 0..4 {
        broker.append("log", vec![large.clone()]).await.unwrap();
    }
    let file = segments(folder.path()).pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert!(matches!(broker.read("log", 0, 50).await, Err(BrokerError::Log { .. })));
}

#[tokio::test]
async fn large_and_small_records_read_from_any_offset() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Memory::new(Some(folder.path().into()), Limits::default());
    let sizes = [0, 1, 300_000, 5, 70_000, 1_000_000, 2, 65_536, 262_144, 3];
    let bodies: Vec<Bytes> = sizes.iter().enumerate().map(|(n, size)| vec![n as u8; *size].into()).collect();
    broker.append("log", bodies.clone()).await.unwrap();
    for from in 0..sizes.len() {
        let mut read = Vec::new();
        while from + read.len() < sizes.len() {
            let more = broker.read("log", (from + read.len()) as u64, 3).await.unwrap();
            assert!(!more.is_empty() && more.len() <= 3);
            read.extend(more.into_iter().map(|record| record.body));
        }
        assert_eq!(read, bodies[from..], "from {from}");
    }
}

#[tokio::test]
async fn a_batch_of_records_too_large_to_travel_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Memory::new(Some(folder.path().into()), Limits::default());
    let large = Bytes::from(vec![0; 9 << 20]);
    assert!(matches!(broker.append("log", vec![large.clone(); 2]).await, Err(BrokerError::TooLarge { .. })));
    assert_eq!(broker.append("log", vec![large]).await, Ok(0));
}

#[tokio::test]
async fn without_a_folder_there_are_no_logs() {
    let broker = Memory::new(None, Limits::default());
    assert!(matches!(broker.append("log", vec![body(0)]).await, Err(BrokerError::Log { .. })));
}

#[tokio::test]
async fn trimming_removes_the_files_of_which_nothing_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Memory::new(Some(folder.path().into()), limits());
    for n in 0..200 {
        broker.append("log", vec![body(n)]).await.unwrap();
    }
    let before = segments(folder.path()).len();
    broker.trim("log", 100).await.unwrap();
    let (first, next) = broker.extent("log").await.unwrap();
    assert!((60..=100).contains(&first) && next == 200, "{first} to {next}");
    assert!(segments(folder.path()).len() < before / 2 + 2);
    let gone = broker.read("log", first - 1, 1).await;
    assert_eq!(gone, Err(BrokerError::NoSuchOffset { name: "log".into(), offset: first - 1, first, next }));
    broker.trim("log", 200).await.unwrap();
    assert_eq!(segments(folder.path()).len(), 1, "the last says where the log goes on");
    drop(broker);
    append(folder.path(), 200..201).await;
}

#[tokio::test]
async fn a_log_that_is_trimmed_close_behind_its_end_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Memory::new(Some(folder.path().into()), Limits::default());
    let large = Bytes::from(vec![7; 1 << 20]);
    for n in 0..40 {
        assert_eq!(broker.append("log", vec![large.clone()]).await, Ok(n));
        broker.trim("log", n + 1).await.unwrap();
    }
    let bytes: u64 = segments(folder.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes < 12 << 20, "{bytes} bytes are left of which nothing is needed");
}

#[tokio::test]
async fn a_forgotten_log_leaves_no_file_and_neither_does_one_that_was_only_asked_after() {
    let folder = tempfile::tempdir().unwrap();
    append(folder.path(), 0..50).await;
    // As a crash in the middle of it leaves it.
    std::fs::create_dir(folder.path().join("log~")).unwrap();
    std::fs::write(folder.path().join("log~/00000000000000000000.log"), b"rest").unwrap();
    let broker = Memory::new(Some(folder.path().into()), limits());
    assert_eq!(broker.extent("other").await, Ok((0, 0)));
    broker.forget("log").await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(broker.append("log", vec![body(0)]).await, Ok(0));
    drop(broker);
    assert_eq!(read_all(folder.path()).await, Ok(vec![body(0)]));
}

/// Files of this folder that this process has open.
fn open_files(folder: &Path) -> usize {
    let here = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(here);
    open.filter(|path| path.starts_with(folder)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_logs_keep_a_bounded_number_of_files_open_and_removed_ones_none() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Memory::new(Some(folder.path().into()), Limits::default());
    for round in 0..2 {
        for n in 0..500 {
            assert_eq!(broker.append(&format!("streams.{n}"), vec![body(n)]).await, Ok(round));
        }
    }
    assert!((1..=256).contains(&open_files(folder.path())), "{} are open", open_files(folder.path()));
    for n in 0..500 {
        assert_eq!(broker.read(&format!("streams.{n}"), 0, 9).await.unwrap()[0].body, body(n));
        broker.forget(&format!("streams.{n}")).await.unwrap();
    }
    assert_eq!(open_files(folder.path()), 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn segments_that_went_are_not_kept_open() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Memory::new(Some(folder.path().into()), limits());
    for n in 0..200 {
        broker.append("log", vec![body(n)]).await.unwrap();
    }
    broker.trim("log", 200).await.unwrap();
    assert_eq!(open_files(folder.path()), 1);
}

#[tokio::test]
async fn on_a_full_disk_an_append_is_refused_with_the_reason_and_goes_on_when_there_is_room() {
    let Some(disk) = tmpfs("6m") else { return };
    let (ballast, folder) = (disk.path().join("ballast"), disk.path().join("logs"));
    std::fs::write(&ballast, vec![0; 2 << 20]).unwrap();
    let limits = Limits { segment_bytes: 1 << 20, ..Limits::default() };
    let broker = Memory::new(Some(folder.clone()), limits);
    let large = |n: u8| Bytes::from(vec![n; 300_000]);
    let mut kept = 0;
    let full = loop {
        match broker.append("log", vec![large(kept)]).await {
            Ok(offset) => assert_eq!(offset, u64::from(kept)),
            Err(error) => break error,
        }
        kept += 1;
        assert!(kept < 30, "the disk never fills");
    };
    assert!(matches!(&full, BrokerError::Log { name, why } if name == "log" && why.contains("No space")), "{full}");
    assert!(broker.append("other", vec![large(0)]).await.is_err(), "one that has no file yet neither");
    // What is there can be read, and waited for.
    assert_eq!(broker.extent("log").await, Ok((0, kept.into())));
    assert_eq!(broker.read("log", 0, 1).await.unwrap()[0].body, large(0));
    let waiting = tokio::spawn({
        let broker = broker.clone();
        async move { broker.read("log", kept.into(), 1).await }
    });
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(broker.append("log", vec![large(kept)]).await, Ok(kept.into()));
    assert_eq!(waiting.await.unwrap().unwrap()[0].body, large(kept));
    assert_eq!(broker.append("other", vec![large(1)]).await, Ok(0));
    drop(broker);
    let again = Memory::new(Some(folder), limits);
    assert_eq!(again.extent("log").await, Ok((0, u64::from(kept) + 1)));
    for n in 0..=kept {
        assert_eq!(again.read("log", n.into(), 1).await.unwrap()[0].body, large(n));
    }
}
