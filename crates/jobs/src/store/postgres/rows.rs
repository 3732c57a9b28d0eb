//! Columns to words.

use mutirao_core::Timestamp;
use mutirao_core::id::{Attempt, JobKey, TaskKey};
use mutirao_core::job::{TaskState, TaskView};
use mutirao_core::life::Final;
use mutirao_core::outcome::Usage;
use mutirao_store::StoreError;
use mutirao_store::postgres::Row;
use serde::de::DeserializeOwned;

use crate::entries::Kind;
use crate::store::OpenTasks;

/// What is written there is not what this program writes.
pub fn unreadable(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unusable { path: "the database".into(), why: why.to_string() }
}

pub fn json<T: DeserializeOwned>(row: &Row, at: usize) -> Result<T, StoreError> {
    // A manager of the next version, on the same database, may know more fields.
    mutirao_core::tolerant::read(row.try_get::<_, &str>(at)?.as_bytes()).map_err(unreadable)
}

pub fn kind(row: &Row, at: usize) -> Result<Kind, StoreError> {
    let code: i16 = row.try_get(at)?;
    Kind::from_code(code.into()).ok_or_else(|| unreadable(format!("there is no kind {code} of job")))
}

pub fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(row: &Row, at: usize) -> Result<T, StoreError> {
    row.try_get::<_, &str>(at)?.parse().map_err(unreadable)
}

/// An index or a count, which PostgreSQL can only keep in a wider type.
pub fn whole(row: &Row, at: usize) -> Result<u32, StoreError> {
    u32::try_from(row.try_get::<_, i64>(at)?).map_err(unreadable)
}

pub fn count(row: &Row, at: usize) -> Result<u32, StoreError> {
    u32::try_from(row.try_get::<_, i32>(at)?).map_err(unreadable)
}

/// Of a shard, and of one of its queues.
pub fn open_tasks(row: &Row) -> Result<OpenTasks, StoreError> {
    let count = |at| Ok::<_, StoreError>(row.try_get::<_, i64>(at)?.max(0) as u64);
    Ok(OpenTasks { of_shard: count(0)?, of_queue: count(1)? })
}

pub const TASK_COLUMNS: &str = "job, idx, state, generation, n, failures, losses, not_before, worker, exit, signal,
    reason, started_at, ended_at, wall_us, cpu_user_us, cpu_system_us, memory_peak";

pub fn task(row: &Row) -> Result<TaskView, StoreError> {
    let how = Final::from_code(row.try_get::<_, i16>(2)? as u8);
    let number = |at: usize| row.try_get::<_, Option<i64>>(at);
    let attempt = number(3)?.zip(row.try_get::<_, Option<i32>>(4)?);
    let attempt = attempt.map(|(g, n)| Attempt { generation: g as u64, n: n as u32 });
    let usage = number(14)?.map(|wall| -> Result<Usage, StoreError> {
        Ok(Usage {
            wall_us: wall as u64,
            cpu_user_us: number(15)?.unwrap_or(0) as u64,
            cpu_system_us: number(16)?.unwrap_or(0) as u64,
            memory_peak_bytes: number(17)?.map(|m| m as u64),
        })
    });
    Ok(TaskView {
        id: TaskKey { job: JobKey(row.try_get::<_, i64>(0)? as u64), index: whole(row, 1)? },
        state: how.map_or(TaskState::Ready, TaskState::from),
        attempt: attempt.filter(|_| how.is_some()),
        failures: count(row, 5)?,
        losses: count(row, 6)?,
        not_before: number(7)?.filter(|at| *at > 0).map(Timestamp),
        worker: row.try_get(8)?,
        exit: row.try_get(9)?,
        signal: row.try_get(10)?,
        reason: row.try_get(11)?,
        started_at: number(12)?.map(Timestamp),
        ended_at: number(13)?.map(Timestamp),
        usage: usage.transpose()?,
    })
}
