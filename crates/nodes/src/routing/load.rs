//! What a node has to do, and how long it takes at each action: the peak-sensitive moving average, which jumps up with a
//! slow answer and comes down slowly, also by itself, so that a node that was slow once is tried again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use mutirao_core::Mono;

use super::Ticket;
use crate::names::{ActionName, NodeId};

/// What was measured this long ago counts for a third.
const DECAY: Duration = Duration::from_secs(30);
/// Whoever has had a task for so long, and for so many times what it takes on average, without ending any, hangs.
const HANGS: Duration = Duration::from_secs(5);
const HANGS_TIMES: f64 = 4.0;
/// One of whom nothing is known gets one task to show; while that is out, everybody else is better.
const UNKNOWN_BUSY_MS: f64 = 1e9;

#[derive(Debug, Default)]
struct Load {
    average_ms: Option<f64>,
    at: Mono,
    /// What is out, the oldest first.
    out: BTreeMap<Ticket, Mono>,
}

impl Load {
    fn average_ms(&self, now: Mono) -> Option<f64> {
        let weight = (-now.since(self.at).as_secs_f64() / DECAY.as_secs_f64()).exp();
        self.average_ms.map(|average| average * weight)
    }

    fn observe(&mut self, took: Duration, now: Mono) {
        let took_ms = took.as_secs_f64() * 1_000.0;
        let average = match self.average_ms(now) {
            Some(average) if took_ms < average => {
                // What decayed already is gone; the rest gives way to what was seen.
                let weight = (-now.since(self.at).as_secs_f64() / DECAY.as_secs_f64()).exp();
                average + took_ms * (1.0 - weight)
            }
            _ => took_ms,
        };
        (self.average_ms, self.at) = (Some(average), now);
    }

    /// It has been silent since `at`, when it was last heard of or given the first of what it has.
    fn hangs(&self, now: Mono) -> bool {
        let Some(first) = self.out.values().next() else { return false };
        // Decayed or not: how long it takes when it works.
        let usual_ms = self.average_ms.unwrap_or_default() * HANGS_TIMES;
        let silent_ms = now.since((*first).max(self.at)).as_secs_f64() * 1_000.0;
        silent_ms > usual_ms.max(HANGS.as_secs_f64() * 1_000.0)
    }

    fn cost_ms(&self, now: Mono) -> f64 {
        let oldest = self.out.values().next().map_or(0.0, |at| now.since(*at).as_secs_f64() * 1_000.0);
        match self.average_ms(now) {
            None if self.out.is_empty() => 0.0,
            None => UNKNOWN_BUSY_MS,
            Some(average) => average.max(oldest) * (self.out.len() as f64 + 1.0),
        }
    }
}

#[derive(Debug, Default)]
pub struct Loads {
    by: HashMap<(NodeId, ActionName), Load>,
    of_node: HashMap<NodeId, u32>,
}

impl Loads {
    pub fn cost_ms(&self, node: &NodeId, action: &ActionName, now: Mono) -> f64 {
        self.by.get(&(node.clone(), action.clone())).map_or(0.0, |load| load.cost_ms(now))
    }

    pub fn hangs(&self, node: &NodeId, action: &ActionName, now: Mono) -> bool {
        self.by.get(&(node.clone(), action.clone())).is_some_and(|load| load.hangs(now))
    }

    /// Tasks of any action that it was given and has not ended.
    pub fn of_node(&self, node: &NodeId) -> u32 {
        self.of_node.get(node).copied().unwrap_or_default()
    }

    pub fn began(&mut self, node: &NodeId, action: &ActionName, ticket: Ticket, now: Mono) {
        self.by.entry((node.clone(), action.clone())).or_default().out.insert(ticket, now);
        *self.of_node.entry(node.clone()).or_default() += 1;
    }

    pub fn ended(&mut self, node: &NodeId, action: &ActionName, ticket: Ticket, took: Option<Duration>, now: Mono) {
        let Some(load) = self.by.get_mut(&(node.clone(), action.clone())) else { return };
        if load.out.remove(&ticket).is_none() {
            return;
        }
        if let Some(took) = took {
            load.observe(took, now);
        }
        if let Some(count) = self.of_node.get_mut(node) {
            *count = count.saturating_sub(1);
        }
    }

    pub fn forget(&mut self, node: &NodeId) {
        self.by.retain(|(known, _), _| known != node);
        self.of_node.remove(node);
    }
}
