//! Sums of outcomes in SQLite.

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_shards::Fence;
use mutirao_store::{Migration, StoreError};
use rusqlite::types::Type;
use rusqlite::{Result, Row, params};

use super::{Marks, RollStore, Rolled, Stretch};
use crate::grid::MonitorKey;
use crate::rollup::{Ended, Roll, Step};
use crate::sketch::Sketch;
use crate::store::sqlite::SqliteMonitors;
use crate::store::{Settling, is_excused, verdict_of};

pub const MIGRATION: Migration = Migration { component: "rolls", version: 1, sql: include_str!("001_rolls.sql") };

type Answer<T> = std::result::Result<T, StoreError>;

const COLUMNS: &str = "monitor, at, good, bad, excused, longest_us, times";

#[async_trait]
impl RollStore for SqliteMonitors {
    async fn marks(&self) -> Answer<Marks> {
        self.0
            .read(|db| {
                let mark = |row: &Row<'_>| Ok((step(row.get(0)?)?, Timestamp(row.get(1)?)));
                db.prepare_cached("SELECT step, until FROM monitor_rolled")?.query_map([], mark)?.collect()
            })
            .await
    }

    async fn oldest(&self) -> Answer<Option<Timestamp>> {
        let first = |row: &Row<'_>| Ok(row.get::<_, Option<i64>>(0)?.map(Timestamp));
        self.0.read(move |db| db.prepare_cached("SELECT min(at) FROM monitor_outcomes")?.query_row([], first)).await
    }

    async fn ended(&self, stretch: Stretch) -> Answer<Vec<(MonitorKey, Timestamp, Ended)>> {
        let Stretch { from, until, after, rows } = stretch;
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT monitor, at, verdict, took_us FROM monitor_outcomes INDEXED BY monitor_outcomes_by_age
                     WHERE at >= ?1 AND at < ?2 AND monitor > ?3 ORDER BY monitor, at LIMIT ?4",
                )?
                .query_map(params![from.0, until.0, after.0 as i64, rows], ended)?
                .collect()
            })
            .await
    }

    async fn rolled(&self, step: Step, stretch: Stretch) -> Answer<Vec<Rolled>> {
        let Stretch { from, until, after, rows } = stretch;
        let sql = format!(
            "SELECT {COLUMNS} FROM monitor_rolls INDEXED BY monitor_rolls_by_age
             WHERE step = ?1 AND at >= ?2 AND at < ?3 AND monitor > ?4 ORDER BY monitor, at LIMIT ?5"
        );
        self.0
            .read(move |db| {
                db.prepare_cached(&sql)?
                    .query_map(params![step.number(), from.0, until.0, after.0 as i64, rows], rolled)?
                    .collect()
            })
            .await
    }

    async fn roll(&self, fence: Fence, step: Step, rolls: Vec<Rolled>, until: Option<Timestamp>) -> Answer<Settling> {
        self.0
            .write(move |db| {
                if !fence.holds_in_sqlite(db)? {
                    return Ok(Settling::Fenced);
                }
                let mut insert = db.prepare_cached(
                    "INSERT OR REPLACE INTO monitor_rolls (step, monitor, at, good, bad, excused, longest_us, times)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?;
                for Rolled { monitor, at, roll } in &rolls {
                    insert.execute(params![
                        step.number(),
                        monitor.0 as i64,
                        at.0,
                        roll.good as i64,
                        roll.bad as i64,
                        roll.excused as i64,
                        i64::try_from(roll.longest_us).unwrap_or(i64::MAX),
                        roll.times.to_bytes(),
                    ])?;
                }
                if let Some(until) = until {
                    db.prepare_cached("INSERT OR REPLACE INTO monitor_rolled (step, until) VALUES (?1, ?2)")?
                        .execute(params![step.number(), until.0])?;
                }
                Ok(Settling::Written { new: rolls.len() as u64 })
            })
            .await
    }

    async fn rolls(&self, monitor: MonitorKey, step: Step, from: Timestamp, until: Timestamp) -> Answer<Vec<Rolled>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM monitor_rolls WHERE step = ?1 AND monitor = ?2 AND at >= ?3 AND at < ?4 ORDER BY at"
        );
        self.0
            .read(move |db| {
                db.prepare_cached(&sql)?
                    .query_map(params![step.number(), monitor.0 as i64, from.0, until.0], rolled)?
                    .collect()
            })
            .await
    }

    async fn raw(
        &self,
        monitor: MonitorKey,
        from: Timestamp,
        rows: u32,
    ) -> Answer<Vec<(MonitorKey, Timestamp, Ended)>> {
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT monitor, at, verdict, took_us FROM monitor_outcomes
                     WHERE monitor = ?1 AND at >= ?2 ORDER BY at DESC LIMIT ?3",
                )?
                .query_map(params![monitor.0 as i64, from.0, rows], ended)?
                .collect()
            })
            .await
    }

    async fn sweep_rolls(&self, step: Step, before: Timestamp, rows: u32) -> Answer<u64> {
        self.0
            .write(move |db| {
                let gone = db
                    .prepare_cached(
                        "DELETE FROM monitor_rolls WHERE (step, monitor, at) IN
                         (SELECT step, monitor, at FROM monitor_rolls WHERE step = ?1 AND at < ?2 LIMIT ?3)",
                    )?
                    .execute(params![step.number(), before.0, rows])?;
                Ok(gone as u64)
            })
            .await
    }
}

fn step(number: i64) -> Result<Step> {
    Step::of_number(number).ok_or_else(|| unreadable(0, "there is no such step"))
}

fn ended(row: &Row<'_>) -> Result<(MonitorKey, Timestamp, Ended)> {
    let (key, number) = (MonitorKey(row.get::<_, i64>(0)? as u64), row.get(2)?);
    let took_us = row.get::<_, Option<i64>>(3)?.map(|took| took as u64);
    let ended = Ended { verdict: verdict_of(number), excused: is_excused(number), took_us };
    Ok((key, Timestamp(row.get(1)?), ended))
}

fn rolled(row: &Row<'_>) -> Result<Rolled> {
    let times = Sketch::from_bytes(row.get_ref(6)?.as_blob()?).map_err(|_| unreadable(6, "these are no times"))?;
    let count = |column: usize| row.get::<_, i64>(column).map(|count| count as u64);
    Ok(Rolled {
        monitor: MonitorKey(count(0)?),
        at: Timestamp(row.get(1)?),
        roll: Roll { good: count(2)?, bad: count(3)?, excused: count(4)?, longest_us: count(5)?, times },
    })
}

fn unreadable(column: usize, why: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, why.into())
}
