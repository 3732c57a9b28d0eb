//! Which host runs which part. No I/O and no clock: what there is goes in, what is to change comes out, each change with its
//! reason. Whoever holds the shard writes the decisions down; hosts hear of them with their next beat.
//!
//! The rules, strongest first:
//!
//! 1. Two replicas of a stage are never on one host: what kills one would kill both.
//! 2. A part runs only where it can: `host: NAME` is that host, and what speaks to the installation's own brokers is inside a
//!    manager.
//! 3. Nothing moves without a reason: its host is gone or has started anew, it must not be there, or somebody asked.
//! 4. What has no place gets the least loaded host, by parts for each core; a replica rather one of another machine than those of
//!    the others, as far as names tell: a host is called as its machine is, unless somebody called it otherwise.
//!
//! Each time that a part is given to a host, or to another life of the same one, its epoch grows. One whose host is gone and
//! that no other can run stays in its name: should it come back, it goes on as if nothing had been.
//!
//! A decision is data, and so is what is asked for ([`Wish`]): people and whoever schedules by measurement ask for moves, which
//! are held against the same rules here, and carried out by [`moving`](crate::moving).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mutirao_streams::wire::{LEASE_MS, Part, Standing, StreamId, What};
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

/// The id of a host: that of its key, or a manager's name.
pub type HostId = String;

/// A host as the owner of a shard sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    pub id: HostId,
    pub name: String,
    pub boot: u64,
    pub standing: Standing,
    pub cores: u32,
    /// Memory of its node that nobody uses, if it says so.
    pub free_bytes: Option<u64>,
    pub life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// It was not heard of for as long as a lease.
    Gone,
}

/// What a part asks of the host that runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Why it runs only inside a manager, if so: `the installation's own MQTT`.
    pub inside: Option<&'static str>,
    /// The name, or the id, of the one host that it may run on.
    pub pin: Option<String>,
}

/// Where a part is: on a host, in one life of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    pub host: HostId,
    pub boot: u64,
}

/// A part that is to be run, with where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub part: Part,
    pub needs: Needs,
    pub seat: Option<Seat>,
    pub epoch: u64,
    /// Where it is on its way to, and runs already or soon will: [`moving`](crate::moving) decides of it until it is there.
    pub bound_for: Option<HostId>,
}

/// Somebody asks for a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub part: Part,
    pub to: HostId,
    /// Whose wish it is and why, in words for `explain`.
    pub why: String,
    /// What it remembers: there must be room for it.
    pub bytes: u64,
}

/// What changes for one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub part: Part,
    pub from: Option<Seat>,
    pub to: Option<Seat>,
    /// Of the part from now on.
    pub epoch: u64,
    pub why: Why,
}

/// In words: its `Display`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Of so many hosts that it could run on, this one has the fewest parts for each core.
    LeastLoaded {
        host: String,
        load: Load,
        among: usize,
    },
    /// The same of those that are called otherwise than where its other replicas are.
    Elsewhere {
        host: String,
        load: Load,
        among: usize,
    },
    /// The only one that it may run on.
    Pinned {
        host: String,
    },
    /// The only one that is left by the other rules.
    OnlyOne {
        host: String,
    },
    /// Its host began anew, and knows nothing of what it did before.
    Restarted {
        host: String,
    },
    /// Its host was not heard of for a lease. What was found in its place follows.
    Silent {
        host: String,
        then: Box<Why>,
    },
    /// It must not be where it was.
    Misplaced {
        host: String,
        because: String,
        then: Box<Why>,
    },
    Wished {
        host: String,
        why: String,
    },
    /// Nobody can run it.
    Nowhere(Nowhere),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nowhere {
    NoHosts,
    PinGone {
        pin: String,
    },
    NeedsInside {
        what: &'static str,
    },
    /// Each host that could has another replica of it.
    TooFewHosts {
        replicas: u32,
    },
}

/// Parts for each core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub parts: u32,
    pub cores: u32,
}

