//! [`Upkeep`] in PostgreSQL.

use async_trait::async_trait;
use mutirao_core::{Timestamp, WorkerId};
use mutirao_store::postgres::Ask;
use mutirao_store::{Postgres, StoreError};

use super::Upkeep;

#[async_trait]
impl Upkeep for Postgres {
    async fn first_use(&self, mark: [u8; 16], at: Timestamp, kept_from: Timestamp) -> Result<bool, StoreError> {
        let connection = self.connection().await?;
        connection.run("DELETE FROM api_nonces WHERE at < $1", &[&kept_from.0]).await?;
        let insert = "INSERT INTO api_nonces (mark, at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        Ok(connection.run(insert, &[&mark.as_slice(), &at.0]).await? > 0)
    }

    async fn forget(&self, revoked: Timestamp, audit: Timestamp, rows: u32) -> Result<u64, StoreError> {
        let tables = [
            ("api_workers", "revoked_at < $1", revoked),
            ("api_elastic_keys", "revoked_at < $1", revoked),
            ("api_tokens", "(revoked_at < $1 OR expires_at < $1)", revoked),
            ("api_audit", "at < $1", audit),
        ];
        let connection = self.connection().await?;
        let mut most = 0;
        for (table, over, at) in tables {
            let forget = format!("DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} WHERE {over} LIMIT $2)");
            most = most.max(connection.run(&forget, &[&at.0, &i64::from(rows)]).await?);
        }
        Ok(most)
    }

    async fn revoked_from(&self, from: Timestamp, rows: u32) -> Result<Vec<(Timestamp, WorkerId)>, StoreError> {
        let select = "SELECT revoked_at, id FROM api_workers WHERE revoked_at >= $1 ORDER BY revoked_at, seq LIMIT $2";
        let rows = self.connection().await?.rows(select, &[&from.0, &i64::from(rows)]).await?;
        rows.iter().map(|row| Ok((Timestamp(row.try_get(0)?), WorkerId(row.try_get(1)?)))).collect()
    }
}
