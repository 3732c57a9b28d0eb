//! The [`Ledger`] in PostgreSQL.

use async_trait::async_trait;
use mutirao_core::WorkerId;
use mutirao_elastic::protocol::GROUP;
use mutirao_store::postgres::{Ask, text};
use mutirao_store::{Postgres, StoreError};

use crate::store::ledger::{Ledger, REVOKED_AT_ONCE};

const MANAGER_OF: &str = "SELECT manager FROM fleet_names WHERE member = $1";

#[async_trait]
impl Ledger for Postgres {
    async fn to_revoke(&self) -> Result<Vec<WorkerId>, StoreError> {
        let oldest = "SELECT worker FROM fleet_revocations ORDER BY at, worker LIMIT $1";
        let rows = self.connection().await?.rows(oldest, &[&i64::from(REVOKED_AT_ONCE)]).await?;
        rows.iter().map(|row| Ok(WorkerId(row.try_get(0)?))).collect()
    }

    async fn revoked(&self, workers: Vec<WorkerId>) -> Result<(), StoreError> {
        let workers: Vec<String> = workers.into_iter().map(|worker| worker.0).collect();
        let done = "DELETE FROM fleet_revocations WHERE worker = ANY($1)";
        self.connection().await?.run(done, &[&workers]).await.map(drop)
    }

    async fn named(&self, member: &str, manager: &str) -> Result<String, StoreError> {
        let (member, manager) = (text(member), text(manager));
        let mut connection = self.connection().await?;
        if let Some(row) = connection.row(MANAGER_OF, &[&member]).await? {
            return Ok(row.try_get(0)?);
        }
        let tx = connection.begin().await?;
        // Names of those who are not there any more go when somebody comes.
        let gone =
            "DELETE FROM fleet_names WHERE member NOT IN (SELECT member FROM shard_members WHERE group_name = $1)
                        AND member NOT IN (SELECT owner FROM shard_leases WHERE group_name = $1 AND owner IS NOT NULL)";
        tx.run(gone, &[&GROUP]).await?;
        let insert = "INSERT INTO fleet_names (member, manager) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        tx.run(insert, &[&member, &manager]).await?;
        let row = tx.row(MANAGER_OF, &[&member]).await?;
        tx.commit().await?;
        row.map_or_else(|| Ok(manager.into_owned()), |row| Ok(row.try_get(0)?))
    }
}
