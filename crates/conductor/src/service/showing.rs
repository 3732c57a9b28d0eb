//! Streams as they are, put together of what was placed and of what hosts say.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_store::refused;
use mutirao_streams::Graph;
use mutirao_streams::graph::view::GraphView;
use mutirao_streams::wire::{LEASE_MS, Part, Report, State, StreamId};

use super::{PAGE_MAX, Streams};
use crate::graphs::Read;
use crate::moving::Move;
use crate::placing::Life;
use crate::store::{HostRow, Kept, PartRow, StreamRow, StreamState};
use crate::view::{Explained, Health, HostLine, MoveView, PartView, StreamLine, StreamView};
use crate::{keeping, needs};

/// What happened last, in an explanation.
const EVENTS_SHOWN: u32 = 30;

/// What hosts say, by part.
pub(super) struct Said {
    pub hosts: BTreeMap<String, (HostRow, Life)>,
}

impl Said {
    /// Of a part under an epoch.
    pub fn of(&self, host: &str, part: &Part, epoch: u64) -> Option<&Report> {
        self.hosts.get(host)?.0.reports.iter().find(|report| report.part == *part && report.epoch == epoch)
    }
}

impl Streams {
    /// By name, those after this one.
    pub async fn streams(&self, caller: &Principal, after: &str, rows: u32) -> Result<Vec<StreamLine>, Problem> {
        let page = self.0.store.streams(caller.namespace.clone(), after.into(), rows.clamp(1, PAGE_MAX)).await;
        let rows = page.map_err(refused)?;
        let ids: Vec<StreamId> = rows.iter().map(|row| row.id.clone()).collect();
        let mut parts: HashMap<StreamId, Vec<PartRow>> = HashMap::new();
        for row in self.0.store.parts(ids).await.map_err(refused)? {
            parts.entry(row.part.stream.clone()).or_default().push(row);
        }
        let said = self.said().await?;
        let of = |row: &StreamRow| {
            let read = self.0.graphs.keep(row);
            let views = views(&read, parts.get(&row.id).map(Vec::as_slice).unwrap_or_default(), &said, &[], &[]);
            line(row, &views, &read)
        };
        Ok(rows.iter().map(of).collect())
    }

    pub async fn stream(&self, caller: &Principal, name: &str) -> Result<StreamView, Problem> {
        let (row, read, parts) = self.whole(caller, name).await?;
        let graph = read.graph.as_ref().ok();
        let line = line(&row, &parts, &read);
        Ok(StreamView {
            line,
            definition: row.definition,
            parts,
            pushes: graph.map(pushes).unwrap_or_default(),
            ports: graph.map(super::tapping::ports).unwrap_or_default(),
        })
    }

    async fn whole(&self, caller: &Principal, name: &str) -> Result<(StreamRow, Arc<Read>, Vec<PartView>), Problem> {
        let row = self.row(caller, name).await?;
        let read = self.0.graphs.keep(&row);
        let ids = vec![row.id.clone()];
        let rows = self.0.store.parts(ids.clone()).await.map_err(refused)?;
        let moves = self.0.store.moves(ids.clone()).await.map_err(refused)?;
        let kept = self.0.store.snapshots(ids).await.map_err(refused)?;
        let parts = views(&read, &rows, &self.said().await?, &kept, &moves);
        Ok((row, read, parts))
    }

    pub async fn graph(&self, caller: &Principal, name: &str) -> Result<GraphView, Problem> {
        let row = self.row(caller, name).await?;
        match &self.0.graphs.keep(&row).graph {
            Ok(graph) => Ok(graph.view()),
            Err(why) => Err(Problem::conflict(unreadable(why))),
        }
    }

    pub async fn explain(&self, caller: &Principal, name: &str) -> Result<Explained, Problem> {
        let (row, read, parts) = self.whole(caller, name).await?;
        let events = self.0.store.history(caller.namespace.clone(), name.into(), EVENTS_SHOWN).await;
        let troubles = match &read.graph {
            Ok(_) => troubles(&row, &parts),
            Err(why) => vec![unreadable(why)],
        };
        let StreamLine { name, id, state, health, .. } = line(&row, &parts, &read);
        Ok(Explained { name, id, state, health, troubles, parts, events: events.map_err(refused)? })
    }

    pub async fn hosts(&self) -> Result<Vec<HostLine>, Problem> {
        let said = self.said().await?;
        let line = |(row, life): (HostRow, Life)| HostLine {
            alive: life == Life::Alive,
            heard_at: row.heard_at,
            parts: row.reports.len() as u32,
            node: row.node,
            host: row.host,
        };
        Ok(said.hosts.into_values().map(line).collect())
    }

