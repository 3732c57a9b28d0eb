//! The [`Ledger`] in SQLite.

use async_trait::async_trait;
use mutirao_core::WorkerId;
use mutirao_elastic::protocol::GROUP;
use mutirao_store::{Sqlite, StoreError};
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::json;
use crate::store::ledger::{Ledger, REVOKED_AT_ONCE};

#[async_trait]
impl Ledger for Sqlite {
    async fn to_revoke(&self) -> Result<Vec<WorkerId>, StoreError> {
        self.read(|sql| {
            sql.prepare_cached("SELECT worker FROM fleet_revocations ORDER BY at, worker LIMIT ?1")?
                .query_map([REVOKED_AT_ONCE], |row| row.get(0).map(WorkerId))?
                .collect()
        })
        .await
    }

    async fn revoked(&self, workers: Vec<WorkerId>) -> Result<(), StoreError> {
        self.write(move |sql| {
            sql.prepare_cached("DELETE FROM fleet_revocations WHERE worker IN (SELECT value FROM json_each(?1))")?
                .execute([json(&workers)])?;
            Ok(())
        })
        .await
    }

    async fn named(&self, member: &str, manager: &str) -> Result<String, StoreError> {
        let name = member.to_owned();
        if let Some(known) = self.read(move |sql| manager_of(sql, &name)).await? {
            return Ok(known);
        }
        let (member, manager) = (member.to_owned(), manager.to_owned());
        self.write(move |sql| {
            // Names of those who are not there any more go when somebody comes.
            sql.prepare_cached(
                "DELETE FROM fleet_names WHERE member NOT IN (SELECT member FROM shard_members WHERE group_name = ?1)
                     AND member NOT IN (SELECT owner FROM shard_leases WHERE group_name = ?1 AND owner IS NOT NULL)",
            )?
            .execute([GROUP])?;
            sql.prepare_cached("INSERT INTO fleet_names (member, manager) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
                .execute(params![member, manager])?;
            Ok(manager_of(sql, &member)?.unwrap_or(manager))
        })
        .await
    }
}

fn manager_of(sql: &Connection, member: &str) -> rusqlite::Result<Option<String>> {
    sql.prepare_cached("SELECT manager FROM fleet_names WHERE member = ?1")?
        .query_row([member], |row| row.get(0))
        .optional()
}