impl Load {
    /// Which is less, by what it would be with one more.
    fn cmp_with_one_more(self, other: Load) -> std::cmp::Ordering {
        let one_more = |load: Load| u64::from(load.parts) + 1;
        let cores = |load: Load| u64::from(load.cores.max(1));
        (one_more(self) * cores(other)).cmp(&(one_more(other) * cores(self)))
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::LeastLoaded { host, load: Load { parts, cores }, among } => {
                write!(f, "of {among} hosts {host} had the fewest parts for each core ({parts} on {cores})")
            }
            Why::Elsewhere { host, load: Load { parts, cores }, among } => write!(
                f,
                "of {among} hosts that are not on the machines of its other replicas, by their names, {host} had the fewest parts \
                 for each core ({parts} on {cores})"
            ),
            Why::Pinned { host } => write!(f, "it is pinned to {host}"),
            Why::OnlyOne { host } => write!(f, "{host} is the only host that can run it"),
            Why::Restarted { host } => write!(f, "{host} started anew"),
            Why::Silent { host, then } => {
                write!(f, "nothing was heard of {host} for {} s; {then}", LEASE_MS / 1_000)
            }
            Why::Misplaced { host, because, then } => write!(f, "it may not be on {host}, {because}; {then}"),
            Why::Wished { host, why } => write!(f, "moved to {host}: {why}"),
            Why::Nowhere(why) => write!(f, "{why}"),
        }
    }
}

impl fmt::Display for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nowhere::NoHosts => {
                f.write_str("there is no host; start one with `mutirao role host`, or set streams.host=inside")
            }
            Nowhere::PinGone { pin } => write!(f, "it is pinned to {pin}, and there is no host of that name"),
            Nowhere::NeedsInside { what } => {
                write!(
                    f,
                    "it needs {what}, and no manager has a host inside; set streams.host=inside, or give it a url"
                )
            }
            Nowhere::TooFewHosts { replicas } => write!(
                f,
                "each of its {replicas} replicas needs a host of its own, and there are not as many; start another with `mutirao role host`"
            ),
        }
    }
}

/// Why a move that was asked for is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("there is no such part")]
    NoPart,
    #[error("there is no host {0}")]
    NoHost(HostId),
    #[error("{0} was not heard of for a while")]
    Gone(HostId),
    #[error("it is on {0} already")]
    Already(HostId),
    #[error("{0} has another replica of it")]
    HasReplica(HostId),
    #[error("it may not be on {host}, {because}")]
    Misplaced { host: HostId, because: String },
    #[error("{host} has {free_mib} MiB of memory free, and it remembers {needs_mib}")]
    Full { host: HostId, free_mib: u64, needs_mib: u64 },
    #[error("replica {replica} of it is on its way; one moves at a time")]
    Moving { replica: u32 },
    #[error("only stages move while they run; a source or a sink must never be twice at once")]
    OnlyStages,
}

/// What [`place`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub decisions: Vec<Decision>,
    /// Those that have no host after it, and why.
    pub nowhere: Vec<(Part, Nowhere)>,
}

/// Who is to run what from now on, as far as that differs from what is. `others`: how many parts of other shards each host
/// has; they are no business of this owner, and weigh as much.
pub fn place(hosts: &[Host], parts: &[Wanted], others: &BTreeMap<HostId, u32>) -> Placed {
    let mut room = Room::new(hosts, parts, others);
    let (mut decisions, mut nowhere) = (Vec::new(), Vec::new());
    // First those that lose their place, so that who looks for one sees what is free.
    let mut seekers: Vec<(&Wanted, Option<Lost>)> = Vec::new();
    for wanted in parts {
        match room.verdict(wanted) {
            Verdict::Stays => {}
            Verdict::Again(host) => {
                let seat = Seat { host: host.id.clone(), boot: host.boot };
                decisions.push(decision(wanted, Some(seat), Why::Restarted { host: host.name.clone() }));
            }
            Verdict::Seeks(lost) => {
                room.leave(wanted);
                seekers.push((wanted, lost));
            }
        }
    }
    // Those with the fewest places to go to first: a replica that takes the one host of a pinned part would be in its way.
    seekers.sort_by_key(|(wanted, _)| (wanted.needs.pin.is_none(), wanted.needs.inside.is_none()));
    for (wanted, lost) in seekers {
        let (seat, why) = match room.find(wanted) {
            Ok((host, why)) => {
                room.enter(wanted, host);
                (Some(Seat { host: host.id.clone(), boot: host.boot }), why)
            }
            // Should its host come back, it goes on there as if nothing had been.
            Err(_) if matches!(lost, Some(Lost::Silent(_))) => {
                room.stay(wanted);
                continue;
            }
            Err(why) => {
                nowhere.push((wanted.part.clone(), why.clone()));
                (None, Why::Nowhere(why))
            }
        };
        // Who had no place and has none is where it was.
        if seat.is_some() || wanted.seat.is_some() {
            decisions.push(decision(wanted, seat, lost.map_or_else(|| why.clone(), |lost| lost.then(why.clone()))));
        }
    }
    Placed { decisions, nowhere }
}

