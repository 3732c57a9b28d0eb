//! The document's rule for a target: for every resource `u_target + u_part <= u_source`, and for at least one `<`. Nobody knows
//! which resource slows a part down, so none may get worse.
//!
//! What the document leaves open, and what is done:
//! - *Use* is the mean over the round's window, of all messages that hosts' parts sent in it; of network and disk at least what
//!   the parts there use together.
//! - *Each CPU*: a core's number means nothing on another machine, so cores are compared busiest with busiest, second with
//!   second; a core that one machine has not is idle there. A part's own CPU is one figure: it is spread evenly over the target's cores.
//! - *I/O wait* of a part is not measured: nought.
//! - *Of several hosts* the one whose busiest core would be least busy, then the one with the least memory in use, then by id.
//! - *Within a round* what is decided counts: the target's use grows by the part's, the source's shrinks.

use std::collections::BTreeMap;

use mutirao_streams::wire::Part;

use crate::memory::Memory;
use crate::message::{Own, Use};
use crate::round::{Fit, Resource};
use crate::scene::{Board, HostId, Seated};

/// Sums of floats that are equal on paper differ in the last digits.
const SAME: f64 = 1e-9;

/// What is used, by host and by part.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    hosts: BTreeMap<HostId, Use>,
    parts: BTreeMap<Part, Own>,
}

impl Uses {
    pub fn over(memory: &Memory, board: &Board, window_ms: u64) -> Self {
        let mut uses = Self::default();
        let mut heard: BTreeMap<HostId, Vec<&Use>> = BTreeMap::new();
        for seated in &board.scene.parts {
            let mut own: Vec<Own> = Vec::new();
            for message in memory.of(&seated.part, board.scene.now_ms, window_ms) {
                if message.host == seated.host {
                    own.push(message.own);
                    heard.entry(seated.host.clone()).or_default().push(&message.node);
                }
            }
            if !own.is_empty() {
                let mean = |of: fn(&Own) -> f64| own.iter().map(of).sum::<f64>() / own.len() as f64;
                uses.parts.insert(
                    seated.part.clone(),
                    Own {
                        cpu: mean(|own| own.cpu),
                        memory_bytes: mean(|own| own.memory_bytes),
                        disk_bytes: mean(|own| own.disk_bytes),
                        network_bytes: mean(|own| own.network_bytes),
                    },
                );
            }
        }
        uses.hosts = heard.into_iter().map(|(host, heard)| (host, mean(&heard))).collect();
        // Its parts do not speak for a host that has none: it may itself, or nothing is known to be used there.
        for host in &board.scene.hosts {
            let idle = || Use { cpus: vec![0.0; host.cores.max(1.0) as usize], ..Use::default() };
            let said = || host.node.as_ref().map_or_else(idle, |node| mean(&[node]));
            uses.hosts.entry(host.id.clone()).or_insert_with(said);
        }
        uses.at_least_of_parts(board);
        uses
    }

    /// What passes between hosts of one machine is in no figure of its network, and is in those of parts. Held against each other
    /// as they are, no host there would ever fit.
    fn at_least_of_parts(&mut self, board: &Board) {
        for (host, of_host) in &mut self.hosts {
            let there = board.scene.parts.iter().filter(|seated| seated.host == *host);
            let own = || there.clone().filter_map(|seated| self.parts.get(&seated.part));
            let (network, disk) =
                own().fold((0.0, 0.0), |sum, own| (sum.0 + own.network_bytes, sum.1 + own.disk_bytes));
            of_host.network_bytes = of_host.network_bytes.max(network);
            of_host.disk_bytes = of_host.disk_bytes.max(disk);
        }
    }

    /// Where a part could go, and what was found of every other host.
    pub fn look(&self, board: &Board, seated: &Seated) -> Vec<(HostId, Fit)> {
        let hosts = board.scene.hosts.iter().filter(|host| host.id != seated.host);
        hosts
            .map(|host| {
                let fit = match () {
                    () if !host.takes => Fit::TakesNone,
                    () if seated.barred.contains(&host.id) => Fit::Barred,
                    () if board.has_replica(&host.id, &seated.part) => Fit::HasReplica,
                    () => self.fit(board, seated, &host.id),
                };
                (host.id.clone(), fit)
            })
            .collect()
    }

    fn fit(&self, board: &Board, seated: &Seated, target: &str) -> Fit {
        let (Some(own), Some(there), Some(here)) =
            (self.parts.get(&seated.part), self.hosts.get(target), self.hosts.get(&seated.host))
        else {
            return Fit::Unknown;
        };
        let own = beside(own, board, seated, target);
        let mut less = None;
        for (resource, would_be, is) in compared(&own, there, here) {
            if would_be > is + SAME * is.abs().max(1.0) {
                return Fit::Exceeds { resource, would_be, is };
            }
            if would_be < is - SAME * is.abs().max(1.0) && less.is_none() {
                less = Some((resource, would_be, is));
            }
        }
        match less {
            Some((resource, would_be, is)) => Fit::Fits { resource, would_be, is },
            None => Fit::NothingLess,
        }
    }

