//! Calls in PostgreSQL.

use std::collections::HashMap;

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_store::postgres::{Ask, Row, text};
use mutirao_store::{Migration, StoreError};

use super::{Given, Known, PushStore};
use crate::grid::MonitorKey;
use crate::push::{Call, TokenDigest};
use crate::store::postgres::{PostgresMonitors, next_revision, note};
use crate::store::{By, number_of, verdict_of};

pub const MIGRATION: Migration =
    Migration { component: "pushes", version: 1, sql: include_str!("001_pushes.postgres.sql") };

type Answer<T> = Result<T, StoreError>;

#[async_trait]
impl PushStore for PostgresMonitors {
    async fn give_token(&self, monitor: MonitorKey, token: TokenDigest) -> Answer<Given> {
        let sql = "INSERT INTO monitor_pushes (monitor, token) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let given = self.0.connection().await?.run(sql, &[&(monitor.0 as i64), &token.0.as_slice()]).await?;
        Ok(if given > 0 { Given::Taken } else { Given::HasOne })
    }

    async fn renew_token(&self, monitor: MonitorKey, token: TokenDigest, by: By) -> Answer<()> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let revision = next_revision(&tx).await?;
        tx.run(
            "INSERT INTO monitor_pushes (monitor, token) VALUES ($1, $2) ON CONFLICT (monitor) DO UPDATE SET token = $2",
            &[&(monitor.0 as i64), &token.0.as_slice()],
        )
        .await?;
        note(&tx, revision, &by, "token", monitor, None).await?;
        tx.commit().await
    }

    async fn drop_token(&self, monitor: MonitorKey) -> Answer<()> {
        let sql = "DELETE FROM monitor_pushes WHERE monitor = $1";
        self.0.connection().await?.run(sql, &[&(monitor.0 as i64)]).await.map(drop)
    }

    async fn knows_token(&self, token: TokenDigest) -> Answer<Known> {
        let sql = "SELECT 1 FROM monitor_pushes p JOIN monitors m ON m.key = p.monitor
                   WHERE p.token = $1 AND m.removed_at IS NULL";
        let found = self.0.connection().await?.row(sql, &[&token.0.as_slice()]).await?;
        Ok(if found.is_some() { Known::Yes } else { Known::No })
    }

    async fn call(&self, token: TokenDigest, call: Call) -> Answer<Known> {
        let took = call.took_us.map(|took| i64::try_from(took).unwrap_or(i64::MAX));
        let message = call.message.as_deref().map(|message| text(message).into_owned());
        // By the database's clock as far as a manager's differs: a call that is dated ahead would be good until then.
        let sql = "UPDATE monitor_pushes
                   SET called_at = least($2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 60000), verdict = $3, took_us = $4, message = $5
                   WHERE token = $1 AND monitor IN (SELECT key FROM monitors WHERE removed_at IS NULL)";
        let verdict = number_of(call.verdict);
        let written =
            self.0.connection().await?.run(sql, &[&token.0.as_slice(), &call.at.0, &verdict, &took, &message]).await?;
        Ok(if written > 0 { Known::Yes } else { Known::No })
    }

    async fn calls(&self, monitors: Vec<MonitorKey>) -> Answer<HashMap<MonitorKey, Call>> {
        let keys: Vec<i64> = monitors.iter().map(|key| key.0 as i64).collect();
        let sql = "SELECT monitor, called_at, verdict, took_us, message FROM monitor_pushes
                   WHERE monitor = ANY($1) AND called_at IS NOT NULL";
        self.0.connection().await?.rows(sql, &[&keys]).await?.iter().map(call_of).collect()
    }
}

fn call_of(row: &Row) -> Answer<(MonitorKey, Call)> {
    let call = Call {
        at: Timestamp(row.try_get(1)?),
        verdict: verdict_of(row.try_get(2)?),
        took_us: row.try_get::<_, Option<i64>>(3)?.map(|took| took as u64),
        message: row.try_get(4)?,
    };
    Ok((MonitorKey(row.try_get::<_, i64>(0)? as u64), call))
}
