//! [`ElasticKeys`] in SQLite.

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_store::{Sqlite, StoreError};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Added, ElasticKey, ElasticKeys, KEYS_GOOD_MAX};
use crate::auth::registry::{By, ENROLMENT_KEPT_MS};
use crate::auth::secret::Digest;
use crate::auth::sqlite::audit;

#[async_trait]
impl ElasticKeys for Sqlite {
    async fn add_elastic_enrolment(&self, token: Digest, expires_at: Timestamp, by: By) -> Result<(), StoreError> {
        self.write(move |sql| {
            sql.prepare_cached("DELETE FROM api_elastic_enrolments WHERE expires_at < ?1")?
                .execute([by.at.0 - ENROLMENT_KEPT_MS])?;
            sql.prepare_cached("INSERT INTO api_elastic_enrolments (token_hash, expires_at) VALUES (?1, ?2)")?
                .execute(params![token.0, expires_at.0])?;
            audit(sql, &by, "elastic.invite", "")
        })
        .await
    }

    async fn enrol_elastic(&self, token: Digest, key: ElasticKey) -> Result<Option<String>, StoreError> {
        self.write(move |sql| {
            let at = key.created_at;
            let spent = sql
                .prepare_cached(
                    "UPDATE api_elastic_enrolments SET used_at = ?2, used_by = ?3
                     WHERE token_hash = ?1 AND used_at IS NULL AND expires_at > ?2",
                )?
                .execute(params![token.0, at.0, key.id])?;
            if spent == 0 {
                // By the same that asks again, perhaps.
                return sql
                    .prepare_cached(
                        "SELECT id FROM api_elastic_keys WHERE public_key = ?3 AND revoked_at IS NULL AND id =
                             (SELECT used_by FROM api_elastic_enrolments WHERE token_hash = ?1 AND expires_at > ?2)",
                    )?
                    .query_row(params![token.0, at.0, key.public_key], |row| row.get(0))
                    .optional();
            }
            insert(sql, &key)?;
            audit(sql, &By { who: key.id.clone(), at }, "elastic.enrol", &key.name)?;
            Ok(Some(key.id))
        })
        .await
    }

    async fn add_elastic_key(&self, key: ElasticKey, by: By) -> Result<Added, StoreError> {
        self.write(move |sql| {
            let already = sql
                .prepare_cached(
                    "SELECT id FROM api_elastic_keys WHERE manager = ?1 AND public_key = ?2 AND revoked_at IS NULL",
                )?
                .query_row(params![key.manager, key.public_key], |row| row.get(0))
                .optional()?;
            if let Some(id) = already {
                return Ok(Added::Already(id));
            }
            let good: u32 = sql
                .prepare_cached("SELECT count(*) FROM api_elastic_keys WHERE manager = ?1 AND revoked_at IS NULL")?
                .query_row([&key.manager], |row| row.get(0))?;
            if good >= KEYS_GOOD_MAX {
                return Ok(Added::TooMany);
            }
            insert(sql, &key)?;
            audit(sql, &by, "elastic.key.add", &key.id)?;
            Ok(Added::Added)
        })
        .await
    }

    async fn elastic_key(&self, id: &str) -> Result<Option<ElasticKey>, StoreError> {
        let id = id.to_owned();
        self.read(move |sql| {
            sql.prepare_cached(&format!("SELECT {KEY} FROM api_elastic_keys WHERE id = ?1"))?
                .query_row([id], |row| Ok(key(row)?.1))
                .optional()
        })
        .await
    }

    async fn elastic_keys(&self, after: i64, rows: u32) -> Result<Vec<(i64, ElasticKey)>, StoreError> {
        self.read(move |sql| {
            sql.prepare_cached(&format!("SELECT {KEY} FROM api_elastic_keys WHERE seq > ?1 ORDER BY seq LIMIT ?2"))?
                .query_map(params![after, rows], key)?
                .collect()
        })
        .await
    }

    async fn revoke_elastic_key(&self, id: &str, by: By) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.write(move |sql| {
            let revoked = sql
                .prepare_cached("UPDATE api_elastic_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL")?
                .execute(params![id, by.at.0])?;
            if revoked > 0 {
                audit(sql, &by, "elastic.key.revoke", &id)?;
                return Ok(true);
            }
            sql.prepare_cached("SELECT 1 FROM api_elastic_keys WHERE id = ?1")?.exists([id])
        })
        .await
    }

    async fn elastic_key_used(&self, id: &str, at: Timestamp) -> Result<(), StoreError> {
        let id = id.to_owned();
        self.write(move |sql| {
            sql.prepare_cached("UPDATE api_elastic_keys SET last_used_at = ?2 WHERE id = ?1")?
                .execute(params![id, at.0])?;
            Ok(())
        })
        .await
    }
}

fn insert(sql: &Connection, key: &ElasticKey) -> rusqlite::Result<()> {
    sql.prepare_cached(
        "INSERT INTO api_elastic_keys (id, manager, public_key, name, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![key.id, key.manager, key.public_key, key.name, key.created_at.0])?;
    Ok(())
}

const KEY: &str = "seq, id, manager, public_key, name, created_at, revoked_at, last_used_at";

fn key(row: &Row<'_>) -> rusqlite::Result<(i64, ElasticKey)> {
    let stamp = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(Timestamp));
    let key = ElasticKey {
        id: row.get(1)?,
        manager: row.get(2)?,
        public_key: row.get(3)?,
        name: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
        revoked_at: stamp(6)?,
        last_used_at: stamp(7)?,
    };
    Ok((row.get(0)?, key))
}
