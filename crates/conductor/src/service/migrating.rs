//! Moves that somebody asks for: held against the rules at once, so that a refusal is an answer, and by the owner again when it
//! begins.

use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_store::refused;
use mutirao_streams::Graph;
use mutirao_streams::wire::{Part, What};

use super::Streams;
use super::showing::Said;
use crate::moving::{self, Move};
use crate::needs;
use crate::owner;
use crate::placing::{Host, Refused, Wanted, Wish};
use crate::view::{Migrate, Migrating};

impl Streams {
    pub async fn migrate(&self, caller: &Principal, name: &str, ask: Migrate) -> Result<Migrating, Problem> {
        let row = self.row(caller, name).await?;
        let read = self.0.graphs.keep(&row);
        let graph = read.graph.as_ref().map_err(|why| Problem::conflict(super::showing::unreadable(why)))?;
        let part = Part { stream: row.id.clone(), what: stage_of(graph, &ask.stage)?, replica: ask.replica };
        let What::Stage(stage) = part.what else { return Err(Problem::internal()) };
        let replicas = graph.stages[stage as usize].replicas;
        if ask.replica >= replicas {
            let most = replicas - 1;
            return Err(Problem::invalid("replica", format!("stage {} has replicas 0 to {most}", ask.stage)));
        }
        let said = self.said().await?;
        let (hosts, host) = target(&said, &ask.to)?;
        let ids = vec![row.id.clone()];
        let rows = self.0.store.parts(ids.clone()).await.map_err(refused)?;
        let moves = self.0.store.moves(ids).await.map_err(refused)?;
        let wanted: Vec<Wanted> = needs::parts(&row.id, graph)
            .into_iter()
            .map(|(part, needs)| {
                let there = rows.iter().find(|row| row.part == part);
                let (seat, epoch) = there.map_or((None, 0), |row| (row.seat.clone(), row.epoch));
                let bound_for = moves.iter().find(|one| one.part == part).map(|one| one.to.clone());
                Wanted { part, needs, seat, epoch, bound_for }
            })
            .collect();
        let why = format!("{} asked for it", caller.name);
        let bytes = wanted
            .iter()
            .find(|one| one.part == part)
            .map_or(0, |one| moving::memory_of(one, &|host, part, epoch| said.of(host, part, epoch)));
        let wish = Wish { part: part.clone(), to: host.id.clone(), why: why.clone(), bytes };
        let refuse = |why: String| Problem::conflict(format!("{} does not move to {}: {why}", ask.stage, host.name));
        moving::may(&hosts, &wanted, &moves, &wish).map_err(|why| refuse(why.to_string()))?;
        let by = self.by(caller);
        let asked = Move { part, to: host.id.clone(), begun: None, who: by.who.clone(), why, since: by.at };
        if !self.0.store.ask_move(by, asked).await.map_err(refused)? {
            return Err(refuse("it is on its way already".into()));
        }
        self.0.bench.bell.notify_one();
        Ok(Migrating { stage: needs::named(graph, What::Stage(stage)).1, replica: ask.replica, to: host.name.clone() })
    }
}

/// Hosts as they are, and the one that is meant, by its name or id.
fn target(said: &Said, to: &str) -> Result<(Vec<Host>, Host), Problem> {
    let hosts: Vec<Host> = said.hosts.values().map(|(row, life)| owner::host(row, *life)).collect();
    let meant: Vec<&Host> = hosts.iter().filter(|host| host.id == to || host.name == to).collect();
    match meant[..] {
        [host] => {
            let host = host.clone();
            Ok((hosts, host))
        }
        [] => Err(Problem::not_found(format!("there is no host of streams \"{}\"", short(to)))
            .remedy("`mutirao stream hosts` shows those that are there")),
        _ => Err(Problem::conflict(format!("there are several hosts named {}; say its id", short(to)))),
    }
}

/// By the name of a stage, or of any operator in it.
fn stage_of(graph: &Graph, name: &str) -> Result<What, Problem> {
    let stages = (0..graph.stages.len() as u32).map(What::Stage);
    if let Some(what) = stages.clone().find(|what| needs::named(graph, *what).1 == name) {
        return Ok(what);
    }
    let within = |n: &usize| graph.stages[*n].operators.iter().any(|operator| graph.operators[*operator].name == name);
    if let Some(n) = (0..graph.stages.len()).find(within) {
        return Ok(What::Stage(n as u32));
    }
    let others = graph.sources.iter().map(|one| &one.name).chain(graph.sinks.iter().map(|one| &one.name));
    if others.into_iter().any(|other| other == name) {
        return Err(Problem::invalid("stage", Refused::OnlyStages.to_string()));
    }
    let names: Vec<String> = stages.map(|what| needs::named(graph, what).1).collect();
    Err(Problem::not_found(format!("there is no stage \"{}\"; its stages are {}", short(name), names.join(", "))))
}

fn short(text: &str) -> String {
    text.chars().take(100).collect()
}
