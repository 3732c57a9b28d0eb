//! Which node gets a task. Those that have the action, fit the place, are not spared by their breaker and have room are
//! looked at, layer by layer; of two drawn at random the one that promises the sooner answer gets it: how long it takes at
//! this action, times what it already has to do ([`load`]). So a slow node is noticed after one answer, or before it, for a
//! task that stays out counts as well.
//!
//! - A layer that is full or down is passed over for the next, further from the devices; and as each task looks at the
//!   layers anew, it is used again as soon as it can be.
//! - Never more than a share of a layer is spared: past that the fault is likely not theirs, and those whose pause ends
//!   soonest are used again. A layer that is down altogether is used so only when no other can help.
//! - One whose pause is over gets one task as a probe.
//! - A new version of an action takes the tasks of its layer. It yields to the next one when nobody who has it can be relied on:
//!   each is spared, or hangs ([`load`]). That it is full is no reason: then tasks wait, or go to the next layer.
//!
//! Only those are looked at that are believed as much as anybody who has the action
//! ([`Registry::offering`](crate::registry::Registry::offering)).
//!
//! `round-robin` takes turns instead; everything else is the same. Each choice says why ([`Why`]).

mod load;
mod place;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use load::Loads;
use mutirao_core::{Dice, Mono};
pub use place::{Candidate, Choice, Ended, NoNode, Overflow, Place, Ticket, Why};
use serde::{Deserialize, Serialize};

use crate::Layer;
use crate::breaker::{Breakers, Health, Limits};
use crate::names::{ActionName, NodeId};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    #[default]
    Learned,
    RoundRobin,
}

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub policy: Policy,
    pub breaker: Limits,
    /// The most of a layer that may be spared, from 0 to 1.
    pub out_max: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self { policy: Policy::Learned, breaker: Limits::default(), out_max: 0.5 }
    }
}

#[derive(Debug)]
struct Call {
    node: NodeId,
    action: ActionName,
    began_at: Mono,
}

#[derive(Debug)]
pub struct Router {
    rules: Rules,
    breakers: Breakers,
    loads: Loads,
    calls: HashMap<Ticket, Call>,
    turns: HashMap<(ActionName, Layer), usize>,
    next: u64,
}

impl Router {
    pub fn new(rules: Rules) -> Self {
        let breakers = Breakers::new(rules.breaker);
        Self { rules, breakers, loads: Loads::default(), calls: HashMap::new(), turns: HashMap::new(), next: 0 }
    }

    /// Chooses a node and counts the task as given to it. `not`: where it was just tried in vain.
    pub fn choose(
        &mut self,
        action: &ActionName,
        place: &Place,
        candidates: &[Candidate],
        not: Option<&NodeId>,
        now: Mono,
        dice: &Dice,
    ) -> Result<Choice, NoNode> {
        let fits = |one: &&Candidate| {
            place.node.as_ref().is_none_or(|node| *node == one.node)
                && place.labels.iter().all(|(key, value)| one.labels.get(key) == Some(value))
        };
        let fitting: Vec<&Candidate> = candidates.iter().filter(fits).collect();
        let layers = if place.node.is_some() { &[Layer::Edge, Layer::Fog, Layer::Cloud] } else { place.layers() };
        let mut passed_over = Vec::new();
        let mut anybody = false;
        for &layer in layers {
            let members: Vec<&Candidate> = fitting.iter().copied().filter(|one| one.layer == layer).collect();
            anybody |= !members.is_empty();
            let usable = self.usable(action, self.current(action, &members, not, now), not, now);
            if let Some((node, why)) = self.pick(action, layer, &usable, not, now, dice) {
                return Ok(self.give(action, node, layer, why, passed_over, now));
            }
            if !members.is_empty() {
                passed_over.push(layer);
            }
        }
        for &layer in layers {
            let members: Vec<&Candidate> = fitting.iter().copied().filter(|one| one.layer == layer).collect();
            let bad = self.least_bad(action, &members, now);
            if let Some(node) = bad.into_iter().find(|one| self.has_room(one)) {
                let node = node.node.clone();
                passed_over.retain(|one| *one != layer);
                return Ok(self.give(action, node, layer, Why::LeastBad, passed_over, now));
            }
        }
        Err(if anybody { NoNode::Full } else { NoNode::Nobody })
    }

    /// How a task ended. What is heard twice counts once.
    pub fn ended(&mut self, ticket: Ticket, how: Ended, now: Mono, dice: &Dice) {
        let Some(Call { node, action, began_at }) = self.calls.remove(&ticket) else { return };
        let took = now.since(began_at);
        match how {
            Ended::Well => {
                self.loads.ended(&node, &action, ticket, Some(took), now);
                self.breakers.succeeded(&node, &action);
            }
            Ended::Badly => {
                // Whoever fails at once must not look quick.
                self.loads.ended(&node, &action, ticket, Some(took.max(Duration::from_secs(1))), now);
                self.breakers.failed(&node, &action, now, dice);
            }
            Ended::Recalled => {
                self.loads.ended(&node, &action, ticket, None, now);
                self.breakers.recalled(&node, &action, began_at);
            }
        }
    }

