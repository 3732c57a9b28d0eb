//! Blobs in the database, so that every manager sees the same ones. A blob is a row with its length and the chunks it
//! was appended in; the row is locked while it grows.
//!
//! What is promised is more than files do: an append that was answered survives the death of the database as well.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use mutirao_core::blobs::{BlobError, Blobs, check_key, check_prefix};

use super::{Ask, Postgres, Transaction};
use crate::blobs::READ_BYTES_MAX;
use crate::{Migration, StoreError};

pub const MIGRATIONS: &[Migration] =
    &[Migration { component: "blobs", version: 1, sql: include_str!("001_blobs.sql") }];

/// Bytes of one chunk: what a read must fetch at least.
pub(crate) const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Blobs removed in one transaction: bounds what others wait for.
const REMOVED_AT_ONCE: i64 = 500;

/// [`Blobs`] in a database that has had [`MIGRATIONS`] applied.
#[derive(Clone, Debug)]
pub struct PgBlobs(pub Postgres);

impl From<StoreError> for BlobError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Postgres(why) => BlobError::Refused(why),
            other => BlobError::Unreachable(other.to_string()),
        }
    }
}

#[async_trait]
impl Blobs for PgBlobs {
    async fn append(&self, key: &str, offset: u64, bytes: Bytes) -> Result<u64, BlobError> {
        check_key(key)?;
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let Some((id, len)) = locked(&tx, key, offset).await? else {
            return Err(BlobError::Gap { key: key.into(), len: 0 });
        };
        if offset > len {
            return Err(BlobError::Gap { key: key.into(), len });
        }
        let known = usize::try_from(len - offset).unwrap_or(usize::MAX).min(bytes.len());
        let grown = grow(&tx, id, len, &bytes[known..]).await?;
        tx.commit().await?;
        Ok(grown)
    }

    async fn read(&self, key: &str, offset: u64, limit: usize) -> Result<Bytes, BlobError> {
        check_key(key)?;
        let limit = limit.min(READ_BYTES_MAX);
        let Ok(from) = i64::try_from(offset) else { return Ok(Bytes::new()) };
        let end = from.saturating_add(limit as i64);
        let connection = self.0.connection().await?;
        let rows = connection
            .rows(
                "SELECT c.at, c.body FROM blobs b JOIN blob_chunks c ON c.blob = b.id
                 WHERE b.key = $1 AND c.at < $3
                   AND c.at >= coalesce((SELECT max(f.at) FROM blob_chunks f WHERE f.blob = b.id AND f.at <= $2), 0)
                 ORDER BY c.at",
                &[&key, &from, &end],
            )
            .await?;
        let mut found = BytesMut::new();
        for row in rows {
            let (at, body): (i64, &[u8]) = (get(&row, 0)?, get(&row, 1)?);
            let skip = usize::try_from(from - at).unwrap_or(0).min(body.len());
            let take = (limit - found.len()).min(body.len() - skip);
            found.extend_from_slice(&body[skip..skip + take]);
        }
        Ok(found.freeze())
    }

    async fn len(&self, key: &str) -> Result<Option<u64>, BlobError> {
        check_key(key)?;
        let row = self.0.connection().await?.row("SELECT len FROM blobs WHERE key = $1", &[&key]).await?;
        row.map(|row| Ok(get::<i64>(&row, 0)? as u64)).transpose()
    }

    async fn remove_all(&self, prefix: &str) -> Result<(), BlobError> {
        check_prefix(prefix)?;
        let connection = self.0.connection().await?;
        loop {
            let removed = connection
                .run(
                    "DELETE FROM blobs WHERE id IN
                       (SELECT id FROM blobs WHERE key > $1 AND key < $2 ORDER BY id LIMIT $3 FOR UPDATE)",
                    &[&prefix, &past(prefix), &REMOVED_AT_ONCE],
                )
                .await?;
            if removed == 0 {
                return Ok(());
            }
        }
    }
}

/// The first text after all that start with this prefix, which ends in `/`.
fn past(prefix: &str) -> String {
    format!("{}0", prefix.trim_end_matches('/'))
}

/// The blob's number and length, with nobody else at it. Made if the append begins at its beginning.
async fn locked(tx: &Transaction<'_>, key: &str, offset: u64) -> Result<Option<(i64, u64)>, BlobError> {
    const FIND: &str = "SELECT id, len FROM blobs WHERE key = $1 FOR UPDATE";
    let mut row = tx.row(FIND, &[&key]).await?;
    if row.is_none() && offset == 0 {
        refuse_folder(tx, key).await?;
        // Somebody else may be as quick; then theirs is the one.
        tx.run("INSERT INTO blobs (key, len) VALUES ($1, 0) ON CONFLICT DO NOTHING", &[&key]).await?;
        row = tx.row(FIND, &[&key]).await?;
    }
    row.map(|row| Ok((get(&row, 0)?, get::<i64>(&row, 1)? as u64))).transpose()
}

/// No key is the folder of another.
async fn refuse_folder(tx: &Transaction<'_>, key: &str) -> Result<(), BlobError> {
    let folders: Vec<&str> = key.match_indices('/').map(|(at, _)| &key[..at]).collect();
    let (inside, past) = (format!("{key}/"), format!("{key}0"));
    let clash = tx
        .row("SELECT 1 FROM blobs WHERE key = ANY($1) OR (key > $2 AND key < $3) LIMIT 1", &[&folders, &inside, &past])
        .await?;
    clash.map_or(Ok(()), |_| Err(BlobError::BadKey { key: key.chars().take(64).collect() }))
}

async fn grow(tx: &Transaction<'_>, id: i64, len: u64, more: &[u8]) -> Result<u64, BlobError> {
    if more.is_empty() {
        return Ok(len);
    }
    let chunks: Vec<&[u8]> = more.chunks(CHUNK_BYTES_MAX).collect();
    let places: Vec<i64> = (0..chunks.len()).map(|n| (len + (n * CHUNK_BYTES_MAX) as u64) as i64).collect();
    let grown = len + more.len() as u64;
    // The rows and the length travel together.
    let (added, noted) = futures_util::future::join(
        tx.run(
            "INSERT INTO blob_chunks (blob, at, body) SELECT $1, at, body FROM unnest($2::bigint[], $3::bytea[]) c (at, body)",
            &[&id, &places, &chunks],
        ),
        tx.run("UPDATE blobs SET len = $2 WHERE id = $1", &[&id, &(grown as i64)]),
    )
    .await;
    added?;
    noted?;
    Ok(grown)
}

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a tokio_postgres::Row, at: usize) -> Result<T, BlobError> {
    Ok(row.try_get(at).map_err(StoreError::from)?)
}
