//! Which nodes are spared because they fail. One breaker for each node and action: after some failures in a row it opens
//! and the node gets none of that for a while, longer each time; then one task is let through to see. The states are those
//! of the document's table of health.
//!
//! How many of a layer may be out together is [`routing`](crate::routing)'s to mind: it sees the layer.

use std::collections::HashMap;
use std::time::Duration;

use mutirao_core::{Dice, Mono};

use crate::names::{ActionName, NodeId};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many in a row open it.
    pub failures: u32,
    /// For how long the first time; each further time twice as long.
    pub pause: Duration,
    pub pause_max: Duration,
    /// A probe that was not heard of for this long is given up.
    pub probe: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            failures: 3,
            pause: Duration::from_secs(60),
            pause_max: Duration::from_secs(900),
            probe: Duration::from_secs(60),
        }
    }
}

/// How a node is doing at an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Ok,
    /// It failed, not often enough to be spared.
    Warning,
    /// It is spared.
    Down,
    /// It was spared for long enough; a probe may show that it is well.
    Recovering,
}

impl Health {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Down => "down",
            Self::Recovering => "recovering",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Breaker {
    fails: u32,
    /// How often in a row it was opened.
    opened: u32,
    until: Option<Mono>,
    probe_at: Option<Mono>,
}

#[derive(Debug, Default)]
pub struct Breakers {
    limits: Limits,
    all: HashMap<ActionName, HashMap<NodeId, Breaker>>,
}

impl Breakers {
    pub fn new(limits: Limits) -> Self {
        Self { limits, all: HashMap::new() }
    }

    fn get(&self, node: &NodeId, action: &ActionName) -> Breaker {
        self.all.get(action).and_then(|nodes| nodes.get(node)).copied().unwrap_or_default()
    }

    pub fn health(&self, node: &NodeId, action: &ActionName, now: Mono) -> Health {
        let breaker = self.get(node, action);
        match breaker.until {
            Some(until) if now < until => Health::Down,
            Some(_) if breaker.probe_at.is_some_and(|at| now.since(at) < self.limits.probe) => Health::Down,
            Some(_) => Health::Recovering,
            None if breaker.fails > 0 => Health::Warning,
            None => Health::Ok,
        }
    }

    /// Until when it is spared.
    pub fn until(&self, node: &NodeId, action: &ActionName) -> Option<Mono> {
        self.get(node, action).until
    }

    /// A task goes to it. The first after a pause is the probe.
    pub fn began(&mut self, node: &NodeId, action: &ActionName, now: Mono) {
        if self.health(node, action, now) == Health::Recovering
            && let Some(breaker) = self.all.get_mut(action).and_then(|nodes| nodes.get_mut(node))
        {
            breaker.probe_at = Some(now);
        }
    }

    pub fn succeeded(&mut self, node: &NodeId, action: &ActionName) {
        let Some(nodes) = self.all.get_mut(action) else { return };
        nodes.remove(node);
        if nodes.is_empty() {
            self.all.remove(action);
        }
    }

    pub fn failed(&mut self, node: &NodeId, action: &ActionName, now: Mono, dice: &Dice) {
        let breaker = self.all.entry(action.clone()).or_default().entry(node.clone()).or_default();
        breaker.fails = breaker.fails.saturating_add(1);
        // What was on its way when it opened tells nothing new; only a probe does.
        let told = breaker.until.is_none() || breaker.probe_at.is_some();
        if breaker.fails >= self.limits.failures && told {
            breaker.opened = breaker.opened.saturating_add(1);
            let doubled = self.limits.pause.saturating_mul(1 << (breaker.opened - 1).min(16));
            // Those that failed together must not be tried together.
            let pause = doubled.min(self.limits.pause_max).mul_f64(1.0 + 0.2 * dice.unit());
            breaker.until = Some(now.plus(pause));
            breaker.probe_at = None;
        }
    }

    /// A task that began then was taken back before it could tell anything. If it was the probe, another may go.
    pub fn recalled(&mut self, node: &NodeId, action: &ActionName, began_at: Mono) {
        if let Some(breaker) = self.all.get_mut(action).and_then(|nodes| nodes.get_mut(node))
            && breaker.probe_at == Some(began_at)
        {
            breaker.probe_at = None;
        }
    }