    pub(super) async fn said(&self) -> Result<Said, Problem> {
        let rows = self.0.store.hosts().await.map_err(refused)?;
        let (ears, now) = (self.0.bench.ears.lock(), self.0.clock.monotonic());
        let of = |row: HostRow| {
            // One that was met since the last look is as alive as can be.
            let met = ears.knows(&row.host.id, row.boot);
            let life = if met { ears.life(&row.host.id, now) } else { Life::Alive };
            (row.host.id.clone(), (row, life))
        };
        Ok(Said { hosts: rows.into_iter().map(of).collect() })
    }
}

fn pushes(graph: &Graph) -> Vec<String> {
    let pushed = graph.sources.iter().filter(|source| source.from == mutirao_streams::graph::From::Http);
    pushed.map(|source| source.name.clone()).collect()
}

pub(super) fn unreadable(why: &str) -> String {
    format!("this version cannot read its definition: {why}")
}

fn views(read: &Read, rows: &[PartRow], said: &Said, kept: &[Kept], moves: &[Move]) -> Vec<PartView> {
    let rows_of: HashMap<&Part, &PartRow> = rows.iter().map(|row| (&row.part, row)).collect();
    let view = |row: &PartRow| {
        let (kind, name) = match &read.graph {
            Ok(graph) => needs::named(graph, row.part.what),
            Err(_) => ("part", format!("{:?}", row.part.what)),
        };
        let host = row.seat.as_ref().and_then(|seat| said.hosts.get(&seat.host));
        let report = row.seat.as_ref().and_then(|_| host?.0.reports.iter().find(|report| is_of(report, row)));
        let snapshot = keeping::newest_first(kept, &row.part.stream, row.part.what);
        PartView {
            kind: kind.to_owned(),
            name,
            replica: row.part.replica,
            host: row.seat.as_ref().map(|seat| host.map_or(seat.host.clone(), |(row, _)| row.host.name.clone())),
            epoch: row.epoch,
            why: row.why.clone(),
            since: row.since,
            state: state(host, report),
            heard_at: host.map(|(row, _)| row.heard_at),
            next: report.map_or(0, |report| report.next),
            lag: report.map_or(0, |report| report.measures.queue),
            snapshot: snapshot.first().map(|snapshot| snapshot.offset),
            measures: report.filter(|_| !is_silent(host)).map(|report| report.measures).unwrap_or_default(),
            moves: moves.iter().find(|one| one.part == row.part).map(|one| on_its_way(one, said)),
        }
    };
    // Those that nobody has placed yet are parts all the same.
    let stream = rows.first().map(|row| row.part.stream.clone());
    let wanted = match (&read.graph, stream) {
        (Ok(graph), Some(stream)) => needs::parts(&stream, graph),
        _ => Vec::new(),
    };
    match wanted.is_empty() {
        true => rows.iter().map(view).collect(),
        false => wanted.iter().filter_map(|(part, _)| rows_of.get(part)).map(|row| view(row)).collect(),
    }
}

fn is_silent(host: Option<&(HostRow, Life)>) -> bool {
    host.is_some_and(|(_, life)| *life == Life::Gone)
}

/// What a silent host said last of a part is not how it is.
fn state(host: Option<&(HostRow, Life)>, report: Option<&Report>) -> Option<State> {
    let (said, (row, _)) = (report.map(|report| report.state.clone()), host?);
    match said {
        Some(State::Ended | State::Failed(_)) => said,
        _ if is_silent(host) => {
            let (name, seconds) = (&row.host.name, LEASE_MS / 1_000);
            let then = "it goes to one that may run it, or on there once that is back";
            Some(State::Waiting(format!("nothing was heard of its host {name} for {seconds} s; {then}")))
        }
        _ => said,
    }
}

fn on_its_way(one: &Move, said: &Said) -> MoveView {
    let host = said.hosts.get(&one.to).map(|(row, _)| row);
    let epoch = one.begun.map(|begun| begun.epoch);
    let told = |row: &&HostRow| {
        row.reports.iter().find(|report| report.part == one.part && Some(report.epoch) == epoch).cloned()
    };
    let report = host.as_ref().and_then(told);
    MoveView {
        to: host.map_or_else(|| one.to.clone(), |row| row.host.name.clone()),
        who: one.who.clone(),
        why: one.why.clone(),
        since: one.since,
        next: report.as_ref().map_or(0, |report| report.next),
        state: report.map(|report| report.state),
    }
}

fn is_of(report: &Report, row: &PartRow) -> bool {
    report.part == row.part && report.epoch == row.epoch
}

