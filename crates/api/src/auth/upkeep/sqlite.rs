//! [`Upkeep`] in SQLite.

use async_trait::async_trait;
use mutirao_core::{Timestamp, WorkerId};
use mutirao_store::{Sqlite, StoreError};
use rusqlite::params;

use super::Upkeep;

#[async_trait]
impl Upkeep for Sqlite {
    async fn first_use(&self, mark: [u8; 16], at: Timestamp, kept_from: Timestamp) -> Result<bool, StoreError> {
        self.write(move |sql| {
            sql.prepare_cached("DELETE FROM api_nonces WHERE at < ?1")?.execute([kept_from.0])?;
            let new = sql
                .prepare_cached("INSERT INTO api_nonces (mark, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
                .execute(params![mark, at.0])?;
            Ok(new > 0)
        })
        .await
    }

    async fn forget(&self, revoked: Timestamp, audit: Timestamp, rows: u32) -> Result<u64, StoreError> {
        let tables = [
            ("api_workers", "revoked_at < ?1", revoked),
            ("api_elastic_keys", "revoked_at < ?1", revoked),
            ("api_tokens", "(revoked_at < ?1 OR expires_at < ?1)", revoked),
            ("api_audit", "at < ?1", audit),
        ];
        self.write(move |sql| {
            let mut most = 0;
            for (table, over, at) in tables {
                let forget =
                    format!("DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} WHERE {over} LIMIT ?2)");
                most = most.max(sql.prepare_cached(&forget)?.execute(params![at.0, rows])?);
            }
            Ok(most as u64)
        })
        .await
    }

    async fn revoked_from(&self, from: Timestamp, rows: u32) -> Result<Vec<(Timestamp, WorkerId)>, StoreError> {
        self.read(move |sql| {
            sql.prepare_cached(
                "SELECT revoked_at, id FROM api_workers WHERE revoked_at >= ?1 ORDER BY revoked_at, seq LIMIT ?2",
            )?
            .query_map(params![from.0, rows], |row| Ok((Timestamp(row.get(0)?), WorkerId(row.get(1)?))))?
            .collect()
        })
        .await
    }
}