/// Moves one part, if the rules let it.
pub fn wish(hosts: &[Host], parts: &[Wanted], wish: &Wish) -> Result<Decision, Refused> {
    let wanted = parts.iter().find(|wanted| wanted.part == wish.part).ok_or(Refused::NoPart)?;
    let host = hosts.iter().find(|host| host.id == wish.to).ok_or_else(|| Refused::NoHost(wish.to.clone()))?;
    if host.life == Life::Gone {
        return Err(Refused::Gone(host.name.clone()));
    }
    if wanted.seat.as_ref().is_some_and(|seat| seat.host == host.id) {
        return Err(Refused::Already(host.name.clone()));
    }
    if let Some(because) = unfit(host, &wanted.needs) {
        return Err(Refused::Misplaced { host: host.name.clone(), because });
    }
    let mut room = Room::new(hosts, parts, &BTreeMap::new());
    room.leave(wanted);
    if room.has_replica(&host.id, &wanted.part) {
        return Err(Refused::HasReplica(host.name.clone()));
    }
    if let Some(free) = host.free_bytes
        && free < wish.bytes
    {
        let (free_mib, needs_mib) = (free >> 20, wish.bytes.div_ceil(1 << 20));
        return Err(Refused::Full { host: host.name.clone(), free_mib, needs_mib });
    }
    let seat = Seat { host: host.id.clone(), boot: host.boot };
    Ok(decision(wanted, Some(seat), Why::Wished { host: host.name.clone(), why: wish.why.clone() }))
}

fn decision(wanted: &Wanted, to: Option<Seat>, why: Why) -> Decision {
    let epoch = if to.is_some() { wanted.epoch + 1 } else { wanted.epoch };
    Decision { part: wanted.part.clone(), from: wanted.seat.clone(), to, epoch, why }
}

/// Why a part may not stay.
enum Lost {
    Silent(String),
    Misplaced { host: String, because: String },
}

impl Lost {
    fn then(self, then: Why) -> Why {
        let then = Box::new(then);
        match self {
            Lost::Silent(host) => Why::Silent { host, then },
            Lost::Misplaced { host, because } => Why::Misplaced { host, because, then },
        }
    }
}

enum Verdict<'a> {
    Stays,
    /// On the same host, whose boot is another.
    Again(&'a Host),
    Seeks(Option<Lost>),
}

/// What of a stage must not share a host.
type Group = (StreamId, What);

/// Who sits where.
struct Room<'a> {
    hosts: &'a [Host],
    by_id: BTreeMap<&'a str, &'a Host>,
    load: BTreeMap<&'a str, u32>,
    /// Replicas of each stage on each host. More than one only where what was read was wrong.
    groups: BTreeMap<(&'a str, Group), BTreeSet<u32>>,
    replicas: BTreeMap<Group, u32>,
}

impl<'a> Room<'a> {
    fn new(hosts: &'a [Host], parts: &'a [Wanted], others: &BTreeMap<HostId, u32>) -> Self {
        let by_id: BTreeMap<&str, &Host> = hosts.iter().map(|host| (host.id.as_str(), host)).collect();
        let load = by_id.keys().map(|id| (*id, others.get(*id).copied().unwrap_or(0))).collect();
        let mut room = Room { hosts, by_id, load, groups: BTreeMap::new(), replicas: BTreeMap::new() };
        for wanted in parts {
            *room.replicas.entry(group(&wanted.part)).or_default() += 1;
            if let Some(seat) = &wanted.seat {
                room.sit(&seat.host, &wanted.part);
            }
            if let Some(host) = &wanted.bound_for {
                room.sit(host, &wanted.part);
            }
        }
        room
    }

    fn sit(&mut self, host: &'a str, part: &Part) {
        *self.load.entry(host).or_default() += 1;
        self.groups.entry((host, group(part))).or_default().insert(part.replica);
    }

    fn enter(&mut self, wanted: &'a Wanted, host: &'a Host) {
        self.sit(&host.id, &wanted.part);
    }

    fn stay(&mut self, wanted: &'a Wanted) {
        if let Some(seat) = &wanted.seat {
            self.sit(&seat.host, &wanted.part);
        }
    }

    fn leave(&mut self, wanted: &'a Wanted) {
        let Some(seat) = &wanted.seat else { return };
        if let Some(load) = self.load.get_mut(seat.host.as_str()) {
            *load = load.saturating_sub(1);
        }
        if let Some(there) = self.groups.get_mut(&(seat.host.as_str(), group(&wanted.part))) {
            there.remove(&wanted.part.replica);
        }
    }

    fn has_replica(&self, host: &'a str, part: &Part) -> bool {
        self.groups.get(&(host, group(part))).is_some_and(|there| there.iter().any(|replica| *replica != part.replica))
    }

