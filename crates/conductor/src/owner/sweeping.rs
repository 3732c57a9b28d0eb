//! What an owner clears away, beside its look: logs up to where nobody needs them, snapshots that nobody reads any more, all that
//! there is of streams that were deleted. It may take its time, and nothing waits for it.

use std::collections::HashSet;
use std::time::Duration;

use mutirao_core::clock::ClockExt;
use mutirao_core::{Mono, ShardId};
use mutirao_streams::wire::{BLOBS, Part, StreamId, What, log_of};

use super::{Bench, Sight};
use crate::keeping;
use crate::placing::{Life, Seat};
use crate::store::{Batch, StreamRow, StreamState};

const EVERY: Duration = Duration::from_secs(2);
/// A broker, or blobs, that take longer are asked again in the next round.
const WITHIN: Duration = Duration::from_secs(10);
/// What a silent host may have made again is looked for so often,
const AGAIN: Duration = Duration::from_secs(30);
/// and given up after so long: it does not come back.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3_600);
/// Snapshots whose blobs are removed in one round.
const REMOVED_MAX: usize = 1_000;

pub async fn run(bench: Bench) {
    let (mut trimmed, mut taken) = (Trimmed::default(), Taken::default());
    loop {
        bench.clock.sleep(EVERY).await;
        match bench.see().await {
            Ok(Some(sight)) => bench.sweep(&sight, &mut trimmed, &mut taken).await,
            Ok(None) => trimmed = Trimmed::default(),
            // The look tells of it.
            Err(error) => tracing::debug!(%error, "nothing of streams is cleared away for now"),
        }
    }
}

/// How far logs were trimmed, so that the broker is asked only when there is something to do.
type Trimmed = std::collections::HashMap<(StreamId, What), u64>;

/// When streams were taken down of which somebody may make something again.
type Taken = std::collections::HashMap<StreamId, Mono>;

impl Bench {
    async fn sweep(&self, sight: &Sight, trimmed: &mut Trimmed, taken: &mut Taken) {
        let there: HashSet<&StreamId> = sight.held.streams.iter().map(|row| &row.id).collect();
        trimmed.retain(|(stream, _), _| there.contains(stream));
        taken.retain(|stream, _| there.contains(stream));
        for row in &sight.held.streams {
            match row.state {
                StreamState::Deleted if !sight.is_stopping(row) => self.take_down(sight, row, taken).await,
                StreamState::Deleted => {}
                _ => self.trim(sight, row, trimmed).await,
            }
        }
        for shard in sight.fences.keys() {
            self.remove_snapshots(sight, *shard).await;
        }
    }

    async fn trim(&self, sight: &Sight, row: &StreamRow, trimmed: &mut Trimmed) {
        let kept = &sight.held.snapshots;
        let mut whats: Vec<What> =
            kept.iter().filter(|one| one.part.stream == row.id).map(|one| one.part.what).collect();
        whats.sort_unstable();
        whats.dedup();
        for what in whats {
            let Some(log) = log_of(&row.id, what) else { continue };
            let before = keeping::trim(kept, &row.id, what, sight.readers(&row.id, what));
            let done = trimmed.get(&(row.id.clone(), what)).copied().unwrap_or(0);
            if before <= done {
                continue;
            }
            match self.clock.timeout(WITHIN, self.broker.trim(&log, before)).await {
                Ok(Ok(())) => _ = trimmed.insert((row.id.clone(), what), before),
                Ok(Err(error)) => tracing::debug!(%error, log, "a log is not shortened for now"),
                Err(_) => tracing::debug!(log, "the broker takes long to shorten a log"),
            }
        }
    }

