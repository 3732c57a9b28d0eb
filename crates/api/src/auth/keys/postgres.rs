//! [`ElasticKeys`] in PostgreSQL.

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_store::postgres::{Ask, Row, Transaction, text};
use mutirao_store::{Postgres, StoreError};

use super::{Added, ElasticKey, ElasticKeys, KEYS_GOOD_MAX};
use crate::auth::postgres::{audit, bytes};
use crate::auth::registry::{By, ENROLMENT_KEPT_MS};
use crate::auth::secret::Digest;

#[async_trait]
impl ElasticKeys for Postgres {
    async fn add_elastic_enrolment(&self, token: Digest, expires_at: Timestamp, by: By) -> Result<(), StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let old = by.at.0 - ENROLMENT_KEPT_MS;
        tx.run("DELETE FROM api_elastic_enrolments WHERE expires_at < $1", &[&old]).await?;
        let insert = "INSERT INTO api_elastic_enrolments (token_hash, expires_at) VALUES ($1, $2)";
        tx.run(insert, &[&token.0.as_slice(), &expires_at.0]).await?;
        audit(&tx, &by, "elastic.invite", "").await?;
        Ok(tx.commit().await?)
    }

    async fn enrol_elastic(&self, token: Digest, key: ElasticKey) -> Result<Option<String>, StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        // Whoever comes second waits for the row, and finds it used.
        let spend = "UPDATE api_elastic_enrolments SET used_at = $2, used_by = $3
                     WHERE token_hash = $1 AND used_at IS NULL AND expires_at > $2";
        if tx.run(spend, &[&token.0.as_slice(), &key.created_at.0, &key.id]).await? == 0 {
            // By the same that asks again, perhaps.
            let again = "SELECT id FROM api_elastic_keys WHERE public_key = $3 AND revoked_at IS NULL AND id =
                             (SELECT used_by FROM api_elastic_enrolments WHERE token_hash = $1 AND expires_at > $2)";
            let row = tx.row(again, &[&token.0.as_slice(), &key.created_at.0, &key.public_key.as_slice()]).await?;
            return row.map(|row| Ok(row.try_get(0)?)).transpose();
        }
        insert(&tx, &key).await?;
        audit(&tx, &By { who: key.id.clone(), at: key.created_at }, "elastic.enrol", &key.name).await?;
        tx.commit().await?;
        Ok(Some(key.id))
    }

    async fn add_elastic_key(&self, key: ElasticKey, by: By) -> Result<Added, StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        // Two at once count one after the other.
        let good = "SELECT id, public_key FROM api_elastic_keys WHERE manager = $1 AND revoked_at IS NULL
                    ORDER BY seq FOR UPDATE";
        let good = tx.rows(good, &[&key.manager]).await?;
        for row in &good {
            if row.try_get::<_, &[u8]>(1)? == key.public_key {
                return Ok(Added::Already(row.try_get(0)?));
            }
        }
        if good.len() >= KEYS_GOOD_MAX as usize {
            return Ok(Added::TooMany);
        }
        insert(&tx, &key).await?;
        audit(&tx, &by, "elastic.key.add", &key.id).await?;
        tx.commit().await?;
        Ok(Added::Added)
    }

    async fn elastic_key(&self, id: &str) -> Result<Option<ElasticKey>, StoreError> {
        let sql = format!("SELECT {KEY} FROM api_elastic_keys WHERE id = $1");
        let row = self.connection().await?.row(&sql, &[&text(id)]).await?;
        row.map(|row| Ok(key(&row)?.1)).transpose()
    }

    async fn elastic_keys(&self, after: i64, rows: u32) -> Result<Vec<(i64, ElasticKey)>, StoreError> {
        let sql = format!("SELECT {KEY} FROM api_elastic_keys WHERE seq > $1 ORDER BY seq LIMIT $2");
        let rows = self.connection().await?.rows(&sql, &[&after, &i64::from(rows)]).await?;
        rows.iter().map(key).collect()
    }

    async fn revoke_elastic_key(&self, id: &str, by: By) -> Result<bool, StoreError> {
        let id = text(id);
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let revoke = "UPDATE api_elastic_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";
        if tx.run(revoke, &[&id, &by.at.0]).await? == 0 {
            return Ok(tx.row("SELECT 1 FROM api_elastic_keys WHERE id = $1", &[&id]).await?.is_some());
        }
        audit(&tx, &by, "elastic.key.revoke", &id).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn elastic_key_used(&self, id: &str, at: Timestamp) -> Result<(), StoreError> {
        let note = "UPDATE api_elastic_keys SET last_used_at = $2 WHERE id = $1";
        self.connection().await?.run(note, &[&text(id), &at.0]).await?;
        Ok(())
    }
}

async fn insert(tx: &Transaction<'_>, key: &ElasticKey) -> Result<(), StoreError> {
    let insert = "INSERT INTO api_elastic_keys (id, manager, public_key, name, created_at) VALUES ($1, $2, $3, $4, $5)";
    tx.run(insert, &[&key.id, &key.manager, &key.public_key.as_slice(), &key.name, &key.created_at.0]).await.map(drop)
}

const KEY: &str = "seq, id, manager, public_key, name, created_at, revoked_at, last_used_at";

fn key(row: &Row) -> Result<(i64, ElasticKey), StoreError> {
    let stamp = |column: usize| row.try_get::<_, Option<i64>>(column).map(|at| at.map(Timestamp));
    let key = ElasticKey {
        id: row.try_get(1)?,
        manager: row.try_get(2)?,
        public_key: bytes(row, 3)?,
        name: row.try_get(4)?,
        created_at: Timestamp(row.try_get(5)?),
        revoked_at: stamp(6)?,
        last_used_at: stamp(7)?,
    };
    Ok((row.try_get(0)?, key))
}