    pub fn health(&self, node: &NodeId, action: &ActionName, now: Mono) -> Health {
        self.breakers.health(node, action, now)
    }

    pub fn in_flight(&self, node: &NodeId) -> u32 {
        self.loads.of_node(node)
    }

    /// It went away, or is another now. What it was given is lost, and counts against nobody.
    pub fn forget(&mut self, node: &NodeId) {
        self.calls.retain(|_, call| call.node != *node);
        self.loads.forget(node);
        self.breakers.forget(node);
    }

    /// Those that have the newest version that can be relied on; with none, all of them.
    fn current<'a>(
        &self,
        action: &ActionName,
        members: &[&'a Candidate],
        not: Option<&NodeId>,
        now: Mono,
    ) -> Vec<&'a Candidate> {
        let works = |one: &&Candidate| match self.breakers.health(&one.node, action, now) {
            Health::Down => false,
            // One task will show, and none that failed already.
            Health::Recovering => not.is_none(),
            Health::Ok | Health::Warning => !self.loads.hangs(&one.node, action, now),
        };
        let newest = members.iter().copied().filter(works).map(|one| one.version).max();
        // Those that are spared are among them: past a share of a layer they are used all the same.
        let current = |one: &&Candidate| newest.is_none_or(|newest| one.version == newest);
        members.iter().copied().filter(current).collect()
    }

    fn has_room(&self, one: &Candidate) -> bool {
        self.loads.of_node(&one.node) < one.slots
    }

    /// Those with room that are not spared, and as many of the spared as must not be.
    fn usable<'a>(
        &self,
        action: &ActionName,
        members: Vec<&'a Candidate>,
        not: Option<&NodeId>,
        now: Mono,
    ) -> Vec<&'a Candidate> {
        let healthy = |one: &&&Candidate| self.breakers.health(&one.node, action, now) != Health::Down;
        let mut usable: Vec<&Candidate> = members.iter().filter(healthy).copied().collect();
        if usable.is_empty() {
            return usable;
        }
        usable.extend(self.least_bad(action, &members, now));
        usable.retain(|one| self.has_room(one));
        // Back to where it just failed only if there is nobody else.
        if usable.iter().any(|one| Some(&one.node) != not) {
            usable.retain(|one| Some(&one.node) != not);
        }
        usable
    }

    /// Of those that are spared, the ones past the share that may be, the soonest to return first.
    fn least_bad<'a>(&self, action: &ActionName, members: &[&'a Candidate], now: Mono) -> Vec<&'a Candidate> {
        let down = |one: &&&Candidate| self.breakers.health(&one.node, action, now) == Health::Down;
        let mut out: Vec<&Candidate> = members.iter().filter(down).copied().collect();
        let may_be_out = (members.len() as f64 * self.rules.out_max).floor() as usize;
        out.sort_by_key(|one| self.breakers.until(&one.node, action));
        out.truncate(out.len().saturating_sub(may_be_out));
        out
    }

    fn pick(
        &mut self,
        action: &ActionName,
        layer: Layer,
        usable: &[&Candidate],
        not: Option<&NodeId>,
        now: Mono,
        dice: &Dice,
    ) -> Option<(NodeId, Why)> {
        // A task that failed once already is no probe.
        let probe = |one: &&&Candidate| self.breakers.health(&one.node, action, now) == Health::Recovering;
        if not.is_none()
            && let Some(one) = usable.iter().find(probe)
        {
            return Some((one.node.clone(), Why::Probe));
        }
        match usable {
            [] => None,
            [one] => Some((one.node.clone(), Why::Only)),
            _ if self.rules.policy == Policy::RoundRobin => {
                let turn = self.turns.entry((action.clone(), layer)).or_default();
                let one = usable[*turn % usable.len()];
                *turn = turn.wrapping_add(1);
                Some((one.node.clone(), Why::ItsTurn))
            }
            _ => {
                let first = dice.below(usable.len() as u64) as usize;
                let second = (first + 1 + dice.below(usable.len() as u64 - 1) as usize) % usable.len();
                let cost = |one: &Candidate| self.loads.cost_ms(&one.node, action, now);
                let (a, b) = (usable[first], usable[second]);
                let ((best, cost_ms), (other, its_cost_ms)) = match (cost(a), cost(b)) {
                    (of_a, of_b) if of_b < of_a => ((b, of_b), (a, of_a)),
                    (of_a, of_b) => ((a, of_a), (b, of_b)),
                };
                Some((best.node.clone(), Why::Sooner { cost_ms, than: other.node.clone(), its_cost_ms }))
            }
        }
    }

    fn give(
        &mut self,
        action: &ActionName,
        node: NodeId,
        layer: Layer,
        why: Why,
        passed_over: Vec<Layer>,
        now: Mono,
    ) -> Choice {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.breakers.began(&node, action, now);
        self.loads.began(&node, action, ticket, now);
        self.calls.insert(ticket, Call { node: node.clone(), action: action.clone(), began_at: now });
        Choice { ticket, node, layer, why, passed_over }
    }
}