    async fn remove_snapshots(&self, sight: &Sight, shard: ShardId) {
        let ours: HashSet<&StreamId> =
            sight.held.streams.iter().filter(|row| row.shard == shard).map(|row| &row.id).collect();
        let old = keeping::removable(&sight.held.snapshots, sight.now);
        let mut removed = Vec::new();
        for kept in old.into_iter().filter(|kept| ours.contains(&kept.part.stream)).take(REMOVED_MAX) {
            let Some(folder) = kept.snapshot.key.strip_suffix("state") else { continue };
            match self.clock.timeout(WITHIN, self.blobs.remove_all(folder)).await {
                Ok(Ok(())) => removed.push(kept.snapshot.key.clone()),
                Ok(Err(error)) => tracing::debug!(%error, "a snapshot stays for now"),
                Err(_) => break,
            }
        }
        if !removed.is_empty() {
            self.written(sight, shard, Batch { removed, ..Batch::default() }).await;
        }
    }

    /// Whatever goes first, the row goes last: until then another owner begins anew. It stays for as long as a host is silent
    /// that had a part of it: cut off from us and not from the broker, it may go on, and make a log again that was forgotten.
    async fn take_down(&self, sight: &Sight, row: &StreamRow, taken: &mut Taken) {
        let now = self.clock.monotonic();
        let may_come_back = sight.may_come_back(row);
        if may_come_back && taken.get(&row.id).is_some_and(|last| now.since(*last) < AGAIN) {
            return;
        }
        let mut whats: Vec<What> = match sight.graphs.get(&row.id).map(|read| &read.graph) {
            Some(Ok(graph)) => mutirao_streams::graph::plan(graph).parts.iter().map(|part| part.what).collect(),
            _ => Vec::new(),
        };
        // What this version cannot read has the parts that it was placed with.
        whats.extend(
            sight.held.parts.iter().map(|row| &row.part).filter(|part| part.stream == row.id).map(|part| part.what),
        );
        whats.sort_unstable();
        whats.dedup();
        for log in whats.into_iter().filter_map(|what| log_of(&row.id, what)) {
            match self.clock.timeout(WITHIN, self.broker.forget(&log)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return tracing::debug!(%error, log, "a log of a deleted stream stays for now"),
                Err(_) => return tracing::debug!(log, "the broker takes long to forget a log"),
            }
        }
        let folder = format!("{BLOBS}{}/", row.id);
        match self.clock.timeout(WITHIN, self.blobs.remove_all(&folder)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return tracing::debug!(%error, "snapshots of a deleted stream stay for now"),
            Err(_) => return,
        }
        if may_come_back {
            taken.insert(row.id.clone(), now);
            return;
        }
        self.graphs.forget(&row.id);
        self.written(sight, row.shard, Batch { gone: vec![row.id.clone()], ..Batch::default() }).await;
    }

    async fn written(&self, sight: &Sight, shard: ShardId, batch: Batch) {
        let Some(fence) = sight.fences.get(&shard) else { return };
        if let Err(error) = self.write(fence, batch).await {
            tracing::debug!(%error, "what was cleared away is not written down yet");
        }
    }
}

impl Sight {
    /// Whether somebody who ran a part of it was not heard since, and may run it still.
    fn may_come_back(&self, row: &StreamRow) -> bool {
        let seats =
            self.held.parts.iter().filter(|part| part.part.stream == row.id).filter_map(|part| part.seat.as_ref());
        let is_silent = |seat: &Seat| {
            let mut gone = self.hosts.iter().filter(|(_, life)| *life == Life::Gone);
            gone.any(|(host, _)| host.host.id == seat.host && host.boot == seat.boot)
        };
        self.now.since(row.changed_at) < FORGOTTEN_AFTER && seats.clone().any(is_silent)
    }

    /// Where readers of a log are who can be heard.
    fn readers(&self, stream: &StreamId, what: What) -> Vec<u64> {
        let alive = self.hosts.iter().filter(|(_, life)| *life == Life::Alive);
        let reads = |part: &Part| part.stream == *stream && part.what == what;
        alive.flat_map(|(row, _)| &row.reports).filter(|report| reads(&report.part)).map(|report| report.next).collect()
    }
}
