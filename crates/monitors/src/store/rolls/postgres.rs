//! Sums of outcomes in PostgreSQL.

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_shards::Fence;
use mutirao_store::postgres::{Ask, Row};
use mutirao_store::{Migration, StoreError};

use super::{Marks, RollStore, Rolled, Stretch};
use crate::grid::MonitorKey;
use crate::rollup::{Ended, Roll, Step};
use crate::sketch::Sketch;
use crate::store::postgres::{PostgresMonitors, unreadable};
use crate::store::{Settling, is_excused, verdict_of};

pub const MIGRATION: Migration =
    Migration { component: "rolls", version: 1, sql: include_str!("001_rolls.postgres.sql") };

type Answer<T> = Result<T, StoreError>;

const COLUMNS: &str = "monitor, at, good, bad, excused, longest_us, times";

#[async_trait]
impl RollStore for PostgresMonitors {
    async fn marks(&self) -> Answer<Marks> {
        let mark = |row: &Row| {
            let step = Step::of_number(row.try_get(0)?).ok_or_else(|| unreadable("there is no such step"))?;
            Ok((step, Timestamp(row.try_get(1)?)))
        };
        let found = self.0.connection().await?.rows("SELECT step, until FROM monitor_rolled", &[]).await?;
        found.iter().map(mark).collect()
    }

    async fn oldest(&self) -> Answer<Option<Timestamp>> {
        let found = self.0.connection().await?.row("SELECT min(at) FROM monitor_outcomes", &[]).await?;
        let Some(row) = found else { return Ok(None) };
        Ok(row.try_get::<_, Option<i64>>(0)?.map(Timestamp))
    }

    async fn ended(&self, stretch: Stretch) -> Answer<Vec<(MonitorKey, Timestamp, Ended)>> {
        let Stretch { from, until, after, rows } = stretch;
        let sql = "SELECT monitor, at, verdict, took_us FROM monitor_outcomes
                   WHERE at >= $1 AND at < $2 AND monitor > $3 ORDER BY monitor, at LIMIT $4";
        let connection = self.0.connection().await?;
        let found = connection.rows(sql, &[&from.0, &until.0, &(after.0 as i64), &i64::from(rows)]).await?;
        found.iter().map(ended).collect()
    }

    async fn rolled(&self, step: Step, stretch: Stretch) -> Answer<Vec<Rolled>> {
        let Stretch { from, until, after, rows } = stretch;
        let sql = format!(
            "SELECT {COLUMNS} FROM monitor_rolls
             WHERE step = $1 AND at >= $2 AND at < $3 AND monitor > $4 ORDER BY monitor, at LIMIT $5"
        );
        let connection = self.0.connection().await?;
        let found =
            connection.rows(&sql, &[&step.number(), &from.0, &until.0, &(after.0 as i64), &i64::from(rows)]).await?;
        found.iter().map(rolled).collect()
    }

    async fn roll(&self, fence: Fence, step: Step, rolls: Vec<Rolled>, until: Option<Timestamp>) -> Answer<Settling> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Settling::Fenced);
        }
        let numbers = |number: fn(&Rolled) -> u64| -> Vec<i64> {
            rolls.iter().map(|one| i64::try_from(number(one)).unwrap_or(i64::MAX)).collect()
        };
        let at: Vec<i64> = rolls.iter().map(|one| one.at.0).collect();
        let times: Vec<Vec<u8>> = rolls.iter().map(|one| one.roll.times.to_bytes()).collect();
        tx.run(
            "INSERT INTO monitor_rolls (step, monitor, at, good, bad, excused, longest_us, times)
             SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                                      $8::bytea[])
             ON CONFLICT (step, monitor, at) DO UPDATE SET good = EXCLUDED.good, bad = EXCLUDED.bad,
                 excused = EXCLUDED.excused, longest_us = EXCLUDED.longest_us, times = EXCLUDED.times",
            &[
                &step.number(),
                &numbers(|one| one.monitor.0),
                &at,
                &numbers(|one| one.roll.good),
                &numbers(|one| one.roll.bad),
                &numbers(|one| one.roll.excused),
                &numbers(|one| one.roll.longest_us),
                &times,
            ],
        )
        .await?;
        if let Some(until) = until {
            tx.run(
                "INSERT INTO monitor_rolled (step, until) VALUES ($1, $2) ON CONFLICT (step) DO UPDATE SET until = $2",
                &[&step.number(), &until.0],
            )
            .await?;
        }
        tx.commit().await?;
        Ok(Settling::Written { new: rolls.len() as u64 })
    }

    async fn rolls(&self, monitor: MonitorKey, step: Step, from: Timestamp, until: Timestamp) -> Answer<Vec<Rolled>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM monitor_rolls WHERE step = $1 AND monitor = $2 AND at >= $3 AND at < $4 ORDER BY at"
        );
        let connection = self.0.connection().await?;
        let found = connection.rows(&sql, &[&step.number(), &(monitor.0 as i64), &from.0, &until.0]).await?;
        found.iter().map(rolled).collect()
    }

    async fn raw(
        &self,
        monitor: MonitorKey,
        from: Timestamp,
        rows: u32,
    ) -> Answer<Vec<(MonitorKey, Timestamp, Ended)>> {
        let sql = "SELECT monitor, at, verdict, took_us FROM monitor_outcomes
                   WHERE monitor = $1 AND at >= $2 ORDER BY at DESC LIMIT $3";
        let connection = self.0.connection().await?;
        let found = connection.rows(sql, &[&(monitor.0 as i64), &from.0, &i64::from(rows)]).await?;
        found.iter().map(ended).collect()
    }

    async fn sweep_rolls(&self, step: Step, before: Timestamp, rows: u32) -> Answer<u64> {
        let sql = "DELETE FROM monitor_rolls WHERE ctid = ANY(ARRAY(
                       SELECT ctid FROM monitor_rolls WHERE step = $1 AND at < $2 LIMIT $3 FOR UPDATE SKIP LOCKED))";
        self.0.connection().await?.run(sql, &[&step.number(), &before.0, &i64::from(rows)]).await
    }
}

fn ended(row: &Row) -> Answer<(MonitorKey, Timestamp, Ended)> {
    let (key, number) = (MonitorKey(row.try_get::<_, i64>(0)? as u64), row.try_get(2)?);
    let took_us = row.try_get::<_, Option<i64>>(3)?.map(|took| took as u64);
    let ended = Ended { verdict: verdict_of(number), excused: is_excused(number), took_us };
    Ok((key, Timestamp(row.try_get(1)?), ended))
}

fn rolled(row: &Row) -> Answer<Rolled> {
    let times = Sketch::from_bytes(row.try_get(6)?).map_err(|_| unreadable("these are no times"))?;
    let count = |column: usize| row.try_get::<_, i64>(column).map(|count| count as u64);
    Ok(Rolled {
        monitor: MonitorKey(count(0)?),
        at: Timestamp(row.try_get(1)?),
        roll: Roll { good: count(2)?, bad: count(3)?, excused: count(4)?, longest_us: count(5)?, times },
    })
}
