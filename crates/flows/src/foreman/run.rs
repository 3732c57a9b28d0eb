//! One run: which of its steps have ended, which may begin, what each of their tasks is at. What has ended is a function of
//! what is durable, so a run that is read back is the run that it was.

use std::collections::BTreeMap;

use mutirao_core::{Mono, Timestamp, id::Attempt};
use mutirao_nodes::NodeId;
use serde_json::Value;

use super::clockwork::Alarm;
use super::weight::{RUN_BYTES, held, held_by, size, weigh};
use super::words::{Admitted, End, Outcome, RunEnd, StepKey, Try};
use crate::plan::{Ended, Opening, Seen};

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
    pub(super) resume: Option<(Attempt, NodeId)>,
    /// How it ended; only counts once it is durable.
    pub outcome: Option<Outcome>,
}

#[derive(Debug)]
pub struct OpenStep {
    /// What it is done for each of.
    pub list: Option<Vec<Value>>,
    pub items: Vec<Item>,
    /// Of these, so many have been let out and not ended.
    pub active: usize,
    /// So many have not ended durably. Counted, for a list may be long and each of it ends by itself.
    left: usize,
    next: usize,
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
    pub admitted: Admitted,
    pub phase: Phase,
    /// When it will have taken too long.
    pub(super) overdue: Option<Alarm>,
    pub ended: Vec<Option<Ended>>,
    pub open: Vec<Option<OpenStep>>,
    /// What the store had when this was read back.
    stored: BTreeMap<(u32, u32), Outcome>,
    stored_tries: BTreeMap<(u32, u32), (u32, String)>,
    pub(super) stored_noted: BTreeMap<(u32, u32), (Attempt, NodeId)>,
    /// Until then tasks are asked for where they were.
    pub(super) resume_until: Mono,
    /// The step that failed for good, durably, and why.
    failed: Option<(usize, String)>,
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
    pub end: Option<RunEnd>,
}

impl Run {
    pub fn new(admitted: Admitted, outcomes: Vec<Outcome>, tries: Vec<Try>) -> Self {
        let steps = admitted.plan.steps.len();
        let at = |key: StepKey| (key.step, key.item);
        let stored_bytes: usize = outcomes.iter().map(|outcome| held_by(&outcome.end)).sum();
        let held = RUN_BYTES + held(&admitted.input) + stored_bytes;
        Self {
            admitted,
            phase: Phase::Going,
            overdue: None,
            ended: vec![None; steps],
            open: (0..steps).map(|_| None).collect(),
            stored: outcomes.into_iter().map(|outcome| (at(outcome.key), outcome)).collect(),
            stored_tries: tries.into_iter().map(|one| (at(one.key), (one.tries, one.reason))).collect(),
            stored_noted: BTreeMap::new(),
            resume_until: Mono::default(),
            failed: None,
            bytes: 0,
            held,
            counted: 0,
        }
    }

