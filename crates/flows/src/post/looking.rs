//! What the store has of a shard's runs: everything when a post is taken up, and now and then what it was not told of.

use std::collections::VecDeque;

use mutirao_core::Problem;
use mutirao_shards::Fence;
use mutirao_store::StoreError;

use super::Bench;
use crate::foreman::words::{Admitted, Asker, RunKey, Stored};
use crate::store::{RunRecord, RunRow};
use crate::wire::Reply;

/// Runs read at once, at first and at most; and about how many bytes of them.
const READ_FIRST: usize = 8;
const READ_AT_ONCE: usize = 100;
const READ_BYTES: usize = 4 << 20;
/// Runs of a shard that are looked at; the others wait for these to end.
const OPEN_MAX: u32 = 20_000;

#[derive(Default)]
pub struct Found {
    pub runs: Vec<(Stored, Option<Reply>)>,
    /// To be cancelled.
    pub cancelled: Vec<RunKey>,
    /// What this program cannot read: another version of it may.
    pub unreadable: Vec<(RunKey, Problem)>,
}

/// How much more may be loaded.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub runs: usize,
    pub bytes: usize,
}

/// What is open; of those that are not `known`, as far as there is room, everything.
pub async fn look(
    bench: &Bench,
    fence: &Fence,
    room: Room,
    known: impl Fn(RunKey) -> bool + Send,
) -> Result<Found, StoreError> {
    let open = bench.store.open(fence.shard, OPEN_MAX).await?;
    let cancelled = open.iter().filter(|(_, cancelled)| *cancelled).map(|(run, _)| *run).collect();
    let new = open.into_iter().map(|(run, _)| run).filter(|run| !known(*run)).take(room.runs);
    let mut new: VecDeque<RunKey> = new.collect();
    let (mut found, mut bytes, mut at_once) = (Found { cancelled, ..Found::default() }, 0, READ_FIRST);
    while !new.is_empty() && bytes < room.bytes {
        let (some, had): (Vec<RunKey>, _) = (new.drain(..at_once.min(new.len())).collect(), found.runs.len());
        read(bench, some, &mut found).await?;
        let read_now = &found.runs[had..];
        let grown: usize = read_now.iter().map(|(stored, _)| stored.held()).sum();
        bytes += grown;
        // However large runs are, only so much is read at a time.
        at_once = (READ_BYTES * read_now.len() / grown.max(1)).clamp(1, READ_AT_ONCE);
    }
    Ok(found)
}

/// One run, of which somebody said that it is new, or to be cancelled.
pub async fn look_at(bench: &Bench, run: RunKey) -> Result<Found, StoreError> {
    let mut found = Found::default();
    read(bench, vec![run], &mut found).await?;
    Ok(found)
}

async fn read(bench: &Bench, runs: Vec<RunKey>, found: &mut Found) -> Result<(), StoreError> {
    for record in bench.store.read(runs).await? {
        let RunRow { key, announced, cancelled, .. } = record.row;
        // It may have ended since it was listed.
        if announced {
            continue;
        }
        match stored(bench, record).await {
            Ok(run) => found.runs.push(run),
            Err(problem) => found.unreadable.push((key, problem)),
        }
        found.cancelled.extend(cancelled.then_some(key));
    }
    Ok(())
}

async fn stored(bench: &Bench, record: RunRecord) -> Result<(Stored, Option<Reply>), Problem> {
    let RunRecord { row, definition, input, reply, outcomes, tries, noted } = record;
    let plan = bench.plans.written(&definition).await?;
    let asker = if reply.is_some() { Asker::Client } else { Asker::Reader };
    let admitted = Admitted { key: row.key, plan, input, started_at: row.started_at, asker };
    Ok((Stored { admitted, outcomes, tries, noted, end: row.end }, reply))
}
