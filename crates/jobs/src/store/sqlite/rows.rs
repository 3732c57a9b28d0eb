//! Columns to words.

use mutirao_core::Timestamp;
use mutirao_core::id::{Attempt, JobKey, TaskKey};
use mutirao_core::job::{TaskState, TaskView};
use mutirao_core::life::Final;
use mutirao_core::outcome::Usage;
use rusqlite::types::Type;
use rusqlite::{Error, Row};
use serde::de::DeserializeOwned;

use crate::entries::Kind;
use crate::store::OpenTasks;

pub fn json<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<T, Error> {
    // A manager of the next version, on the same database, may know more fields.
    mutirao_core::tolerant::read(row.get_ref(at)?.as_str()?.as_bytes())
        .map_err(|e| Error::FromSqlConversionFailure(at, Type::Text, Box::new(e)))
}

pub fn kind(row: &Row<'_>, at: usize) -> Result<Kind, Error> {
    let code = row.get(at)?;
    Kind::from_code(code).ok_or(Error::IntegralValueOutOfRange(at, code))
}

pub fn parsed<T: std::str::FromStr>(row: &Row<'_>, at: usize) -> Result<T, Error>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get_ref(at)?.as_str()?.parse().map_err(|e| Error::FromSqlConversionFailure(at, Type::Text, Box::new(e)))
}

/// Of a shard, and of one of its queues.
pub fn open_tasks(row: &Row<'_>) -> Result<OpenTasks, Error> {
    let count = |at| Ok::<_, Error>(row.get::<_, i64>(at)?.max(0) as u64);
    Ok(OpenTasks { of_shard: count(0)?, of_queue: count(1)? })
}

pub const TASK_COLUMNS: &str = "job, idx, state, generation, n, failures, losses, not_before, worker, exit, signal,
    reason, started_at, ended_at, wall_us, cpu_user_us, cpu_system_us, memory_peak";

pub fn task(row: &Row<'_>) -> Result<TaskView, Error> {
    let code: u8 = row.get(2)?;
    let how = Final::from_code(code);
    let number = |at: usize| row.get::<_, Option<i64>>(at);
    let attempt = number(3)?.zip(number(4)?).map(|(g, n)| Attempt { generation: g as u64, n: n as u32 });
    let usage = number(14)?.map(|wall| -> Result<Usage, Error> {
        Ok(Usage {
            wall_us: wall as u64,
            cpu_user_us: number(15)?.unwrap_or(0) as u64,
            cpu_system_us: number(16)?.unwrap_or(0) as u64,
            memory_peak_bytes: number(17)?.map(|m| m as u64),
        })
    });
    Ok(TaskView {
        id: TaskKey { job: JobKey(row.get::<_, i64>(0)? as u64), index: row.get(1)? },
        state: how.map_or(TaskState::Ready, TaskState::from),
        attempt: attempt.filter(|_| how.is_some()),
        failures: row.get(5)?,
        losses: row.get(6)?,
        not_before: number(7)?.filter(|at| *at > 0).map(Timestamp),
        worker: row.get(8)?,
        exit: row.get(9)?,
        signal: row.get(10)?,
        reason: row.get(11)?,
        started_at: number(12)?.map(Timestamp),
        ended_at: number(13)?.map(Timestamp),
        usage: usage.transpose()?,
    })
}
