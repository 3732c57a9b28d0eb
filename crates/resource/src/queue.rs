//! One queue's pass, without I/O: what the manager and the provider say goes in, what is to be done comes out, and what
//! came of it goes in again. All time is the resource manager's own: moments of the manager's clock are only ever compared
//! with each other, so that neither a jump of it nor a difference between two machines moves anything.
//!
//! Not here: calls ([`pass`](crate::pass)), places ([`nodes`](crate::nodes)).

mod boots;
mod leaving;
mod lives;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mutirao_core::{Dice, Timestamp, WorkerId};
use mutirao_elastic::decide::Because;
use mutirao_elastic::fleet::{Activity, Cause, Life, Member, Trouble};
use mutirao_elastic::packing::consolidating::Emptied;
use mutirao_elastic::packing::{Amounts, NodeName};
use mutirao_elastic::protocol::{CHANGES_MAX, Create, QueueBalance, Record};
use mutirao_elastic::{Action, Aim, Decision, Fleet, Listing, Load, Removal, Seen, State, Terms, decide};

use boots::Boots;
use lives::Lives;

/// Words about an unchanged count are written this often at most…
const WORDS_EVERY: Duration = Duration::from_secs(5);
/// …and what a decision rests on this often at least, while there is anything to decide about.
const STATE_EVERY: Duration = Duration::from_secs(30);

/// What is around one queue in one pass.
pub struct Scene<'a> {
    pub balance: &'a QueueBalance,
    /// The manager's clock when it took the figures.
    pub balance_at: Timestamp,
    /// What the provider has of this queue, and on which nodes.
    pub listed: Option<&'a BTreeMap<WorkerId, NodeName>>,
    /// Nodes that are to be empty.
    pub drained: &'a BTreeSet<NodeName>,
    /// Nodes whose workers move elsewhere.
    pub emptying: &'a Emptied,
    /// Idle workers that are to make room for queues whose tasks wait.
    pub yielding: &'a BTreeSet<WorkerId>,
    /// Nodes that are there and say nothing now.
    pub silent: &'a BTreeSet<NodeName>,
    /// Nodes that are about to be taken back: whoever is there goes at once.
    pub taken: &'a BTreeSet<NodeName>,
    pub answering: &'a BTreeSet<NodeName>,
    /// Those whose processes have ended for certain.
    pub ended: &'a BTreeSet<WorkerId>,
    pub terms: &'a Terms,
    pub dice: &'a Dice,
    pub generation: u64,
    pub now: Timestamp,
}

/// What one pass asks for, in this order; the first that fails ends it.
#[derive(Debug)]
pub struct Steps {
    /// To be kept before anything else is done.
    pub record: Option<Record>,
    /// Whom to tell that they are to finish.
    pub drains: Vec<WorkerId>,
    pub ends: Vec<(WorkerId, NodeName)>,
    pub launches: Vec<(WorkerId, NodeName)>,
    /// How many more there should be.
    pub ask: u32,
    after: After,
}

/// Whose identities are worth nothing from this record on.
struct Leavers {
    gone: Vec<WorkerId>,
    dismissed: Vec<WorkerId>,
}

/// How things are once the record is kept.
#[derive(Debug)]
struct After {
    fleet: Fleet,
    state: State,
    decision: Decision,
    gave_up: Option<String>,
}

/// What is remembered of a queue from pass to pass, for as long as one lease is held.
#[derive(Debug, Default)]
pub struct Queue {
    fleet: Fleet,
    state: State,
    /// Who was told to finish under this lease. Whoever is recorded as draining and not here is told: the record may have
    /// been kept, and its author died or never heard of it.
    told: BTreeSet<WorkerId>,
    written: Option<Written>,
    /// The trouble that is shown is about a listing that failed, and over with the next that does not.
    unlisted: bool,
    /// Why some of those that are wanted are not asked for.
    unplaced: Option<String>,
    boots: Boots,
    lives: Lives,
}

#[derive(Debug)]
struct Written {
    at: Timestamp,
    decision: Decision,
    trouble: Option<Trouble>,
}

