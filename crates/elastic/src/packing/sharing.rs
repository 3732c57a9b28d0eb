//! Who gets room where there is little of it. In this order:
//!
//! 1. one worker for each queue whose tasks wait and that has none, whoever has waited longest first;
//! 2. floors;
//! 3. the rest of what is wanted for tasks that wait, one worker at a time to whoever has the fewest.
//!
//! An idle worker gives its room up for that, rather than being kept in case: for the first, whoever has been idle for a
//! moment, of a floor too if there is no other; for the third, whoever has been idle for a while and is above its floor.
//! Floors themselves wait until a policy lets somebody go.
//!
//! It does not go back and forth. Who goes has been idle, and who comes has tasks waiting; room that is being made is held for
//! the one it is made for; a queue whose tasks wait keeps one worker; and nobody goes where room is there, on its way, or can
//! be had by making a node.
//!
//! Not here: how many are wanted, and what each takes after this is settled ([`pack`](super::pack)).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use mutirao_core::{QueueName, WorkerId};

use super::{Amounts, Door, Kind, Need, Node, NodeName, Room};

/// How long one must have been idle to make room for a queue that has no worker. A task that was handed out is known to be
/// held well before.
pub const A_MOMENT: Duration = Duration::from_secs(2);
/// How long, to make room for one more worker of a queue that has some.
pub const A_WHILE: Duration = Duration::from_secs(5);
/// How long, while tasks of its own queue wait: then they cannot start, whatever keeps them.
pub const IN_VAIN: Duration = Duration::from_secs(10);
/// Workers that are given room by one call, at most. The rest waits for the next.
const CLAIMS_MAX: usize = 1_000;
/// Workers for which room is made by one call, at most.
const MADE_MAX: usize = 100;

/// A queue that has workers, or wants some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    pub queue: QueueName,
    pub need: Need,
    pub floor: u32,
    /// Of the floor, those that make room for nobody.
    pub keeps: u32,
    /// Those that are there to stay.
    pub standing: u32,
    /// How many more are wanted and may come now.
    pub wants: u32,
    /// Tasks that wait.
    pub waiting: u64,
    pub oldest_wait: Duration,
    pub idle: Vec<Idle>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    pub worker: WorkerId,
    pub node: NodeName,
    pub amounts: Amounts,
    pub for_: Duration,
}

/// What was settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Places that are free now, and for whom.
    pub places: BTreeMap<QueueName, Vec<NodeName>>,
    /// For whom room is held that is not free yet.
    pub making: BTreeSet<QueueName>,
    /// Idle workers that go now.
    pub yielding: BTreeSet<WorkerId>,
}

/// `leaving`: what is on its way out and keeps nobody waiting. Room that was given or is held counts as used in `nodes` afterwards.
pub fn share(parties: &[Party], nodes: &mut [Node], kinds: &[Kind], leaving: &[(NodeName, Amounts)]) -> Shares {
    let mut table = Table::set(parties, nodes, kinds, leaving);
    let has_none = |party: &Party| party.waiting > 0 && party.standing == 0;
    let mut starving: Vec<usize> = (0..parties.len()).filter(|at| has_none(&parties[*at])).collect();
    starving.sort_by_key(|at| Reverse(parties[*at].oldest_wait));
    for at in starving {
        table.claim(at, Turn::First);
    }
    let mut below: Vec<usize> = (0..parties.len()).filter(|at| table.standing[*at] < parties[*at].floor).collect();
    below.sort_by_key(|at| table.standing[*at]);
    for at in below {
        while table.standing[at] < parties[at].floor && table.claim(at, Turn::Floor) {}
    }
    // Whoever has an idle one has no use for another now.
    let waiting = (0..parties.len()).filter(|at| parties[*at].waiting > 0 && parties[*at].idle.is_empty());
    let mut fewest: BinaryHeap<_> = waiting.map(|at| Reverse((table.standing[at], at))).collect();
    while let Some(Reverse((_, at))) = fewest.pop() {
        if table.claim(at, Turn::Rest) {
            fewest.push(Reverse((table.standing[at], at)));
        }
    }
    table.shares
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Floor,
    Rest,
}

