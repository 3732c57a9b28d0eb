//! What the store has of a shard's runs: everything when a post is taken up, and now and then what it was not told of.

use mutirao_core::Problem;
use mutirao_nodes::wire::TaskRequest;
use mutirao_shards::Fence;
use mutirao_store::StoreError;

use super::Bench;
use crate::foreman::words::{Admitted, RunKey, Stored};
use crate::store::{RunRecord, RunRow};

/// Runs read at once.
const READ_AT_ONCE: usize = 100;
/// Runs of a shard that are looked at; the others wait for these to end.
const OPEN_MAX: u32 = 20_000;

#[derive(Default)]
pub struct Found {
    pub runs: Vec<(Stored, Option<TaskRequest>)>,
    /// To be cancelled.
    pub cancelled: Vec<RunKey>,
    /// What this program cannot read: another version of it may.
    pub unreadable: Vec<(RunKey, Problem)>,
}

/// What is open; of those that are not `known`, at most `room`, everything.
pub async fn look(
    bench: &Bench,
    fence: &Fence,
    room: usize,
    known: impl Fn(RunKey) -> bool + Send,
) -> Result<Found, StoreError> {
    let open = bench.store.open(fence.shard, OPEN_MAX).await?;
    let cancelled = open.iter().filter(|(_, cancelled)| *cancelled).map(|(run, _)| *run).collect();
    let new: Vec<RunKey> = open.into_iter().map(|(run, _)| run).filter(|run| !known(*run)).take(room).collect();
    let mut found = Found { cancelled, ..Found::default() };
    for some in new.chunks(READ_AT_ONCE) {
        read(bench, some.to_vec(), &mut found).await?;
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

async fn stored(bench: &Bench, record: RunRecord) -> Result<(Stored, Option<TaskRequest>), Problem> {
    let RunRecord { row, definition, input, reply, outcomes, tries } = record;
    let plan = bench.plans.written(&definition).await?;
    let admitted = Admitted { key: row.key, plan, input, started_at: row.started_at };
    Ok((Stored { admitted, outcomes, tries, end: row.end }, reply))
}