fn line(row: &StreamRow, parts: &[PartView], read: &Read) -> StreamLine {
    let running = parts.iter().filter(|part| matches!(part.state, Some(State::Running | State::Ended))).count() as u32;
    let wanted = read.graph.as_ref().map_or(parts.len(), |graph| needs::parts(&row.id, graph).len());
    StreamLine {
        name: row.name.clone(),
        id: row.id.clone(),
        state: row.state,
        owner: row.owner.clone(),
        health: health(row, parts, wanted, read),
        wanted: wanted as u32,
        running,
        deployed_at: row.deployed_at,
        changed_at: row.changed_at,
        changed_by: row.changed_by.clone(),
    }
}

fn health(row: &StreamRow, parts: &[PartView], wanted: usize, read: &Read) -> Health {
    let any = |is: fn(&PartView) -> bool| parts.iter().any(is);
    // While one replica of a stage runs, nothing is missing yet.
    let alone = |part: &PartView| {
        !parts.iter().any(|other| (&other.kind, &other.name) == (&part.kind, &part.name) && other.host.is_some())
    };
    if read.graph.is_err()
        || any(|part| matches!(part.state, Some(State::Failed(_))))
        || parts.iter().any(|part| part.host.is_none() && alone(part))
    {
        return Health::Bad;
    }
    if any(|part| matches!(part.state, Some(State::Waiting(_))) || part.host.is_none()) {
        return Health::Waiting;
    }
    if row.state == StreamState::Paused {
        return Health::Paused;
    }
    let coming = |part: &PartView| matches!(part.state, None | Some(State::Starting | State::CatchingUp));
    if parts.len() < wanted || any(coming) {
        return Health::Coming;
    }
    if !parts.is_empty() && parts.iter().all(|part| part.state == Some(State::Ended)) {
        return Health::Ended;
    }
    Health::Good
}

/// A stage that waits for those after it more than this share of the time is held back.
const HELD_BACK: f64 = 0.5;

fn troubles(row: &StreamRow, parts: &[PartView]) -> Vec<String> {
    let shown = |part: &PartView| match part.kind.as_str() {
        "stage" => format!("stage {}, replica {}", part.name, part.replica),
        kind => format!("{kind} {}", part.name),
    };
    let (mut worst, mut worse, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        let name = shown(part);
        match (&part.host, &part.state) {
            (None, _) => worst.push(format!("{name} has no host: {}", part.why)),
            (_, Some(State::Failed(why))) => worst.push(format!("{name} failed: {why}")),
            (_, Some(State::Waiting(why))) => worse.push(format!("{name} waits: {why}")),
            (Some(host), None) => worse.push(format!("{name} was given to {host}, which says nothing of it yet")),
            (_, Some(State::CatchingUp)) => bad.push(format!("{name} catches up: {} records lie before it", part.lag)),
            _ => {}
        }
        if part.measures.held_back > HELD_BACK {
            let share = (part.measures.held_back * 100.0).round();
            bad.push(format!("{name} waits for those after it, {share} % of the time"));
        }
        if part.measures.unfit > 0 {
            bad.push(format!("{name} met {} events that do not fit", part.measures.unfit));
        }
    }
    if row.state == StreamState::Paused {
        bad.push("it is paused; `mutirao stream resume` lets its sources go on".into());
    }
    worst.into_iter().chain(worse).chain(bad).collect()
}

#[cfg(test)]
mod tests {
    use mutirao_core::Timestamp;
    use mutirao_streams::wire::{HostView, Measures, Standing, Usage, What};

    use super::*;

    #[test]
    fn of_a_silent_host_it_is_said_that_it_is_silent_unless_its_part_was_over() {
        let (id, name) = ("h1".to_owned(), "north".to_owned());
        let (layer, labels) = ("edge".to_owned(), BTreeMap::new());
        let host = HostView { id, name, standing: Standing::Apart, layer, labels, cores: 1, memory_bytes: 1 };
        let (heard_at, node) = (Timestamp(0), Usage::default());
        let row = HostRow { host, boot: 1, beats: 1, heard_at, node, reports: vec![] };
        let part = Part { stream: StreamId("s".into()), what: What::Stage(0), replica: 0 };
        let report = |state| Report {
            part: part.clone(),
            epoch: 1,
            state,
            next: 7,
            snapshot: None,
            measures: Measures::default(),
        };
        let (alive, gone) = ((row.clone(), Life::Alive), (row, Life::Gone));
        assert_eq!(state(Some(&alive), Some(&report(State::Running))), Some(State::Running));
        assert_eq!(state(Some(&gone), Some(&report(State::Ended))), Some(State::Ended));
        for said in [None, Some(report(State::Running))] {
            let Some(State::Waiting(why)) = state(Some(&gone), said.as_ref()) else { panic!("it does not wait") };
            assert!(why.starts_with("nothing was heard of its host north for 5 s"), "{why}");
        }
        assert_eq!(state(None, None), None);
    }
}