/// Everything as it would be once what was settled so far has come about.
struct Table<'a> {
    parties: &'a [Party],
    nodes: &'a mut [Node],
    kinds: &'a [Kind],
    standing: Vec<u32>,
    /// Of those who stand already.
    stay: Vec<u32>,
    wants: Vec<u32>,
    /// What is used and about to be free, by node.
    soon: BTreeMap<NodeName, Amounts>,
    /// The idle ones by node: whose, and which of theirs.
    idle: BTreeMap<&'a NodeName, Vec<(usize, &'a Idle)>>,
    claims: usize,
    made: usize,
    /// What found no room; nodes only become fuller, so it is not looked for again. Queues are many, their needs few.
    full: Vec<&'a Need>,
    in_vain: Vec<(Turn, &'a Need)>,
    shares: Shares,
}

impl<'a> Table<'a> {
    fn set(parties: &'a [Party], nodes: &'a mut [Node], kinds: &'a [Kind], leaving: &[(NodeName, Amounts)]) -> Self {
        let mut soon: BTreeMap<NodeName, Amounts> = BTreeMap::new();
        for (node, amounts) in leaving {
            let all = soon.entry(node.clone()).or_default();
            *all = all.plus(amounts);
        }
        let mut idle: BTreeMap<&NodeName, Vec<(usize, &Idle)>> = BTreeMap::new();
        for (at, party) in parties.iter().enumerate() {
            party.idle.iter().for_each(|each| idle.entry(&each.node).or_default().push((at, each)));
        }
        Self {
            parties,
            nodes,
            kinds,
            standing: parties.iter().map(|party| party.standing).collect(),
            stay: parties.iter().map(|party| party.standing).collect(),
            wants: parties.iter().map(|party| party.wants).collect(),
            soon,
            idle,
            claims: 0,
            made: 0,
            full: Vec::new(),
            in_vain: Vec::new(),
            shares: Shares::default(),
        }
    }

    /// Room for one worker: free, on its way, or made. False when there is none to be had now.
    fn claim(&mut self, at: usize, turn: Turn) -> bool {
        let party = &self.parties[at];
        if self.wants[at] == 0 || self.claims >= CLAIMS_MAX {
            return false;
        }
        if !self.full.contains(&&party.need) {
            if let Some(node) = self.free_for(&party.need) {
                self.shares.places.entry(party.queue.clone()).or_default().push(self.nodes[node].name.clone());
                self.take(at, node);
                return true;
            }
            self.full.push(&party.need);
        }
        if self.kinds.iter().any(|kind| kind.available > 0 && kind_fits(kind, &party.need)) {
            return false;
        }
        let node = self.coming_for(&party.need).or_else(|| self.make_room(at, turn));
        let Some(node) = node else { return false };
        self.shares.making.insert(party.queue.clone());
        self.take(at, node);
        true
    }

    fn take(&mut self, at: usize, node: usize) {
        self.nodes[node].used = self.nodes[node].used.plus(&self.parties[at].need.amounts);
        self.standing[at] += 1;
        self.wants[at] -= 1;
        self.claims += 1;
    }

    fn free_for(&self, need: &Need) -> Option<usize> {
        let fits = |node: &&(usize, &Node)| need.amounts.fits_in(&Room::of(node.1).free) && takes(node.1, need);
        let all = || self.nodes.iter().enumerate();
        let used = all().filter(|(_, node)| !node.used.is_nothing());
        let empty = all().filter(|(_, node)| node.used.is_nothing());
        used.chain(empty).find(|node| fits(&node)).map(|(at, _)| at)
    }

    fn coming_for(&self, need: &Need) -> Option<usize> {
        let soon = |node: &Node| self.soon.get(&node.name).cloned().unwrap_or_default();
        self.nodes.iter().position(|node| takes(node, need) && fits_once(node, need, &soon(node)))
    }