impl Queue {
    /// What a predecessor left.
    pub fn adopting(balance: &QueueBalance) -> Self {
        Self { fleet: balance.fleet.clone(), state: balance.state.clone(), ..Self::default() }
    }

    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// None while nothing may be concluded: the queue's owner does not know yet who is there.
    pub fn pass(&mut self, scene: &Scene) -> Option<Steps> {
        let seen = self.see(scene)?;
        self.fleet.follow(&scene.balance.fleet.members);
        self.fleet.look(&seen, scene.now);
        self.boots.look(&self.fleet, scene.now);
        self.lives.look(scene.balance, &mut self.state);
        let (mut decision, state) = self.decide(scene.balance, scene.balance_at, scene.now);
        decision.because.0.extend(self.unplaced.clone());
        let max = scene.balance.elastic.as_ref().map_or(0, |elastic| elastic.max);
        let aim = Aim { wanted: decision.wanted, max, removal: decision.removal };

        let mut fleet = self.fleet.clone();
        decision.because.0.extend(self.leave_nodes(scene, &mut fleet));
        decision.because.0.extend(leaving::make_room(scene, &mut fleet));
        let actions = fleet.plan(&aim, &seen, scene.terms, scene.now);
        let (mut ends, mut launches, mut ask) = (Vec::new(), Vec::new(), 0);
        let (mut gone, mut dismissed) = (Vec::new(), Vec::new());
        let mut gave_up = None;
        for action in &actions {
            if action.gives_up() {
                gave_up = Some(action.to_string());
            }
            match action {
                Action::Ask { count } => ask = *count,
                Action::Launch { worker } => {
                    let place = place_of(worker, &fleet, scene).filter(|node| scene.answering.contains(node));
                    launches.extend(place.map(|node| (worker.clone(), node)));
                    // Recorded once the provider said yes.
                    continue;
                }
                Action::End { worker, .. } => {
                    ends.extend(place_of(worker, &fleet, scene).map(|node| (worker.clone(), node)));
                }
                Action::Forget { worker, .. } => gone.push(worker.clone()),
                Action::Dismiss { worker, .. } => dismissed.push(worker.clone()),
                Action::Adopt { .. } | Action::Drain { .. } => {}
            }
            fleet.apply(action, scene.now);
        }
        match (ask, fleet.counts().creating) {
            (0, 0) => self.boots.at_rest(),
            (0, _) => {}
            _ => self.boots.wanted(scene.now),
        }
        let leavers = Leavers { gone, dismissed };
        let record = self.record(scene, &fleet, &state, &decision, leavers);
        let draining = fleet.members.iter().filter(|(_, member)| member.life == Life::Draining);
        let drains =
            draining.map(|(worker, _)| worker).filter(|worker| !self.told.contains(*worker)).cloned().collect();
        Some(Steps { record, drains, ends, launches, ask, after: After { fleet, state, decision, gave_up } })
    }

    /// The record is kept, or there was nothing to keep.
    pub fn kept(&mut self, steps: &Steps, scene: &Scene) {
        let After { fleet, state, decision, gave_up } = &steps.after;
        self.fleet = fleet.clone();
        self.state = state.clone();
        self.told.retain(|worker| self.fleet.members.contains_key(worker));
        if let Some(record) = &steps.record {
            let written = Written { at: scene.now, decision: decision.clone(), trouble: record.trouble.clone() };
            self.written = Some(written);
        }
        if let Some(why) = gave_up {
            self.fleet.failed(Cause::Silence, why, scene.terms, scene.dice, scene.now);
        }
    }

    /// The manager hands it nothing any more.
    pub fn told(&mut self, worker: &WorkerId) {
        self.told.insert(worker.clone());
    }

    pub fn launched(&mut self, worker: &WorkerId, now: Timestamp) {
        self.fleet.answered();
        self.fleet.apply(&Action::Launch { worker: worker.clone() }, now);
    }

    pub fn ended(&mut self) {
        self.fleet.answered();
    }

    pub fn not_ended(&mut self, workers: &[(WorkerId, NodeName)]) {
        workers.iter().for_each(|(worker, _)| self.fleet.not_ended(worker));
    }

    pub fn created(&mut self, workers: Vec<WorkerId>, create: &Create, now: Timestamp) {
        for (worker, node) in workers.into_iter().zip(&create.nodes) {
            self.fleet.issue(worker, Some(node.clone()), create.need.clone(), now);
        }
    }

    /// What the worker is to have of its node.
    pub fn need_of(&self, worker: &WorkerId, balance: &QueueBalance) -> Amounts {
        let kept = self.fleet.members.get(worker).and_then(|member| member.need.clone());
        kept.unwrap_or_else(|| balance.need.amounts.clone())
    }

    /// Those that were just issued and can be launched at once.
    pub fn fresh(&self, workers: &[WorkerId]) -> Vec<(WorkerId, NodeName)> {
        let place = |worker: &WorkerId| Some((worker.clone(), self.fleet.members.get(worker)?.node.clone()?));
        workers.iter().filter_map(place).collect()
    }

    /// Some of those that are wanted are not asked for.
    pub fn lacks_room(&self) -> bool {
        self.unplaced.is_some()
    }

    pub fn without_place(&self) -> Option<&str> {
        self.unplaced.as_deref()
    }

    pub fn unplaced(&mut self, why: Option<String>) {
        self.unplaced = why;
    }

