//! One run: which of its steps have ended, which may begin, what each of their tasks is at. What has ended is a function of
//! what is durable, so a run that is read back is the run that it was.

mod advancing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mutirao_core::{Mono, Timestamp, id::Attempt};
use mutirao_nodes::NodeId;
use serde_json::Value;

use super::clockwork::Alarm;
use super::reckoning::{Opened, What};
use super::weight::{RUN_BYTES, held, held_by, size, weigh};
use super::words::{Admitted, End, Noted, Outcome, Report, RunEnd, StepKey, Try};
use crate::given::Given;
use crate::plan::{Ended, Seen};

/// Bytes of all that a run's steps gave. Steps take from each other by value, so this bounds what a run costs.
pub const RUN_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug)]
pub enum State {
    /// Not its turn yet: only so many of a list go at once.
    Unsent,
    /// To be sent, now or after a pause.
    Ready,
    Out(Attempt),
    /// What came of it is on its way to the store, in that batch.
    Decided {
        batch: u64,
        then: Then,
    },
    Done,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    Done,
    Retry { not_before: Mono },
    Failed,
}

#[derive(Clone, Debug)]
pub struct Item {
    pub state: State,
    pub sent: u32,
    pub tries: u32,
    pub losses: u32,
    /// Looks in vain for a node that has room.
    pub waits: u32,
    /// Why the last was in vain.
    pub waits_for: Option<String>,
    /// Of the last try in vain.
    pub last_reason: Option<String>,
    pub failed_on: Option<NodeId>,
    /// Where it is, as the owner before wrote down.
    pub(super) resume: Option<Noted>,
    /// What a node was last known to be given, and when, also while nobody waits for it.
    pub(super) given: Option<(Attempt, Timestamp)>,
    /// How it ended; only counts once it is durable.
    pub outcome: Option<Outcome>,
    /// About what that takes as a text, and in memory.
    bytes: usize,
    held: usize,
}

#[derive(Debug)]
pub struct OpenStep {
    /// What it is done for each of.
    pub list: Option<Arc<Vec<Value>>>,
    pub items: Vec<Item>,
    /// Of these, so many have been let out and not ended.
    pub active: usize,
    /// So many have not ended durably. Counted, for a list may be long and each of it ends by itself.
    left: usize,
    next: usize,
    /// What its tasks are given takes a while to be worked out.
    pub(super) is_costly: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    Going,
    /// Decided; not durable yet.
    Ending,
    /// Durable; its answer is leaving.
    Ended,
}

#[derive(Debug)]
pub struct Run {
    /// Without its input, which is beside.
    pub admitted: Admitted,
    pub input: Given,
    pub phase: Phase,
    /// When it will have taken too long.
    pub(super) overdue: Option<Alarm>,
    pub ended: Vec<Option<Ended>>,
    pub open: Vec<Option<OpenStep>>,
    /// What the store had when this was read back.
    stored: BTreeMap<(u32, u32), Outcome>,
    stored_tries: BTreeMap<(u32, u32), (u32, String)>,
    pub(super) stored_noted: BTreeMap<(u32, u32), Noted>,
    /// Until then tasks are asked for where they were.
    pub(super) resume_until: Mono,
    /// The step that failed for good, durably, and why.
    failed: Option<(usize, String)>,
    /// What is being worked out beside, and what came of it.
    asked: BTreeSet<What>,
    opened: BTreeMap<u32, Opened>,
    ends: Option<Result<(), String>>,
    /// Reports of tasks of an owner before, whose steps are not open yet: they are heard once those are.
    pub(super) early: Vec<Report>,
    /// Of what its steps gave, as texts.
    bytes: usize,
    /// About how much memory it takes, and how much of that the foreman has counted.
    pub(super) held: usize,
    pub(super) counted: usize,
}

