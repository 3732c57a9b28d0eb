//! Reading what is kept. Readers are tolerant: a manager of the next version, on the same file, may know more fields.

use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::decide::Because;
use mutirao_elastic::fleet::Member;
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::view::HistoryLine;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::DeserializeOwned;

use crate::store::{Decided, Draining, Kept, MemberRow, NodeRow, from_word};

pub fn kept(sql: &Connection) -> rusqlite::Result<Kept> {
    let decided = format!("SELECT {DECIDED} FROM fleet_queues ORDER BY queue");
    let members = format!("SELECT {MEMBER} FROM fleet_members ORDER BY worker");
    Ok(Kept {
        decided: sql.prepare_cached(&decided)?.query_map([], decided_row)?.collect::<Result<_, _>>()?,
        members: sql.prepare_cached(&members)?.query_map([], member_row)?.collect::<Result<_, _>>()?,
        draining: draining(sql)?,
        nodes: nodes(sql)?,
    })
}

pub fn decided(sql: &Connection, queue: &QueueName) -> rusqlite::Result<Option<Decided>> {
    sql.prepare_cached(&format!("SELECT {DECIDED} FROM fleet_queues WHERE queue = ?1"))?
        .query_row([queue.as_str()], decided_row)
        .optional()
}

pub fn member(sql: &Connection, worker: &WorkerId) -> rusqlite::Result<Option<MemberRow>> {
    sql.prepare_cached(&format!("SELECT {MEMBER} FROM fleet_members WHERE worker = ?1"))?
        .query_row([&worker.0], member_row)
        .optional()
}

pub fn draining(sql: &Connection) -> rusqlite::Result<Vec<Draining>> {
    sql.prepare_cached("SELECT worker, queue, since, who FROM fleet_draining ORDER BY worker")?
        .query_map([], |row| {
            Ok(Draining {
                worker: WorkerId(row.get(0)?),
                queue: queue(row, 1)?,
                since: Timestamp(row.get(2)?),
                who: row.get(3)?,
            })
        })?
        .collect()
}

pub fn nodes(sql: &Connection) -> rusqlite::Result<Vec<NodeRow>> {
    sql.prepare_cached("SELECT node, wish, offered_at FROM fleet_nodes ORDER BY name")?
        .query_map([], |row| {
            let wish: String = row.get(1)?;
            Ok(NodeRow {
                node: json(row, 0)?,
                wish: from_word(&wish).map_err(|error| unreadable(1, error))?,
                offered_at: row.get::<_, Option<i64>>(2)?.map(Timestamp),
            })
        })?
        .collect()
}

pub fn kinds(sql: &Connection) -> rusqlite::Result<Option<Vec<Kind>>> {
    sql.prepare_cached("SELECT kinds FROM fleet_kinds")?.query_row([], |row| json(row, 0)).optional()
}

pub fn history(
    sql: &Connection,
    queue: Option<&QueueName>,
    before: i64,
    rows: u32,
) -> rusqlite::Result<Vec<(i64, HistoryLine)>> {
    sql.prepare_cached(
        "SELECT seq, queue, at, from_count, to_count, because FROM fleet_changes
         WHERE seq < ?2 AND (?1 IS NULL OR queue = ?1) ORDER BY seq DESC LIMIT ?3",
    )?
    .query_map(params![queue.map(QueueName::as_str), before, rows], |row| {
        let because: Because = json(row, 5)?;
        let line = HistoryLine {
            queue: self::queue(row, 1)?,
            at: Timestamp(row.get(2)?),
            from: row.get(3)?,
            to: row.get(4)?,
            because: because.to_string(),
        };
        Ok((row.get(0)?, line))
    })?
    .collect()
}

const DECIDED: &str = "queue, state, decision, trouble, decided_at";

fn decided_row(row: &Row<'_>) -> rusqlite::Result<Decided> {
    let trouble: Option<String> = row.get(3)?;
    Ok(Decided {
        queue: queue(row, 0)?,
        state: json(row, 1)?,
        decision: json(row, 2)?,
        trouble: trouble.map(|text| read(3, &text)).transpose()?,
        at: Timestamp(row.get(4)?),
    })
}

const MEMBER: &str = "worker, queue, life, since, node, need";

fn member_row(row: &Row<'_>) -> rusqlite::Result<MemberRow> {
    let life: String = row.get(2)?;
    let life = from_word(&life).map_err(|error| unreadable(2, error))?;
    let node: Option<String> = row.get(4)?;
    let need: Option<String> = row.get(5)?;
    let need = need.map(|text| read(5, &text)).transpose()?;
    Ok(MemberRow {
        worker: WorkerId(row.get(0)?),
        queue: queue(row, 1)?,
        member: Member::new(life, Timestamp(row.get(3)?), node.map(NodeName)).needing(need),
    })
}

fn queue(row: &Row<'_>, column: usize) -> rusqlite::Result<QueueName> {
    row.get::<_, String>(column)?.parse().map_err(|error| unreadable(column, error))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    read(column, &row.get::<_, String>(column)?)
}

pub fn read<T: DeserializeOwned>(column: usize, text: &str) -> rusqlite::Result<T> {
    mutirao_core::tolerant::read(text.as_bytes()).map_err(|error| unreadable(column, error))
}

fn unreadable(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}