    /// It is another node now, or none.
    pub fn forget(&mut self, node: &NodeId) {
        self.all.retain(|_, nodes| {
            nodes.remove(node);
            !nodes.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    fn pair() -> (NodeId, ActionName) {
        ("n".parse().unwrap(), "urn:x:Action:a".parse().unwrap())
    }

    /// The document's table of health, line by line: failures in a row, seconds since the last, the state.
    #[test]
    fn every_line_of_the_table_of_health_holds() {
        let (node, action) = pair();
        for (fails, later_s, health) in [
            (0, 0, Health::Ok),
            (1, 0, Health::Warning),
            (2, 3_600, Health::Warning),
            (3, 0, Health::Down),
            (3, 59, Health::Down),
            (3, 72, Health::Recovering),
            (9, 59, Health::Down),
            (9, 72, Health::Recovering),
        ] {
            let (mut breakers, dice) = (Breakers::default(), Dice::seeded(1));
            (0..fails).for_each(|_| breakers.failed(&node, &action, at(100), &dice));
            assert_eq!(
                breakers.health(&node, &action, at(100 + later_s)),
                health,
                "{fails} failures, {later_s} s later"
            );
            breakers.succeeded(&node, &action);
            assert_eq!(breakers.health(&node, &action, at(100 + later_s)), Health::Ok);
        }
    }

    #[test]
    fn one_probe_is_let_through_and_each_that_fails_makes_the_pause_longer_up_to_a_bound() {
        let (node, action) = pair();
        let (mut breakers, dice) = (Breakers::default(), Dice::seeded(7));
        let mut now = at(0);
        (0..3).for_each(|_| breakers.failed(&node, &action, now, &dice));
        for expected_s in [60u64, 120, 240, 480, 900, 900] {
            let until = breakers.until(&node, &action).unwrap();
            let pause = until.since(now).as_secs_f64();
            assert!((expected_s as f64..=expected_s as f64 * 1.2).contains(&pause), "{pause} for {expected_s}");
            now = until;
            assert_eq!(breakers.health(&node, &action, now), Health::Recovering);
            breakers.began(&node, &action, now);
            assert_eq!(breakers.health(&node, &action, now), Health::Down, "while one probes nobody else goes");
            breakers.failed(&node, &action, now, &dice);
        }
    }

    #[test]
    fn a_probe_nobody_hears_of_is_given_up_and_another_goes() {
        let (node, action) = pair();
        let (mut breakers, dice) = (Breakers::default(), Dice::seeded(7));
        (0..3).for_each(|_| breakers.failed(&node, &action, at(0), &dice));
        breakers.began(&node, &action, at(100));
        assert_eq!(breakers.health(&node, &action, at(159)), Health::Down);
        assert_eq!(breakers.health(&node, &action, at(160)), Health::Recovering);
    }

    #[test]
    fn a_probe_that_was_taken_back_lets_another_go_and_any_other_task_does_not() {
        let (node, action) = pair();
        let (mut breakers, dice) = (Breakers::default(), Dice::seeded(7));
        (0..3).for_each(|_| breakers.failed(&node, &action, at(0), &dice));
        breakers.began(&node, &action, at(100));
        breakers.recalled(&node, &action, at(50));
        assert_eq!(breakers.health(&node, &action, at(100)), Health::Down);
        breakers.recalled(&node, &action, at(100));
        assert_eq!(breakers.health(&node, &action, at(100)), Health::Recovering);
    }

    #[test]
    fn one_action_that_fails_spares_the_node_from_none_of_the_others() {
        let (node, action) = pair();
        let other = "urn:x:Action:b".parse().unwrap();
        let (mut breakers, dice) = (Breakers::default(), Dice::seeded(7));
        (0..3).for_each(|_| breakers.failed(&node, &action, at(0), &dice));
        assert_eq!(breakers.health(&node, &other, at(0)), Health::Ok);
        breakers.forget(&node);
        assert_eq!(breakers.health(&node, &action, at(0)), Health::Ok);
    }

    proptest! {
        /// Whatever comes, in whatever order: it is never spared for longer than the longest pause and its spread, and
        /// what was on its way when it opened does not keep it out longer.
        #[test]
        fn nobody_is_spared_for_ever(events in prop::collection::vec((0u8..3, 0u64..200), 1..60), seed: u64) {
            let (node, action) = pair();
            let (mut breakers, dice) = (Breakers::default(), Dice::seeded(seed));
            let mut now = at(0);
            for (event, wait_s) in events {
                now = now.plus(Duration::from_secs(wait_s));
                let before = breakers.get(&node, &action);
                match event {
                    0 => breakers.began(&node, &action, now),
                    1 => breakers.failed(&node, &action, now, &dice),
                    _ => breakers.succeeded(&node, &action),
                }
                let until = breakers.until(&node, &action);
                prop_assert!(until.is_none_or(|until| until.since(now) <= Duration::from_secs(1_080)));
                if event == 1 && before.until.is_some() && before.probe_at.is_none() {
                    prop_assert_eq!(until, before.until);
                }
            }
            let later = now.plus(Duration::from_secs(1_080 + 60));
            prop_assert_ne!(breakers.health(&node, &action, later), Health::Down);
        }
    }
}
