//! Blobs at a manager, reached over HTTP. What it promises is the trait's; the bytes are kept behind the manager.

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;

use mutirao_core::blobs::{BLOB_LEN_HEADER, BlobError, Blobs};

use crate::error::ClientError;
use crate::http::{Call, Client};
use crate::target::Target;

/// Bytes in one request. The server takes no more.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// [`Blobs`] over `PUT` and `GET /v1/blobs/{key}`.
#[derive(Clone)]
pub struct HttpBlobs(Client);

impl HttpBlobs {
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

#[async_trait]
impl Blobs for HttpBlobs {
    async fn append(&self, key: &str, offset: u64, bytes: Bytes) -> Result<u64, BlobError> {
        let mut at = 0;
        loop {
            let chunk = bytes.slice(at..bytes.len().min(at + CHUNK_BYTES_MAX));
            let end = at + chunk.len();
            let target = target(key)?.arg("offset", Some(offset + at as u64));
            let answer = self.0.fetch_bytes(Call::put(target, chunk)).await;
            let (headers, _) = match answer {
                Ok(answer) => answer,
                Err(error) => return Err(self.explain(key, error).await),
            };
            at = end;
            if at == bytes.len() {
                let missing = || BlobError::Refused(format!("the answer lacks {BLOB_LEN_HEADER}"));
                return len_in(&headers).ok_or_else(missing);
            }
        }
    }

    async fn read(&self, key: &str, offset: u64, limit: usize) -> Result<Bytes, BlobError> {
        let limit = limit.min(CHUNK_BYTES_MAX);
        let target = target(key)?.arg("offset", Some(offset)).arg("limit", Some(limit));
        self.0.fetch_bytes(Call::get(target)).await.map(|(_, bytes)| bytes).map_err(plain)
    }

    async fn len(&self, key: &str) -> Result<Option<u64>, BlobError> {
        let target = target(key)?.arg("limit", Some(0));
        self.0.fetch_bytes(Call::get(target)).await.map(|(headers, _)| len_in(&headers)).map_err(plain)
    }

    async fn remove_all(&self, prefix: &str) -> Result<(), BlobError> {
        // What belongs to a job goes when the manager removes the job; nobody else may.
        Err(BlobError::Refused(format!("{prefix} can only be removed by the manager")))
    }
}

impl HttpBlobs {
    async fn explain(&self, key: &str, error: ClientError) -> BlobError {
        if error.status() != Some(409) {
            return plain(error);
        }
        match self.len(key).await {
            Ok(len) => BlobError::Gap { key: key.into(), len: len.unwrap_or(0) },
            Err(error) => error,
        }
    }
}

fn target(key: &str) -> Result<Target, BlobError> {
    let plain = |part: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        !part.is_empty() && part != ".." && part != "." && part.bytes().all(known)
    };
    if key.split('/').all(plain) {
        Ok(Target::new(&format!("/v1/blobs/{key}")))
    } else {
        Err(BlobError::BadKey { key: key.into() })
    }
}

fn len_in(headers: &HeaderMap) -> Option<u64> {
    headers.get(BLOB_LEN_HEADER)?.to_str().ok()?.parse().ok()
}

fn plain(error: ClientError) -> BlobError {
    if error.is_away() { BlobError::Unreachable(error.to_string()) } else { BlobError::Refused(error.to_string()) }
}