/// What became possible.
#[derive(Debug, Default)]
pub struct Advance {
    pub opened: Vec<u32>,
    /// What has to be known before more is.
    pub asks: Vec<What>,
    pub end: Option<RunEnd>,
}

impl Run {
    pub fn new(mut admitted: Admitted, outcomes: Vec<Outcome>, tries: Vec<Try>) -> Self {
        let steps = admitted.plan.steps.len();
        let at = |key: StepKey| (key.step, key.item);
        let stored_bytes: usize = outcomes.iter().map(|outcome| held_by(&outcome.end)).sum();
        let held = RUN_BYTES + held(&admitted.input) + stored_bytes;
        let input = std::mem::take(&mut admitted.input);
        let bytes = weigh(&input);
        Self {
            admitted,
            input: Given::input(input, bytes),
            phase: Phase::Going,
            overdue: None,
            ended: vec![None; steps],
            open: (0..steps).map(|_| None).collect(),
            stored: outcomes.into_iter().map(|outcome| (at(outcome.key), outcome)).collect(),
            stored_tries: tries.into_iter().map(|one| (at(one.key), (one.tries, one.reason))).collect(),
            stored_noted: BTreeMap::new(),
            resume_until: Mono::default(),
            failed: None,
            asked: BTreeSet::new(),
            opened: BTreeMap::new(),
            ends: None,
            early: Vec::new(),
            bytes: 0,
            held,
            counted: 0,
        }
    }

