//! Large byte strings: task logs, later snapshots and modules. They grow at the end, are read from anywhere, and go with
//! what they belong to. Files or a database behind the manager; plain HTTP for whoever is elsewhere.

use async_trait::async_trait;
use bytes::Bytes;

use crate::Attempt;
use crate::id::TaskKey;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// An append left a hole; send again from `len`.
    #[error("the blob {key} ends at {len}")]
    Gap { key: String, len: u64 },
    #[error("\"{key}\" is not a blob's name")]
    BadKey { key: String },
    #[error("blobs are refused: {0}")]
    Refused(String),
    /// May work later.
    #[error("blobs cannot be reached: {0}")]
    Unreachable(String),
}

/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Bytes of one part of a key: what a file system takes as a name.
pub const KEY_PART_BYTES_MAX: usize = 255;

/// Refuses what is not a key. Every implementation asks this first, so that none can be led out of its folder.
pub fn check_key(key: &str) -> Result<(), BlobError> {
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let fits = |part: &str| (1..=KEY_PART_BYTES_MAX).contains(&part.len()) && part != "." && part != "..";
    if key.len() <= KEY_BYTES_MAX && key.split('/').all(|part| fits(part) && plain(part)) {
        Ok(())
    } else {
        Err(BlobError::BadKey { key: key.chars().take(64).collect() })
    }
}

/// Refuses what is not a key followed by a `/`.
pub fn check_prefix(prefix: &str) -> Result<(), BlobError> {
    match prefix.strip_suffix('/') {
        Some(key) => check_key(key),
        None => Err(BlobError::BadKey { key: prefix.chars().take(64).collect() }),
    }
}

/// Keys are `/`-separated parts of letters, digits, `-`, `_` and `.`, never `.` or `..` ([`check_key`]). No key is the
/// folder of another: where there is `a/b` there is no `a`.
#[async_trait]
pub trait Blobs: Send + Sync + 'static {
    /// Writes `bytes` at `offset`, which must not lie past the end, and answers with the new length. Sending again what
    /// is already there changes nothing, so an append that got no answer can be repeated.
    async fn append(&self, key: &str, offset: u64, bytes: Bytes) -> Result<u64, BlobError>;

    /// At most `limit` bytes from `offset`; empty at the end and for a blob that does not exist.
    async fn read(&self, key: &str, offset: u64, limit: usize) -> Result<Bytes, BlobError>;

    async fn len(&self, key: &str) -> Result<Option<u64>, BlobError>;

    /// Removes every blob whose key starts with `prefix`, which ends in `/`.
    async fn remove_all(&self, prefix: &str) -> Result<(), BlobError>;
}

/// The header in which answers about a blob over HTTP tell its length: `PUT` (204, or 409 when it would leave a hole)
/// and `GET` (200). Absent when the blob does not exist.
pub const BLOB_LEN_HEADER: &str = "mutirao-blob-len";

/// Which of a task's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogStream {
    Stdout,
    Stderr,
}

impl LogStream {
    pub fn as_str(self) -> &'static str {
        match self {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
        }
    }
}

/// Where one stream of one attempt is kept: `logs/j7f3k9q2/17/3-1/stdout`.
pub fn log_key(task: TaskKey, attempt: Attempt, stream: LogStream) -> String {
    format!("logs/{}/{}/{attempt}/{}", task.job, task.index, stream.as_str())
}