    /// The node where the fewest have to go, floors last.
    fn make_room(&mut self, at: usize, turn: Turn) -> Option<usize> {
        let party = &self.parties[at];
        let patient = turn == Turn::Rest && party.oldest_wait < A_MOMENT;
        let tried = self.in_vain.contains(&(turn, &party.need));
        if turn == Turn::Floor || patient || tried || self.made >= MADE_MAX {
            return None;
        }
        let open = self.nodes.iter().enumerate().filter(|(_, node)| takes(node, &party.need));
        let ways = open.filter_map(|(n, node)| Some((self.who_goes(at, node, turn)?, n)));
        let best = ways.min_by_key(|(going, n)| (going.of_floors, going.who.len(), *n));
        let Some((going, node)) = best else {
            self.in_vain.push((turn, &party.need));
            return None;
        };
        let soon = self.soon.entry(self.nodes[node].name.clone()).or_default();
        for (owner, idle) in going.who {
            *soon = soon.plus(&idle.amounts);
            self.standing[owner] -= 1;
            self.stay[owner] -= 1;
            self.shares.yielding.insert(idle.worker.clone());
        }
        self.made += 1;
        Some(node)
    }

    fn who_goes(&self, at: usize, node: &Node, turn: Turn) -> Option<Going<'a>> {
        let need = &self.parties[at].need;
        let mut there: Vec<(usize, &Idle)> = self.idle.get(&node.name)?.clone();
        there.retain(|(owner, idle)| *owner != at && !self.shares.yielding.contains(&idle.worker));
        let mut soon = self.soon.get(&node.name).cloned().unwrap_or_default();
        let mut left: BTreeMap<usize, u32> = BTreeMap::new();
        let mut going = Going::default();
        while !fits_once(node, need, &soon) {
            let left_of = |owner: usize| left.get(&owner).copied().unwrap_or(self.stay[owner]);
            let of_floor = |owner: usize| left_of(owner) <= self.parties[owner].floor;
            let may = there.iter().filter(|(owner, idle)| self.may_go(*owner, idle, left_of(*owner), turn));
            let (owner, idle) = *may.min_by_key(|(owner, idle)| (of_floor(*owner), Reverse(idle.for_)))?;
            going.of_floors += usize::from(of_floor(owner));
            going.who.push((owner, idle));
            left.insert(owner, left_of(owner) - 1);
            soon = soon.plus(&idle.amounts);
            there.retain(|(_, other)| other.worker != idle.worker);
        }
        // A small one that was taken before a large one may not be needed any more.
        for n in (0..going.who.len()).rev() {
            let without = soon.minus(&going.who[n].1.amounts);
            if fits_once(node, need, &without) {
                soon = without;
                going.who.remove(n);
            }
        }
        Some(going)
    }

    fn may_go(&self, owner: usize, idle: &Idle, left: u32, turn: Turn) -> bool {
        let party = &self.parties[owner];
        let (keeps, after) = match turn {
            Turn::First => (party.keeps, A_MOMENT),
            Turn::Floor | Turn::Rest => (party.floor, A_WHILE),
        };
        let (keeps, after) = if party.waiting > 0 { (keeps.max(1), after.max(IN_VAIN)) } else { (keeps, after) };
        left > keeps && idle.for_ >= after
    }
}

#[derive(Default)]
struct Going<'a> {
    who: Vec<(usize, &'a Idle)>,
    of_floors: usize,
}

fn takes(node: &Node, need: &Need) -> bool {
    node.door == Door::Open && Room::of(node).suits(need)
}

fn kind_fits(kind: &Kind, need: &Need) -> bool {
    let room = Room::new(kind);
    room.suits(need) && need.amounts.fits_in(&room.free)
}

/// Once `soon` of what is used is free.
fn fits_once(node: &Node, need: &Need, soon: &Amounts) -> bool {
    need.amounts.fits_in(&node.capacity.plus(soon).minus(&node.used))
}

#[cfg(test)]
mod tests;
