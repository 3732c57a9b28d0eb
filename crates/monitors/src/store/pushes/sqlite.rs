//! Calls in SQLite.

use std::collections::HashMap;

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_store::{Migration, StoreError};
use rusqlite::{OptionalExtension, Row, params};

use super::{Given, Known, PushStore};
use crate::grid::MonitorKey;
use crate::push::{Call, TokenDigest};
use crate::store::sqlite::{SqliteMonitors, next_revision, note};
use crate::store::{By, number_of, verdict_of};

pub const MIGRATION: Migration = Migration { component: "pushes", version: 1, sql: include_str!("001_pushes.sql") };

type Answer<T> = Result<T, StoreError>;

#[async_trait]
impl PushStore for SqliteMonitors {
    async fn give_token(&self, monitor: MonitorKey, token: TokenDigest) -> Answer<Given> {
        self.0
            .write(move |db| {
                let given = db
                    .prepare_cached(
                        "INSERT INTO monitor_pushes (monitor, token) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    )?
                    .execute(params![monitor.0 as i64, token.0])?;
                Ok(if given > 0 { Given::Taken } else { Given::HasOne })
            })
            .await
    }

    async fn renew_token(&self, monitor: MonitorKey, token: TokenDigest, by: By) -> Answer<()> {
        self.0
            .write(move |db| {
                db.prepare_cached(
                    "INSERT INTO monitor_pushes (monitor, token) VALUES (?1, ?2) ON CONFLICT (monitor) DO UPDATE SET token = ?2",
                )?
                .execute(params![monitor.0 as i64, token.0])?;
                let revision = next_revision(db)?;
                note(db, revision, &by, "token", monitor, None)
            })
            .await
    }

    async fn drop_token(&self, monitor: MonitorKey) -> Answer<()> {
        self.0
            .write(move |db| {
                db.prepare_cached("DELETE FROM monitor_pushes WHERE monitor = ?1")?
                    .execute([monitor.0 as i64])
                    .map(drop)
            })
            .await
    }

    async fn knows_token(&self, token: TokenDigest) -> Answer<Known> {
        let found = self
            .0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT 1 FROM monitor_pushes p JOIN monitors m ON m.key = p.monitor
                     WHERE p.token = ?1 AND m.removed_at IS NULL",
                )?
                .query_row([token.0], |_| Ok(()))
                .optional()
            })
            .await?;
        Ok(found.map_or(Known::No, |()| Known::Yes))
    }

    async fn call(&self, token: TokenDigest, call: Call) -> Answer<Known> {
        self.0
            .write(move |db| {
                let took = call.took_us.map(|took| i64::try_from(took).unwrap_or(i64::MAX));
                let written = db
                    .prepare_cached(
                        "UPDATE monitor_pushes SET called_at = ?2, verdict = ?3, took_us = ?4, message = ?5
                         WHERE token = ?1 AND monitor IN (SELECT key FROM monitors WHERE removed_at IS NULL)",
                    )?
                    .execute(params![token.0, call.at.0, number_of(call.verdict), took, call.message])?;
                Ok(if written > 0 { Known::Yes } else { Known::No })
            })
            .await
    }

    async fn calls(&self, monitors: Vec<MonitorKey>) -> Answer<HashMap<MonitorKey, Call>> {
        self.0
            .read(move |db| {
                let mut select = db.prepare_cached(
                    "SELECT called_at, verdict, took_us, message FROM monitor_pushes
                     WHERE monitor = ?1 AND called_at IS NOT NULL",
                )?;
                let one = |key: MonitorKey| {
                    let found = select.query_row([key.0 as i64], call_of).optional();
                    found.map(|call| call.map(|call| (key, call))).transpose()
                };
                monitors.into_iter().filter_map(one).collect()
            })
            .await
    }
}

fn call_of(row: &Row<'_>) -> rusqlite::Result<Call> {
    Ok(Call {
        at: Timestamp(row.get(0)?),
        verdict: verdict_of(row.get(1)?),
        took_us: row.get::<_, Option<i64>>(2)?.map(|took| took as u64),
        message: row.get(3)?,
    })
}