    pub fn seen(&self) -> Seen<'_> {
        Seen { input: &self.admitted.input, steps: &self.ended }
    }

    pub fn item(&self, key: StepKey) -> Option<&Item> {
        self.open.get(key.step as usize)?.as_ref()?.items.get(key.item as usize)
    }

    pub fn item_mut(&mut self, key: StepKey) -> Option<&mut Item> {
        self.open.get_mut(key.step as usize)?.as_mut()?.items.get_mut(key.item as usize)
    }

    /// Opens every step whose time has come, and says whether the run has come to its end.
    pub fn advance(&mut self) -> Advance {
        let mut advance = Advance::default();
        let plan = self.admitted.plan.clone();
        let named = |step: usize, reason: String| RunEnd::Failed { step: Some(plan.steps[step].name.clone()), reason };
        loop {
            let mut any = false;
            for step in 0..plan.steps.len() {
                let mut moved = false;
                if self.ended[step].is_none() && self.open[step].is_none() && self.may_begin(step) {
                    moved = true;
                    match plan.open(step, self.seen()) {
                        // The others are still looked at: where a run stands must not depend on the order.
                        Err(why) => {
                            advance.end.get_or_insert_with(|| named(step, why));
                            moved = false;
                        }
                        Ok(Opening::Skipped) => self.ended[step] = Some(Ended::Skipped),
                        Ok(Opening::Each(list)) if list.is_empty() => {
                            self.ended[step] = Some(Ended::Output(Value::Array(Vec::new())));
                        }
                        Ok(Opening::Each(list)) => self.begin(step, list.len(), Some(list), &mut advance),
                        Ok(Opening::Once) => self.begin(step, 1, None, &mut advance),
                    }
                }
                any |= moved | self.close(step);
            }
            if !any {
                break;
            }
        }
        if let Some((step, why)) = self.failed.clone() {
            advance.end.get_or_insert_with(|| named(step, why));
        } else if advance.end.is_none() && self.ended.iter().all(Option::is_some) {
            advance.end = Some(match plan.output(self.seen()) {
                Ok(output) if weigh(&output) > RUN_BYTES_MAX => {
                    let reason = format!("output: it would have more than {RUN_BYTES_MAX} bytes");
                    RunEnd::Failed { step: None, reason }
                }
                Ok(_) => RunEnd::Done,
                Err(reason) => RunEnd::Failed { step: None, reason },
            });
        }
        advance
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
                outcome,
            }
        };
        let items: Vec<Item> = (0..count).map(item).collect();
        self.bytes += items.iter().filter_map(|item| item.outcome.as_ref()).map(|one| size(&one.end)).sum::<usize>();
        self.held += items.len() * size_of::<Item>() + list.iter().flatten().map(held).sum::<usize>();
        let left = items.iter().filter(|item| !matches!(item.state, State::Done)).count();
        let failed = items.iter().find_map(|item| reason(item.outcome.as_ref()?));
        self.failed = self.failed.take().or(failed.map(|why| (step, why)));
        self.open[step] = Some(OpenStep { list, items, active: 0, left, next: 0 });
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
        let Some(mut values) = open.items.iter().map(value).collect::<Option<Vec<Value>>>() else { return false };
        let output = if open.list.is_some() { Value::Array(values) } else { values.pop().unwrap_or_default() };
        self.held += held(&output);
        self.ended[step] = Some(Ended::Output(output));
        true
    }

    /// How it ends, if these tasks, which ended well, are all that it waited for. Nothing can change what they gave any more,
    /// so it counts from now on; whoever asks has to make it durable together with the end.
    pub fn end_with(&mut self, last: &[StepKey]) -> Option<RunEnd> {
        let open = |step: usize| self.open[step].as_ref().filter(|_| self.ended[step].is_none());
        let begun = |step: usize| self.ended[step].is_some() || self.open[step].is_some();
        let steps = 0..self.ended.len();
        let left: usize = steps.clone().filter_map(open).map(|open| open.left).sum();
        if self.failed.is_some() || left != last.len() || !steps.clone().all(begun) {
            return None;
        }
        last.iter().for_each(|key| self.seal(*key));
        self.advance().end
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
        let end = match self.bytes + bytes > RUN_BYTES_MAX {
            false => end,
            true => End::Failed(format!("with its output the run would hold more than {RUN_BYTES_MAX} bytes")),
        };
        self.bytes += size(&end);
        self.held += held_by(&end);
        let open = self.open.get_mut(key.step as usize)?.as_mut()?;
        let item = open.items.get_mut(key.item as usize)?;
        if !matches!(item.state, State::Unsent) {
            open.active = open.active.saturating_sub(1);
        }
        let then = if matches!(end, End::Ok(_)) { Then::Done } else { Then::Failed };
        let outcome = Outcome { key, end, tries: item.tries, node, why, began_at, ended_at };
        item.state = State::Decided { batch, then };
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