    /// Of those that fit.
    pub fn best<'a>(&self, found: &'a [(HostId, Fit)]) -> Option<&'a HostId> {
        let fitting = found.iter().filter(|(_, fit)| matches!(fit, Fit::Fits { .. })).map(|(host, _)| host);
        fitting.min_by(|a, b| {
            let rank = |host: &HostId| {
                let there = self.hosts.get(host);
                (there.map_or(0.0, |there| busiest(there, 0)), there.map_or(0.0, |there| there.memory_bytes))
            };
            let (a_rank, b_rank) = (rank(a), rank(b));
            a_rank.0.total_cmp(&b_rank.0).then(a_rank.1.total_cmp(&b_rank.1)).then_with(|| a.cmp(b))
        })
    }

    pub fn moves(&mut self, board: &Board, seated: &Seated, target: &str) {
        let Some(own) = self.parts.get(&seated.part).copied() else { return };
        let arriving = beside(&own, board, seated, target);
        if let Some(there) = self.hosts.get_mut(target) {
            shift(there, &arriving, 1.0);
        }
        if let Some(here) = self.hosts.get_mut(&seated.host) {
            shift(here, &own, -1.0);
        }
    }
}

/// What a part would use on a host: its traffic to neighbours that are there goes through no network.
fn beside(own: &Own, board: &Board, seated: &Seated, target: &str) -> Own {
    let links = seated.links.iter().filter(|(part, _)| board.host_of(part) == Some(target));
    let spared: f64 = links.map(|(_, bytes)| bytes).sum();
    Own { network_bytes: (own.network_bytes - spared).max(0.0), ..*own }
}

fn compared(own: &Own, there: &Use, here: &Use) -> Vec<(Resource, f64, f64)> {
    let cores = there.cpus.len().max(here.cpus.len());
    let share = own.cpu / there.cpus.len().max(1) as f64;
    let mut all: Vec<_> =
        (0..cores).map(|nth| (Resource::Cpu, busiest(there, nth) + share, busiest(here, nth))).collect();
    let waits = there.io_wait.len().max(here.io_wait.len());
    all.extend((0..waits).map(|nth| (Resource::IoWait, nth_of(&there.io_wait, nth), nth_of(&here.io_wait, nth))));
    all.push((Resource::Memory, there.memory_bytes + own.memory_bytes, here.memory_bytes));
    all.push((Resource::Disk, there.disk_bytes + own.disk_bytes, here.disk_bytes));
    all.push((Resource::Network, there.network_bytes + own.network_bytes, here.network_bytes));
    all
}

fn busiest(of: &Use, nth: usize) -> f64 {
    nth_of(&of.cpus, nth)
}

/// The figures come sorted, highest first ([`mean`]).
fn nth_of(of: &[f64], nth: usize) -> f64 {
    of.get(nth).copied().unwrap_or(0.0)
}

fn shift(of: &mut Use, own: &Own, sign: f64) {
    let share = sign * own.cpu / of.cpus.len().max(1) as f64;
    of.cpus.iter_mut().for_each(|core| *core = (*core + share).max(0.0));
    of.memory_bytes = (of.memory_bytes + sign * own.memory_bytes).max(0.0);
    of.disk_bytes = (of.disk_bytes + sign * own.disk_bytes).max(0.0);
    of.network_bytes = (of.network_bytes + sign * own.network_bytes).max(0.0);
}

fn mean(heard: &[&Use]) -> Use {
    let count = heard.len().max(1) as f64;
    let of = |figure: fn(&Use) -> f64| heard.iter().map(|one| figure(one)).sum::<f64>() / count;
    let each = |figures: fn(&Use) -> &Vec<f64>| {
        let width = heard.iter().map(|one| figures(one).len()).max().unwrap_or(0);
        let core = |i: usize| heard.iter().filter_map(|one| figures(one).get(i)).sum::<f64>() / count;
        let mut cores: Vec<f64> = (0..width).map(core).collect();
        cores.sort_by(|a, b| b.total_cmp(a));
        cores
    };
    Use {
        cpus: each(|one| &one.cpus),
        io_wait: each(|one| &one.io_wait),
        memory_bytes: of(|one| one.memory_bytes),
        disk_bytes: of(|one| one.disk_bytes),
        network_bytes: of(|one| one.network_bytes),
    }
}
