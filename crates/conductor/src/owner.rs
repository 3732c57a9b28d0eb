//! The loop of an owner: it looks at what is deployed, at hosts and at what they say, and writes what follows from it. All of it
//! is read anew each time, so that whoever takes a shard over needs to be told nothing. Who runs what says [`placing`], what is
//! kept [`keeping`]; here is what carries that out.
//!
//! [`placing`]: crate::placing
//! [`keeping`]: crate::keeping

mod moves;
mod rounds;
mod sweeping;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_core::blobs::Blobs;
use mutirao_core::{Clock, Mono, ShardId, Timestamp};
use mutirao_shards::{Fence, Shards};
use mutirao_store::StoreError;
use mutirao_streams::wire::{BEAT_MS, Part, Report, StreamId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::graphs::{Graphs, Read};
use crate::placing::{self, Decision, Host, HostId, Life, Wanted};
use crate::silence::Ears;
use crate::store::{Batch, Event, Fate, Held, HostRow, PartRow, Shared as Store, StreamRow, StreamState};
use crate::{GROUP, keeping, meters, needs};
use rounds::Rounds;

/// How often an owner looks, if nothing rings.
const LOOK: Duration = Duration::from_millis(500);
/// And at least so long after it looked last, however often it rings.
const LOOK_MIN: Duration = Duration::from_millis(20);

/// A host that hears nothing of a part any more has stopped it by then, or says that it has not.
const STOPPED_AFTER: Duration = Duration::from_millis(5 * BEAT_MS / 2);

/// What an owner works with.
#[derive(Clone)]
pub struct Bench {
    pub store: Store,
    pub graphs: Arc<Graphs>,
    pub shards: Shards,
    pub broker: Broker,
    pub blobs: Arc<dyn Blobs>,
    pub clock: Arc<dyn Clock>,
    /// Rung when there may be something to decide.
    pub bell: Arc<Notify>,
    pub ears: Arc<Mutex<Ears>>,
    /// Whether replicas move by what is measured, and how.
    pub mover: mutirao_movers::Settings,
}

/// What is there, as it was read just now.
struct Sight {
    now: Timestamp,
    fences: BTreeMap<ShardId, Fence>,
    held: Held,
    graphs: HashMap<StreamId, Arc<Read>>,
    hosts: Vec<(HostRow, Life)>,
}

pub async fn run(bench: Bench) {
    tokio::join!(look(bench.clone()), sweeping::run(bench));
}

async fn look(bench: Bench) {
    let mut trouble = false;
    let mut rounds = Rounds::of(bench.mover.clone());
    loop {
        tokio::select! {
            () = bench.bell.notified() => bench.clock.sleep(LOOK_MIN).await,
            () = bench.clock.sleep(LOOK) => {}
        }
        match round(&bench, &mut rounds).await {
            Ok(()) => trouble = false,
            // The store says a lack of rights for everybody.
            Err(error) if trouble || matches!(error, StoreError::Denied { .. }) => {
                tracing::debug!(%error, "streams cannot be looked after");
            }
            Err(error) => {
                trouble = true;
                tracing::warn!(%error, "streams cannot be looked after; hosts go on with what they have");
            }
        }
    }
}

/// Once more, for what hosts said last: whoever comes next finds it written down.
pub async fn last_look(bench: &Bench) {
    if let Err(error) = round(bench, &mut Rounds::of(bench.mover.clone())).await {
        tracing::debug!(%error, "what hosts of streams said last is not written down");
    }
}

async fn round(bench: &Bench, rounds: &mut Rounds) -> Result<(), StoreError> {
    let Some(sight) = bench.see().await? else {
        meters::owned(0, 0, 0, 0);
        meters::missing(0.0);
        return Ok(());
    };
    let batches = sight.batches(bench.shards.member().0.as_str(), rounds, bench.clock.monotonic());
    let moved = batches.values().flat_map(|batch| &batch.events).filter(|(_, event)| event.what == PLACE).count();
    for (shard, batch) in batches {
        if !batch.is_empty() {
            bench.write(&sight.fences[&shard], batch).await?;
        }
    }
    meters::moved(moved);
    Ok(())
}

/// What is told of a part that is given to a host, and of one that is nowhere.
const PLACE: &str = "place";
const WAIT: &str = "wait";
/// What a mover found.
const ROUND: &str = "round";
const STOPPING: &str = "the stream that had its name before it is being stopped";

impl Bench {
    /// None where this process owns nothing.
    async fn see(&self) -> Result<Option<Sight>, StoreError> {
        let at = self.clock.monotonic();
        let fences = self.fences(at);
        // Everybody is listened to, so that who takes a shard knows who has been silent.
        let rows = self.store.hosts().await?;
        let now = self.clock.monotonic();
        let hosts = {
            let mut ears = self.ears.lock();
            ears.look(now, rows.iter().map(|row| (row.host.id.as_str(), row.boot, row.beats)));
            rows.into_iter().map(|row| (ears.life(&row.host.id, now), row)).map(|(life, row)| (row, life)).collect()
        };
        if fences.is_empty() {
            return Ok(None);
        }
        let held = self.store.held(fences.keys().copied().collect()).await?;
        let graphs = self.graphs.of(held.streams.iter().map(|row| &row.id)).await?;
        Ok(Some(Sight { now: self.clock.now(), fences, held, graphs, hosts }))
    }

    fn fences(&self, now: Mono) -> BTreeMap<ShardId, Fence> {
        let owned = self.shards.owned();
        let board = owned.borrow();
        let held = board.iter().filter(|(_, tenure)| tenure.holds(now));
        held.map(|(shard, tenure)| (*shard, Fence { group: GROUP, shard: *shard, generation: tenure.generation }))
            .collect()
    }

    async fn write(&self, fence: &Fence, batch: Batch) -> Result<Fate, StoreError> {
        let fate = self.store.write(fence.clone(), Arc::new(batch)).await?;
        if fate == Fate::Fenced {
            tracing::debug!(shard = %fence.shard, "a shard of streams has another owner; nothing was written");
        }
        Ok(fate)
    }
}

impl Sight {
    /// What is to be written, by shard.
    fn batches(&self, me: &str, rounds: &mut Rounds, now: Mono) -> BTreeMap<ShardId, Batch> {
        let mut batches: BTreeMap<ShardId, Batch> = BTreeMap::new();
        let shard_of: HashMap<&StreamId, ShardId> = self.held.streams.iter().map(|row| (&row.id, row.shard)).collect();
        let hosts: Vec<Host> = self.hosts.iter().map(|(row, life)| host(row, *life)).collect();
        let (wanted, held_up) = self.wanted();
        let placed = placing::place(&hosts, &wanted, &self.others());
        let decisions = placed.decisions;
        let rows: HashMap<&Part, &PartRow> = self.held.parts.iter().map(|row| (&row.part, row)).collect();
        let mut decided = HashSet::new();
        for decision in &decisions {
            let Some(shard) = shard_of.get(&decision.part.stream) else { continue };
            decided.insert(decision.part.clone());
            let batch = batches.entry(*shard).or_default();
            batch.parts.push(self.row(decision));
            batch.events.push((decision.part.stream.clone(), self.told(me, decision)));
        }
        // Why what is nowhere is nowhere, each time that the reason is another.
        let epoch = |part: &Part| rows.get(part).map_or(0, |row| row.epoch);
        let nowhere = placed.nowhere.into_iter().filter(|(part, _)| !decided.contains(part));
        let nowhere = nowhere.map(|(part, why)| (epoch(&part), part, why.to_string())).collect::<Vec<_>>();
        let held_up = held_up.into_iter().map(|part| (epoch(&part), part, STOPPING.to_owned()));
        for (epoch, part, why) in nowhere.into_iter().chain(held_up) {
            if rows.get(&part).is_some_and(|row| row.why == why && row.seat.is_none()) {
                continue;
            }
            let Some(shard) = shard_of.get(&part.stream) else { continue };
            let batch = batches.entry(*shard).or_default();
            let detail = format!("{} has no host: {why}", self.shown(&part));
            batch.events.push((part.stream.clone(), self.event(me, WAIT, detail)));
            batch.parts.push(PartRow { part, seat: None, epoch, why, since: self.now });
        }
        self.moves(me, &hosts, &wanted, &mut batches, &shard_of);
        for said in rounds.go_on(self, &hosts, &wanted, now) {
            let Some(shard) = shard_of.get(&said.stream) else { continue };
            let batch = batches.entry(*shard).or_default();
            batch.moves.extend(said.moves);
            batch.events.extend(said.told.map(|told| (said.stream, self.event(rounds::WHO, ROUND, told))));
        }
        self.snapshots(&mut batches, &shard_of);
        self.measure(&wanted, &decisions);
        batches
    }

    /// All parts that are to be run; and those that wait for others to stop.
    fn wanted(&self) -> (Vec<Wanted>, Vec<Part>) {
        let rows: HashMap<&Part, &PartRow> = self.held.parts.iter().map(|row| (&row.part, row)).collect();
        let (mut wanted, mut held_up) = (Vec::new(), Vec::new());
        for stream in self.held.streams.iter().filter(|row| row.state != StreamState::Deleted) {
            let Some(Ok(graph)) = self.graphs.get(&stream.id).map(|read| &read.graph) else { continue };
            // Both would write to the same places.
            let before = self.held.streams.iter().find(|before| self.is_before(before, stream));
            for (part, needs) in needs::parts(&stream.id, graph) {
                let row = rows.get(&part);
                let (seat, epoch) = row.map_or((None, 0), |row| (row.seat.clone(), row.epoch));
                match before {
                    Some(_) if seat.is_none() => held_up.push(part),
                    _ => {
                        let bound_for = self.held.moves.iter().find(|one| one.part == part).map(|one| one.to.clone());
                        wanted.push(Wanted { part, needs, seat, epoch, bound_for });
                    }
                }
            }
        }
        (wanted, held_up)
    }

    /// Whether it was of the same name, and is not stopped yet.
    fn is_before(&self, before: &StreamRow, now: &StreamRow) -> bool {
        before.state == StreamState::Deleted
            && (&before.namespace, &before.name) == (&now.namespace, &now.name)
            && self.is_stopping(before)
    }

    /// Whether there may be hosts that still run parts of it, though it was deleted.
    fn is_stopping(&self, row: &StreamRow) -> bool {
        // Who was told to begin just before may not have said so yet.
        if self.now.since(row.changed_at) < STOPPED_AFTER {
            return true;
        }
        let alive = self.hosts.iter().filter(|(_, life)| *life == Life::Alive);
        alive.flat_map(|(row, _)| &row.reports).any(|report| report.part.stream == row.id)
    }

    /// How much hosts have to do for streams of other owners, by what they say.
    fn others(&self) -> BTreeMap<HostId, u32> {
        let ours: HashSet<&StreamId> = self.held.streams.iter().map(|row| &row.id).collect();
        let count = |row: &HostRow| row.reports.iter().filter(|report| !ours.contains(&report.part.stream)).count();
        self.hosts.iter().map(|(row, _)| (row.host.id.clone(), count(row) as u32)).collect()
    }

    fn row(&self, decision: &Decision) -> PartRow {
        let Decision { part, to, epoch, why, .. } = decision;
        PartRow { part: part.clone(), seat: to.clone(), epoch: *epoch, why: why.to_string(), since: self.now }
    }

    fn told(&self, me: &str, decision: &Decision) -> Event {
        let (part, why) = (self.shown(&decision.part), &decision.why);
        match &decision.to {
            Some(seat) => {
                let named = self.hosts.iter().find(|(row, _)| row.host.id == seat.host);
                let host = named.map_or(seat.host.as_str(), |(row, _)| row.host.name.as_str());
                self.event(me, PLACE, format!("{part} on {host}, epoch {}: {why}", decision.epoch))
            }
            None => self.event(me, WAIT, format!("{part} has no host: {why}")),
        }
    }

    fn event(&self, me: &str, what: &str, detail: String) -> Event {
        Event { at: self.now, who: me.to_owned(), what: what.to_owned(), detail }
    }

    fn shown(&self, part: &Part) -> String {
        match self.graphs.get(&part.stream).map(|read| &read.graph) {
            Some(Ok(graph)) => needs::shown(graph, part),
            _ => format!("{:?}", part.what),
        }
    }

    fn snapshots(&self, batches: &mut BTreeMap<ShardId, Batch>, shard_of: &HashMap<&StreamId, ShardId>) {
        let epochs: BTreeMap<Part, u64> = self.held.parts.iter().map(|row| (row.part.clone(), row.epoch)).collect();
        let all =
            self.hosts.iter().flat_map(|(row, _)| row.reports.iter().map(|report| (row.host.id.as_str(), report)));
        let reports: Vec<(&str, &Report)> = all.collect();
        let seats = self.held.parts.iter().filter_map(|row| Some((row.seat.as_ref()?.host.as_str(), &row.part)));
        let moves = self.held.moves.iter().map(|one| (one.to.as_str(), &one.part));
        let given = seats.chain(moves).collect();
        let changes = keeping::fold(&self.held.snapshots, &reports, &given, &epochs, self.now);
        let owner: HashMap<&str, ShardId> = self
            .held
            .snapshots
            .iter()
            .chain(&changes.add)
            .filter_map(|kept| Some((kept.snapshot.key.as_str(), *shard_of.get(&kept.part.stream)?)))
            .collect();
        for kept in &changes.add {
            if let Some(shard) = owner.get(kept.snapshot.key.as_str()) {
                batches.entry(*shard).or_default().snapshots.push(kept.clone());
            }
        }
        for (key, at) in &changes.retire {
            if let Some(shard) = owner.get(key.as_str()) {
                batches.entry(*shard).or_default().retired.push((key.clone(), *at));
            }
        }
    }

    fn measure(&self, wanted: &[Wanted], decisions: &[Decision]) {
        let moved: BTreeSet<&Part> = decisions.iter().filter(|one| one.to.is_some()).map(|one| &one.part).collect();
        let placed = wanted.iter().filter(|one| one.seat.is_some() || moved.contains(&one.part)).count();
        let alive = self.hosts.iter().filter(|(_, life)| *life == Life::Alive).count();
        let streams: Vec<&StreamRow> =
            self.held.streams.iter().filter(|row| row.state != StreamState::Deleted).collect();
        meters::owned(streams.len(), placed, wanted.len() - placed, alive);
    }
}

/// As placing sees it.
pub(crate) fn host(row: &HostRow, life: Life) -> Host {
    let (id, name) = (row.host.id.clone(), row.host.name.clone());
    let node = &row.node;
    let free_bytes = (node.memory_total_bytes > 0).then(|| node.memory_total_bytes.saturating_sub(node.memory_bytes));
    Host { id, name, boot: row.boot, standing: row.host.standing, cores: row.host.cores, free_bytes, life }
}