    /// Whether a host that is called the same has another replica.
    fn has_replica_beside(&self, name: &str, part: &Part) -> bool {
        self.hosts.iter().any(|host| host.name == name && self.has_replica(&host.id, part))
    }

    fn verdict(&self, wanted: &'a Wanted) -> Verdict<'a> {
        if wanted.bound_for.is_some() {
            return Verdict::Stays;
        }
        let Some(seat) = &wanted.seat else { return Verdict::Seeks(None) };
        let Some(host) = self.by_id.get(seat.host.as_str()).copied() else {
            return Verdict::Seeks(Some(Lost::Silent(seat.host.clone())));
        };
        if host.life == Life::Gone {
            return Verdict::Seeks(Some(Lost::Silent(host.name.clone())));
        }
        let misplaced = |because| Verdict::Seeks(Some(Lost::Misplaced { host: host.name.clone(), because }));
        if let Some(because) = unfit(host, &wanted.needs) {
            return misplaced(because);
        }
        // The lowest number stays.
        let there = self.groups.get(&(seat.host.as_str(), group(&wanted.part)));
        if there.and_then(BTreeSet::first).is_some_and(|first| *first != wanted.part.replica) {
            return misplaced("which has another replica of it".into());
        }
        if host.boot == seat.boot { Verdict::Stays } else { Verdict::Again(host) }
    }

    fn find(&self, wanted: &'a Wanted) -> Result<(&'a Host, Why), Nowhere> {
        let alive: Vec<&Host> = self.hosts.iter().filter(|host| host.life == Life::Alive).collect();
        if alive.is_empty() {
            return Err(Nowhere::NoHosts);
        }
        let fit: Vec<&Host> = alive.into_iter().filter(|host| unfit(host, &wanted.needs).is_none()).collect();
        if fit.is_empty() {
            return Err(match (&wanted.needs.pin, wanted.needs.inside) {
                (Some(pin), _) => Nowhere::PinGone { pin: pin.clone() },
                (None, Some(what)) => Nowhere::NeedsInside { what },
                (None, None) => Nowhere::NoHosts,
            });
        }
        let free: Vec<&Host> = fit.iter().copied().filter(|host| !self.has_replica(&host.id, &wanted.part)).collect();
        let elsewhere: Vec<&Host> =
            free.iter().copied().filter(|host| !self.has_replica_beside(&host.name, &wanted.part)).collect();
        let from = if elsewhere.is_empty() { &free } else { &elsewhere };
        let load =
            |host: &Host| Load { parts: self.load.get(host.id.as_str()).copied().unwrap_or(0), cores: host.cores };
        // Of equals one by its id, another for each part: what all take first would be everything's place.
        let tie = |host: &Host| mix(&host.id, &wanted.part);
        let best = from.iter().copied().min_by(|a, b| {
            load(a).cmp_with_one_more(load(b)).then_with(|| tie(a).cmp(&tie(b))).then_with(|| a.id.cmp(&b.id))
        });
        let replicas = self.replicas.get(&group(&wanted.part)).copied().unwrap_or(1);
        let best = best.ok_or(Nowhere::TooFewHosts { replicas })?;
        let host = best.name.clone();
        Ok((
            best,
            match (&wanted.needs.pin, free.len()) {
                (Some(_), _) => Why::Pinned { host },
                (None, 1) => Why::OnlyOne { host },
                (None, all) if from.len() < all => Why::Elsewhere { host, load: load(best), among: from.len() },
                (None, among) => Why::LeastLoaded { host, load: load(best), among },
            },
        ))
    }
}

fn group(part: &Part) -> Group {
    (part.stream.clone(), part.what)
}

/// Why a host is none for a part, if so.
fn unfit(host: &Host, needs: &Needs) -> Option<String> {
    if let Some(pin) = &needs.pin
        && host.name != *pin
        && host.id != *pin
    {
        return Some(format!("since it is pinned to {pin}"));
    }
    match (needs.inside, host.standing) {
        (Some(what), Standing::Apart) => Some(format!("since it needs {what}")),
        _ => None,
    }
}

/// The same for a host and a part everywhere and always.
fn mix(host: &str, part: &Part) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    eat(host.as_bytes());
    eat(b"/");
    eat(part.stream.0.as_bytes());
    let (kind, n) = match part.what {
        What::Source(n) => (0, n),
        What::Stage(n) => (1, n),
        What::Sink(n) => (2, n),
    };
    eat(&[kind]);
    eat(&n.to_le_bytes());
    eat(&part.replica.to_le_bytes());
    hash ^ (hash >> 29)
}