    pub fn seen(&self) -> Seen<'_> {
        Seen { input: &self.input, steps: &self.ended }
    }

    pub fn item(&self, key: StepKey) -> Option<&Item> {
        self.open.get(key.step as usize)?.as_ref()?.items.get(key.item as usize)
    }

    pub fn item_mut(&mut self, key: StepKey) -> Option<&mut Item> {
        self.open.get_mut(key.step as usize)?.as_mut()?.items.get_mut(key.item as usize)
    }

    /// All that it holds, for whoever tells of it. What is left is counted as it was, and knows nothing.
    pub(super) fn leave(&mut self) -> Self {
        let empty = Self::new(self.admitted.clone(), Vec::new(), Vec::new());
        let left = Self { phase: Phase::Ended, held: self.held, counted: self.counted, ..empty };
        std::mem::replace(self, left)
    }

    fn may_begin(&self, step: usize) -> bool {
        self.admitted.plan.steps[step].after.iter().all(|earlier| self.ended[*earlier].is_some())
    }

    fn begin(&mut self, step: usize, count: usize, list: Option<Vec<Value>>, advance: &mut Advance) {
        let item = |n: usize| {
            let at = (step as u32, n as u32);
            let outcome = self.stored.remove(&at);
            let (tries, last_reason) = self.stored_tries.remove(&at).map(|(n, why)| (n, Some(why))).unwrap_or_default();
            let state = if outcome.is_some() { State::Done } else { State::Unsent };
            let resume = self.stored_noted.remove(&at);
            let given = resume.as_ref().filter(|noted| noted.since.0 > 0).map(|noted| (noted.attempt, noted.since));
            let (bytes, held) = outcome.as_ref().map_or((0, 0), |one| (size(&one.end), held_by(&one.end)));
            Item {
                state,
                sent: 0,
                tries,
                losses: 0,
                waits: 0,
                waits_for: None,
                last_reason,
                failed_on: None,
                resume,
                given,
                outcome,
                bytes,
                held,
            }
        };
        let items: Vec<Item> = (0..count).map(item).collect();
        self.bytes += items.iter().map(|item| item.bytes).sum::<usize>();
        self.held += items.len() * size_of::<Item>();
        let left = items.iter().filter(|item| !matches!(item.state, State::Done)).count();
        let failed = items.iter().find_map(|item| reason(item.outcome.as_ref()?));
        self.failed = self.failed.take().or(failed.map(|why| (step, why)));
        let list = list.map(Arc::new);
        self.open[step] = Some(OpenStep { list, items, active: 0, left, next: 0, is_costly: false });
        advance.opened.push(step as u32);
    }

    /// What became of a task is durable.
    pub fn seal(&mut self, key: StepKey) {
        let Some(open) = self.open.get_mut(key.step as usize).and_then(Option::as_mut) else { return };
        let Some(item) = open.items.get_mut(key.item as usize) else { return };
        item.state = State::Done;
        open.left = open.left.saturating_sub(1);
        let failed = item.outcome.as_ref().and_then(reason);
        self.failed = self.failed.take().or(failed.map(|why| (key.step as usize, why)));
    }

    /// A step has ended once all its tasks have, durably and well.
    fn close(&mut self, step: usize) -> bool {
        let Some(open) = self.open[step].as_ref().filter(|open| open.left == 0 && self.ended[step].is_none()) else {
            return false;
        };
        let value = |item: &Item| match item.outcome.as_ref().map(|outcome| &outcome.end) {
            Some(End::Ok(value)) => Some(value.clone()),
            _ => None,
        };
        let Some(mut values) = open.items.iter().map(value).collect::<Option<Vec<Arc<Value>>>>() else { return false };
        let bytes = 2 + open.items.iter().map(|item| item.bytes + 1).sum::<usize>();
        let output = match values.pop() {
            Some(one) if open.list.is_none() => Given::output(one, bytes),
            last => {
                values.extend(last);
                Given::outputs(values, bytes)
            }
        };
        // As expressions may come to see it, besides.
        self.held += open.items.iter().map(|item| item.held).sum::<usize>();
        self.ended[step] = Some(Ended::Output(output));
        true
    }

    /// Those of a step that may go now, given how many of it go at once.
    pub fn release(&mut self, step: u32) -> Vec<StepKey> {
        let run = self.admitted.key;
        let at_once = self.admitted.plan.steps[step as usize].each.as_ref().map_or(1, |each| each.at_once);
        let Some(open) = self.open[step as usize].as_mut() else { return Vec::new() };
        let mut released = Vec::new();
        while open.active < at_once && open.next < open.items.len() {
            let item = &mut open.items[open.next];
            if matches!(item.state, State::Unsent) {
                item.state = State::Ready;
                open.active += 1;
                released.push(StepKey { run, step, item: open.next as u32 });
            }
            open.next += 1;
        }
        released
    }

    /// A task has come to its end, though not durably yet. What is too much for the run is a failure.
    pub fn settle(
        &mut self,
        key: StepKey,
        end: End,
        (node, why): (Option<NodeId>, Option<String>),
        (began_at, ended_at): (Timestamp, Timestamp),
        batch: u64,
    ) -> Option<Outcome> {
        let bytes = size(&end);
        let (end, bytes) = match self.bytes + bytes > RUN_BYTES_MAX {
            false => (end, bytes),
            true => {
                let why = format!("with its output the run would hold more than {RUN_BYTES_MAX} bytes");
                let bytes = why.len();
                (End::Failed(why), bytes)
            }
        };
        let held = held_by(&end);
        self.bytes += bytes;
        self.held += held;
        let open = self.open.get_mut(key.step as usize)?.as_mut()?;
        let item = open.items.get_mut(key.item as usize)?;
        if !matches!(item.state, State::Unsent) {
            open.active = open.active.saturating_sub(1);
        }
        let then = if matches!(end, End::Ok(_)) { Then::Done } else { Then::Failed };
        let outcome = Outcome { key, end, tries: item.tries, node, why, began_at, ended_at };
        item.state = State::Decided { batch, then };
        (item.bytes, item.held) = (bytes, held);
        item.outcome = Some(outcome.clone());
        Some(outcome)
    }
}

fn reason(outcome: &Outcome) -> Option<String> {
    match &outcome.end {
        End::Ok(_) => None,
        End::Failed(why) => Some(why.clone()),
    }
}
