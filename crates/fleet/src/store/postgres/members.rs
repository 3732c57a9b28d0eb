//! Records of workers, many at once.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::{QueueName, WorkerId};
use mutirao_elastic::fleet::Member;
use mutirao_elastic::packing::NodeName;
use mutirao_elastic::protocol::Record;
use mutirao_store::StoreError;
use mutirao_store::postgres::{Ask, Row, Transaction, text};

use super::audit;
use crate::store::{By, word};

/// Records by column, as PostgreSQL takes arrays.
struct Columns {
    workers: Vec<String>,
    lives: Vec<String>,
    since: Vec<i64>,
    nodes: Vec<Option<String>>,
}

impl Columns {
    fn of(members: &BTreeMap<WorkerId, Member>) -> Self {
        let node = |node: &NodeName| text(&node.0).into_owned();
        Self {
            workers: plain(members.keys()),
            lives: members.values().map(|member| word(&member.life)).collect(),
            since: members.values().map(|member| member.since.0).collect(),
            nodes: members.values().map(|member| member.node.as_ref().map(node)).collect(),
        }
    }
}

fn plain<'a>(workers: impl IntoIterator<Item = &'a WorkerId>) -> Vec<String> {
    workers.into_iter().map(|worker| text(&worker.0).into_owned()).collect()
}

/// Those that have no record in this queue are given back.
pub async fn update(tx: &Transaction<'_>, queue: &QueueName, record: &Record) -> Result<Vec<WorkerId>, StoreError> {
    if record.members.is_empty() {
        return Ok(Vec::new());
    }
    let Columns { workers, lives, since, nodes } = Columns::of(&record.members);
    let update = "UPDATE fleet_members m SET life = new.life, since = new.since, node = new.node
                  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) AS new (worker, life, since, node)
                  WHERE m.worker = new.worker AND m.queue = $5 RETURNING m.worker";
    let known = names(&tx.rows(update, &[&workers, &lives, &since, &nodes, &queue.as_str()]).await?)?;
    Ok(record.members.keys().filter(|worker| !known.contains(&*text(&worker.0))).cloned().collect())
}

pub async fn insert(
    tx: &Transaction<'_>,
    queue: &QueueName,
    members: &BTreeMap<WorkerId, Member>,
    by: &By,
) -> Result<(), StoreError> {
    let Columns { workers, lives, since, nodes } = Columns::of(members);
    let insert = "INSERT INTO fleet_members (worker, queue, life, since, node)
                  SELECT worker, $5, life, since, node
                  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) AS new (worker, life, since, node)
                  ON CONFLICT (worker) DO NOTHING";
    tx.run(insert, &[&workers, &lives, &since, &nodes, &queue.as_str()]).await?;
    audit(tx, by, "worker.adopt", &workers).await
}

/// Those who are gone lose their records, those who are dismissed keep them until they are gone. Only workers of this queue.
pub async fn dismiss(tx: &Transaction<'_>, queue: &QueueName, record: &Record, by: &By) -> Result<(), StoreError> {
    let queue = queue.as_str();
    let mut to_revoke = Vec::new();
    if !record.gone.is_empty() {
        let forget = "DELETE FROM fleet_members WHERE worker = ANY($1) AND queue = $2 RETURNING worker";
        let gone = names(&tx.rows(forget, &[&plain(&record.gone), &queue]).await?)?;
        let gone: Vec<String> = gone.into_iter().collect();
        tx.run("DELETE FROM fleet_draining WHERE worker = ANY($1)", &[&gone]).await?;
        audit(tx, by, "worker.gone", &gone).await?;
        to_revoke.extend(gone);
    }
    if !record.dismissed.is_empty() {
        let known = "SELECT worker FROM fleet_members WHERE worker = ANY($1) AND queue = $2";
        let dismissed = names(&tx.rows(known, &[&plain(&record.dismissed), &queue]).await?)?;
        let dismissed: Vec<String> = dismissed.into_iter().collect();
        audit(tx, by, "worker.dismiss", &dismissed).await?;
        to_revoke.extend(dismissed);
    }
    if to_revoke.is_empty() {
        return Ok(());
    }
    let note = "INSERT INTO fleet_revocations (worker, at) SELECT worker, $2 FROM unnest($1::text[]) AS new (worker)
                ON CONFLICT (worker) DO NOTHING";
    tx.run(note, &[&to_revoke, &by.at.0]).await.map(drop)
}

fn names(rows: &[Row]) -> Result<BTreeSet<String>, StoreError> {
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
