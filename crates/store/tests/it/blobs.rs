//! Files as blobs: the common suite, a model, and what is particular to files.

use std::collections::BTreeMap;

use bytes::Bytes;
use mutirao_core::blobs::{BlobError, Blobs};
use mutirao_store::{FileBlobs, suite};
use proptest::prelude::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_pass_the_suite() {
    let dir = tempfile::tempdir().unwrap();
    suite::blobs_suite(&FileBlobs::open(&dir.path().join("blobs")).unwrap()).await;
    let left = std::fs::read_dir(dir.path().join("blobs")).unwrap().count();
    assert_eq!(left, 0, "no empty folders stay behind");
}

#[tokio::test]
async fn a_key_cannot_be_the_folder_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = FileBlobs::open(dir.path()).unwrap();
    let x = Bytes::from_static(b"x");
    blobs.append("a/b", 0, x.clone()).await.unwrap();
    assert!(matches!(blobs.append("a", 0, x.clone()).await, Err(BlobError::BadKey { .. })));
    assert!(matches!(blobs.append("a/b/c", 0, x).await, Err(BlobError::BadKey { .. })));
    assert_eq!((blobs.len("a").await, blobs.read("a/b/c", 0, 1).await), (Ok(None), Ok(Bytes::new())));
    blobs.remove_all("a/b/").await.unwrap();
    assert_eq!(blobs.len("a/b").await, Ok(Some(1)), "the blob a/b is not under a/b/");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_and_removals_at_once_never_fail() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = FileBlobs::open(dir.path()).unwrap();
    let appending = tokio::spawn({
        let blobs = blobs.clone();
        async move {
            for n in 0..300 {
                blobs.append(&format!("a/b/c/{n}"), 0, Bytes::from_static(b"x")).await.unwrap();
            }
        }
    });
    while !appending.is_finished() {
        blobs.remove_all("a/b/").await.unwrap();
    }
    appending.await.unwrap();
}

#[tokio::test]
async fn a_removal_that_was_cut_short_is_finished_when_opened() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("~removed-7/b")).unwrap();
    std::fs::write(dir.path().join("~removed-7/b/c"), "x").unwrap();
    let blobs = FileBlobs::open(dir.path()).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    blobs.append("a/b", 0, Bytes::from_static(b"x")).await.unwrap();
    blobs.remove_all("a/").await.unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    /// `back` bytes before the end, or past it when negative.
    Append {
        key: usize,
        back: i64,
        bytes: Vec<u8>,
    },
    Read {
        key: usize,
        offset: u64,
        limit: usize,
    },
    RemoveAll {
        prefix: usize,
    },
}

const KEYS: [&str; 4] = ["a/x", "a/y", "a/b/x", "c"];
const PREFIXES: [&str; 3] = ["a/", "a/b/", "c/"];

fn step() -> impl Strategy<Value = Step> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        6 => (0..KEYS.len(), -3i64..30, bytes).prop_map(|(key, back, bytes)| Step::Append { key, back, bytes }),
        3 => (0..KEYS.len(), 0u64..120, 0usize..120).prop_map(|(key, offset, limit)| Step::Read { key, offset, limit }),
        1 => (0..PREFIXES.len()).prop_map(|prefix| Step::RemoveAll { prefix }),
    ]
}

async fn check(blobs: &FileBlobs, model: &mut BTreeMap<&str, Vec<u8>>, step: Step) -> Result<(), TestCaseError> {
    match step {
        Step::Append { key, back, bytes } => {
            let key = KEYS[key];
            let len = model.get(key).map_or(0, Vec::len) as u64;
            let offset = len.saturating_add_signed(-back);
            let answer = blobs.append(key, offset, bytes.clone().into()).await;
            if offset > len {
                prop_assert_eq!(answer, Err(BlobError::Gap { key: key.into(), len }));
            } else {
                let kept = model.entry(key).or_default();
                kept.extend(bytes.iter().skip((len - offset) as usize));
                prop_assert_eq!(answer, Ok(kept.len() as u64));
            }
        }
        Step::Read { key, offset, limit } => {
            let kept = model.get(KEYS[key]).map(Vec::as_slice).unwrap_or_default();
            let expected: Vec<u8> = kept.iter().skip(offset as usize).take(limit).copied().collect();
            prop_assert_eq!(blobs.read(KEYS[key], offset, limit).await, Ok(expected.into()));
        }
        Step::RemoveAll { prefix } => {
            model.retain(|key, _| !key.starts_with(PREFIXES[prefix]));
            prop_assert_eq!(blobs.remove_all(PREFIXES[prefix]).await, Ok(()));
        }
    }
    for key in KEYS {
        prop_assert_eq!(blobs.len(key).await, Ok(model.get(key).map(|kept| kept.len() as u64)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_steps_leave_the_files_as_the_model_has_them(steps in proptest::collection::vec(step(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let blobs = FileBlobs::open(dir.path()).unwrap();
            let mut model = BTreeMap::new();
            for step in steps {
                check(&blobs, &mut model, step).await?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}
