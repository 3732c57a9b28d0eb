//! What every implementation of a storage trait must do, whatever is behind it. Tests call these with their own
//! implementation; a broken promise panics. Also [`schema`]: a corner of a shared PostgreSQL for one test.

pub mod schema;

use bytes::Bytes;
use mutirao_core::blobs::{BlobError, Blobs};

/// Runs the whole suite for [`Blobs`]. Works under the prefix `suite/`, which it empties first and last.
pub async fn blobs_suite(blobs: &dyn Blobs) {
    blobs.remove_all("suite/").await.unwrap();
    a_blob_grows_at_its_end_and_reads_from_anywhere(blobs).await;
    an_append_may_be_repeated_and_may_overlap(blobs).await;
    a_hole_is_refused_and_tells_the_length(blobs).await;
    what_is_not_there_is_empty(blobs).await;
    bad_keys_are_refused(blobs).await;
    appends_to_one_blob_at_once_leave_one_of_them(blobs).await;
    removal_takes_what_is_under_the_prefix_and_nothing_else(blobs).await;
    a_key_is_not_the_folder_of_another(blobs).await;
    large_blobs_come_back_whole_in_pieces_of_any_size(blobs).await;
    blobs.remove_all("suite/").await.unwrap();
}

async fn all(blobs: &dyn Blobs, key: &str) -> Bytes {
    blobs.read(key, 0, 1 << 20).await.unwrap()
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn a_blob_grows_at_its_end_and_reads_from_anywhere(blobs: &dyn Blobs) {
    let key = "suite/grow/a.log";
    assert_eq!(blobs.append(key, 0, text("hello ")).await, Ok(6));
    assert_eq!(blobs.append(key, 6, text("world")).await, Ok(11));
    assert_eq!(all(blobs, key).await, "hello world");
    assert_eq!(blobs.read(key, 4, 3).await.unwrap(), "o w");
    assert_eq!(blobs.read(key, 0, 0).await.unwrap(), "");
    assert_eq!(blobs.len(key).await, Ok(Some(11)));
}

async fn an_append_may_be_repeated_and_may_overlap(blobs: &dyn Blobs) {
    let key = "suite/again";
    for _ in 0..2 {
        assert_eq!(blobs.append(key, 0, text("abc")).await, Ok(3));
    }
    assert_eq!(blobs.append(key, 1, text("bcde")).await, Ok(5), "only the new end is added");
    assert_eq!(blobs.append(key, 0, text("XY")).await, Ok(5), "what is there stays");
    assert_eq!(all(blobs, key).await, "abcde");
    assert_eq!(blobs.append(key, 5, Bytes::new()).await, Ok(5));
}

async fn a_hole_is_refused_and_tells_the_length(blobs: &dyn Blobs) {
    let key = "suite/hole";
    let gap = |len| Err(BlobError::Gap { key: key.into(), len });
    assert_eq!(blobs.append(key, 1, text("x")).await, gap(0));
    assert_eq!(blobs.len(key).await, Ok(None), "a refused append makes nothing");
    blobs.append(key, 0, text("abc")).await.unwrap();
    assert_eq!(blobs.append(key, 4, text("x")).await, gap(3));
    assert_eq!(blobs.append(key, u64::MAX, text("x")).await, gap(3));
    assert_eq!(all(blobs, key).await, "abc");
}

async fn what_is_not_there_is_empty(blobs: &dyn Blobs) {
    assert_eq!(all(blobs, "suite/none").await, "");
    assert_eq!(blobs.len("suite/none").await, Ok(None));
    blobs.append("suite/short", 0, text("ab")).await.unwrap();
    assert_eq!(blobs.read("suite/short", 2, 10).await.unwrap(), "");
    assert_eq!(blobs.read("suite/short", u64::MAX, usize::MAX).await.unwrap(), "");
    blobs.remove_all("suite/none/").await.unwrap();
}

async fn bad_keys_are_refused(blobs: &dyn Blobs) {
    let long = "x".repeat(300);
    for key in
        ["", "/", "/etc/passwd", "suite/../../x", "..", "suite/./x", "suite//x", "suite/", "a b", "ü", "a\0b", &long]
    {
        let refused = blobs.append(key, 0, text("x")).await;
        assert!(matches!(refused, Err(BlobError::BadKey { .. })), "{key:?}: {refused:?}");
        assert!(matches!(blobs.read(key, 0, 1).await, Err(BlobError::BadKey { .. })), "{key:?}");
        assert!(matches!(blobs.len(key).await, Err(BlobError::BadKey { .. })), "{key:?}");
    }
    for prefix in ["", "/", "suite", "../", "suite/../", "suite//"] {
        assert!(matches!(blobs.remove_all(prefix).await, Err(BlobError::BadKey { .. })), "{prefix:?}");
    }
}

async fn appends_to_one_blob_at_once_leave_one_of_them(blobs: &dyn Blobs) {
    // Large enough that each takes a while, so that they meet.
    let (long, short) = (Bytes::from(vec![b'a'; 300_000]), Bytes::from(vec![b'b'; 200_000]));
    for round in 0..50 {
        let key = format!("suite/race/{round}");
        let (a, b) = tokio::join!(blobs.append(&key, 0, long.clone()), blobs.append(&key, 0, short.clone()));
        let lens = (a.unwrap(), b.unwrap());
        let kept = all(blobs, &key).await;
        let long_first = kept == long && lens == (300_000, 300_000);
        let short_first = kept[..200_000] == short && kept[200_000..] == long[200_000..] && lens == (300_000, 200_000);
        assert!(long_first || short_first, "round {round}: neither came first, {lens:?}");
    }
}

async fn removal_takes_what_is_under_the_prefix_and_nothing_else(blobs: &dyn Blobs) {
    for key in ["suite/job/1/out", "suite/job/2/out", "suite/jobs/1", "suite/job.x"] {
        blobs.append(key, 0, text("x")).await.unwrap();
    }
    blobs.remove_all("suite/job/").await.unwrap();
    for (key, len) in
        [("suite/job/1/out", None), ("suite/job/2/out", None), ("suite/jobs/1", Some(1)), ("suite/job.x", Some(1))]
    {
        assert_eq!(blobs.len(key).await, Ok(len), "{key}");
    }
    assert_eq!(blobs.append("suite/job/1/out", 0, text("new")).await, Ok(3), "a name may be used again");
    assert_eq!(all(blobs, "suite/job/1/out").await, "new");
}

async fn a_key_is_not_the_folder_of_another(blobs: &dyn Blobs) {
    blobs.append("suite/f/a/b", 0, text("x")).await.unwrap();
    for key in ["suite/f/a", "suite/f/a/b/c"] {
        let refused = blobs.append(key, 0, text("x")).await;
        assert!(matches!(refused, Err(BlobError::BadKey { .. })), "{key}: {refused:?}");
        assert_eq!(blobs.len(key).await, Ok(None), "{key}");
    }
    blobs.remove_all("suite/f/a/b/").await.unwrap();
    assert_eq!(blobs.len("suite/f/a/b").await, Ok(Some(1)), "the blob is not under its own name");
}

async fn large_blobs_come_back_whole_in_pieces_of_any_size(blobs: &dyn Blobs) {
    let key = "suite/large";
    let whole: Vec<u8> = (0..900_001u32).map(|n| (n % 251) as u8).collect();
    for (n, part) in whole.chunks(350_000).enumerate() {
        blobs.append(key, n as u64 * 350_000, Bytes::copy_from_slice(part)).await.unwrap();
    }
    for piece in [99_991, 262_144, 1 << 20] {
        let mut found = Vec::new();
        while found.len() < whole.len() {
            let part = blobs.read(key, found.len() as u64, piece).await.unwrap();
            assert!(!part.is_empty() && part.len() <= piece, "{} bytes at {}", part.len(), found.len());
            found.extend_from_slice(&part);
        }
        assert!(found == whole, "in pieces of {piece}");
    }
}
