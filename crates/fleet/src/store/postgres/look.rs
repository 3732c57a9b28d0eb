//! Reading what is kept. Readers are tolerant: a manager of the next version, on the same database, may know more fields.

use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::decide::Because;
use mutirao_elastic::fleet::Member;
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::view::HistoryLine;
use mutirao_store::StoreError;
use mutirao_store::postgres::{Ask, Row, text};
use serde::de::DeserializeOwned;

use crate::store::{Decided, Draining, Kept, MemberRow, NodeRow, from_word};

pub async fn kept(sql: &(impl Ask + Sync)) -> Result<Kept, StoreError> {
    let decided = sql.rows(&format!("SELECT {DECIDED} FROM fleet_queues ORDER BY queue"), &[]).await?;
    // The records of workers before those who drain: who is drained in between shows in both or the second.
    let members = sql.rows(&format!("SELECT {MEMBER} FROM fleet_members ORDER BY worker"), &[]).await?;
    Ok(Kept {
        decided: decided.iter().map(decided_row).collect::<Result<_, _>>()?,
        members: members.iter().map(member_row).collect::<Result<_, _>>()?,
        draining: draining(sql).await?,
        nodes: nodes(sql).await?,
    })
}

pub async fn decided(sql: &(impl Ask + Sync), queue: &QueueName) -> Result<Option<Decided>, StoreError> {
    let one = format!("SELECT {DECIDED} FROM fleet_queues WHERE queue = $1");
    sql.row(&one, &[&queue.as_str()]).await?.as_ref().map(decided_row).transpose()
}

pub async fn member(sql: &(impl Ask + Sync), worker: &WorkerId) -> Result<Option<MemberRow>, StoreError> {
    let one = format!("SELECT {MEMBER} FROM fleet_members WHERE worker = $1");
    sql.row(&one, &[&text(&worker.0)]).await?.as_ref().map(member_row).transpose()
}

pub async fn draining(sql: &(impl Ask + Sync)) -> Result<Vec<Draining>, StoreError> {
    let rows = sql.rows("SELECT worker, queue, since, who FROM fleet_draining ORDER BY worker", &[]).await?;
    let draining = |row: &Row| {
        Ok(Draining {
            worker: WorkerId(row.try_get(0)?),
            queue: queue(row, 1)?,
            since: Timestamp(row.try_get(2)?),
            who: row.try_get(3)?,
        })
    };
    rows.iter().map(draining).collect()
}

pub async fn nodes(sql: &(impl Ask + Sync)) -> Result<Vec<NodeRow>, StoreError> {
    let rows = sql.rows("SELECT node, wish, offered_at FROM fleet_nodes ORDER BY name", &[]).await?;
    let node = |row: &Row| {
        Ok(NodeRow {
            node: json(row, 0)?,
            wish: from_word(row.try_get(1)?).map_err(unreadable)?,
            offered_at: row.try_get::<_, Option<i64>>(2)?.map(Timestamp),
        })
    };
    rows.iter().map(node).collect()
}

pub async fn kinds(sql: &(impl Ask + Sync)) -> Result<Option<Vec<Kind>>, StoreError> {
    sql.row("SELECT kinds FROM fleet_kinds", &[]).await?.map(|row| json(&row, 0)).transpose()
}

pub async fn history(
    sql: &(impl Ask + Sync),
    queue: Option<&QueueName>,
    before: i64,
    rows: u32,
) -> Result<Vec<(i64, HistoryLine)>, StoreError> {
    let select = "SELECT seq, queue, at, from_count, to_count, because FROM fleet_changes
                  WHERE seq < $2 AND ($1::text IS NULL OR queue = $1) ORDER BY seq DESC LIMIT $3";
    let rows = sql.rows(select, &[&queue.map(QueueName::as_str), &before, &i64::from(rows)]).await?;
    let line = |row: &Row| {
        let because: Because = json(row, 5)?;
        let line = HistoryLine {
            queue: self::queue(row, 1)?,
            at: Timestamp(row.try_get(2)?),
            from: count(row, 3)?,
            to: count(row, 4)?,
            because: because.to_string(),
        };
        Ok((row.try_get(0)?, line))
    };
    rows.iter().map(line).collect()
}

const DECIDED: &str = "queue, state, decision, trouble, decided_at";

fn decided_row(row: &Row) -> Result<Decided, StoreError> {
    Ok(Decided {
        queue: queue(row, 0)?,
        state: json(row, 1)?,
        decision: json(row, 2)?,
        trouble: row.try_get::<_, Option<&str>>(3)?.map(read).transpose()?,
        at: Timestamp(row.try_get(4)?),
    })
}

const MEMBER: &str = "worker, queue, life, since, node, need";

fn member_row(row: &Row) -> Result<MemberRow, StoreError> {
    let life = from_word(row.try_get(2)?).map_err(unreadable)?;
    let node: Option<String> = row.try_get(4)?;
    let need = row.try_get::<_, Option<&str>>(5)?.map(read).transpose()?;
    Ok(MemberRow {
        worker: WorkerId(row.try_get(0)?),
        queue: queue(row, 1)?,
        member: Member::new(life, Timestamp(row.try_get(3)?), node.map(NodeName)).needing(need),
    })
}

fn queue(row: &Row, column: usize) -> Result<QueueName, StoreError> {
    row.try_get::<_, &str>(column)?.parse().map_err(unreadable)
}

fn count(row: &Row, column: usize) -> Result<u32, StoreError> {
    u32::try_from(row.try_get::<_, i64>(column)?).map_err(unreadable)
}

pub fn json<T: DeserializeOwned>(row: &Row, column: usize) -> Result<T, StoreError> {
    read(row.try_get(column)?)
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    mutirao_core::tolerant::read(text.as_bytes()).map_err(unreadable)
}

/// What is written there is not what this program writes.
fn unreadable(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unusable { path: "the database".into(), why: why.to_string() }
}