    /// The provider did not say what it has. That has a pause of its own, so it is only shown.
    pub fn not_listed(&mut self, error: &str, terms: &Terms, dice: &Dice, now: Timestamp) {
        if self.fleet.trouble.is_none() {
            self.fleet.failed(Cause::Call, error, terms, dice, now);
            self.unlisted = true;
        }
    }

    pub fn listed(&mut self) {
        if std::mem::take(&mut self.unlisted) {
            self.fleet.answered();
        }
    }

    /// The provider failed.
    pub fn failed(&mut self, error: &str, terms: &Terms, dice: &Dice, now: Timestamp) {
        self.unlisted = false;
        self.fleet.failed(Cause::Call, error, terms, dice, now);
    }

    fn see(&self, scene: &Scene) -> Option<Seen> {
        let sessions = scene.balance.sessions.as_ref()?;
        let here = |at: Timestamp| Timestamp(scene.now.0 - span_ms(scene.balance_at.since(at)));
        let activity = |activity: &Activity| match activity {
            Activity::Idle { since } => Activity::Idle { since: here(*since) },
            Activity::Busy { tasks, since } => Activity::Busy { tasks: *tasks, since: since.map(here) },
            other => *other,
        };
        let listing = match scene.listed {
            None => Listing::Unknown,
            Some(listed) => {
                // Of those on a node that says nothing, nothing is concluded: they count as there.
                let hidden = self.fleet.members.iter().filter(|(_, member)| {
                    member.life > Life::Asked && member.node.as_ref().is_some_and(|node| scene.silent.contains(node))
                });
                Listing::Has(listed.keys().chain(hidden.map(|(worker, _)| worker)).cloned().collect())
            }
        };
        let sessions = sessions.iter().map(|(worker, a)| (worker.clone(), activity(a))).collect();
        Some(Seen { listing, sessions, ended: scene.ended.clone() })
    }

    /// How many there should be by what is known now.
    pub fn wanted(&self, balance: &QueueBalance, balance_at: Timestamp, now: Timestamp) -> u32 {
        if self.fleet.may_launch(now) { self.decide(balance, balance_at, now).0.wanted } else { 0 }
    }

    fn decide(&self, balance: &QueueBalance, balance_at: Timestamp, now: Timestamp) -> (Decision, State) {
        let Some(elastic) = &balance.elastic else {
            let was = self.fleet.counts().standing();
            let because = Because(vec!["the queue is not elastic any more".into()]);
            return (Decision { was, wanted: 0, removal: Removal::Any, because }, State::default());
        };
        let age = balance_at.since(balance.load.at);
        let at = Timestamp(now.0 - span_ms(age));
        let load = Load { at, workers: self.fleet.counts(), boot: self.boots.mean(), ..balance.load.clone() };
        decide(elastic, self.state.clone(), &load, now)
    }

    fn record(
        &self,
        scene: &Scene,
        fleet: &Fleet,
        state: &State,
        decision: &Decision,
        leavers: Leavers,
    ) -> Option<Record> {
        let Leavers { gone, dismissed } = leavers;
        let stored = &scene.balance.fleet.members;
        let is_new = |worker: &WorkerId, member: &Member| {
            stored.get(worker).is_none_or(|old| (old.life, &old.node) != (member.life, &member.node))
        };
        let members: BTreeMap<WorkerId, Member> = fleet
            .members
            .iter()
            .filter(|(worker, member)| is_new(worker, member))
            .map(|(worker, member)| (worker.clone(), member.clone()))
            .collect();
        let changes: Vec<_> = decision.change(scene.now).into_iter().take(CHANGES_MAX).collect();
        let due = match &self.written {
            None => true,
            Some(written) => {
                let age = scene.now.since(written.at);
                let anybody = !fleet.members.is_empty() || decision.wanted > 0;
                written.trouble != fleet.trouble
                    || written.decision.wanted != decision.wanted
                    || (written.decision.because != decision.because && age >= WORDS_EVERY)
                    || (*state != self.state && age >= STATE_EVERY && anybody)
            }
        };
        if members.is_empty() && gone.is_empty() && dismissed.is_empty() && changes.is_empty() && !due {
            return None;
        }
        Some(Record {
            generation: scene.generation,
            state: state.clone(),
            members,
            gone,
            dismissed,
            trouble: fleet.trouble.clone(),
            decision: decision.clone(),
            changes,
        })
    }
}

/// Where a worker is: as the provider says, else as was recorded.
fn place_of(worker: &WorkerId, fleet: &Fleet, scene: &Scene) -> Option<NodeName> {
    let listed = scene.listed.and_then(|listed| listed.get(worker));
    listed.or_else(|| fleet.members.get(worker)?.node.as_ref()).cloned()
}

fn span_ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
