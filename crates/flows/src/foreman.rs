//! The foreman: what the owner of a shard of runs does next. What happens goes in through [`handle`](Foreman::handle), what
//! is to be done comes out of [`poll`](Foreman::poll); whoever drives it carries that out and says how it went.
//!
//! - What came of a task is durable before anything that comes after it is sent. One batch is written at a time; what is
//!   decided meanwhile makes the next. While writing fails nothing is sent.
//! - The first ok of any attempt counts, however late; a failure counts only of the attempt that is out. What is heard twice
//!   counts once, and is acknowledged once what came of it is durable.
//! - Whoever reads a shard back comes to the same: what steps are given is a function of what is durable. Tasks that were out
//!   for a while are asked for again where they were ([`resuming`]), others are sent again under a new generation.
//! - Tries in vain are written, so that no restart gives more of them. A node that went away costs none, and neither does
//!   waiting for one that has room.
//! - A run's answer leaves after its end is durable, at least once.
//!
//! Everything is bounded: runs ([`Rules::runs_max`]) and the memory they take ([`Rules::bytes_max`]), tasks out
//! ([`Rules::out_max`]), what waits to be written ([`takes_reports`](Foreman::takes_reports)), what a run may hold. Where
//! runs have grown past their memory only a few tasks are out, of the oldest runs first, so that some end.

mod clockwork;
mod dispatching;
pub mod explaining;
mod hearing;
mod parked;
pub mod reckoning;
mod resuming;
mod rules;
pub mod run;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod weight;
pub mod words;
mod writing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clockwork::{Alarm, Clockwork, Due};
use mutirao_core::{Mono, Timestamp, id::Attempt};
use mutirao_nodes::preference::Protocol;
use mutirao_nodes::{ActionName, NodeId};
use parked::Parked;
use reckoning::Reckonings;
use rules::FEW;
pub use rules::Rules;
use run::{Advance, Phase, Run};
use words::{Asker, Batch, Because, Effect, Input, RunEnd, RunKey, StepKey, Stored};
use writing::Writing;

use crate::answer::Told;

/// Both clocks: wall time is for records and for the time of a whole run, the other for everything else.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub mono: Mono,
    pub wall: Timestamp,
}

/// A task that is out.
#[derive(Clone, Debug)]
pub struct Out {
    attempt: Attempt,
    node: Option<NodeId>,
    why: Option<String>,
    began_at: Timestamp,
    overdue: Alarm,
    /// When it is written down where it is.
    note: Option<Alarm>,
}

#[derive(Debug)]
pub struct Foreman {
    rules: Rules,
    generation: u64,
    runs: BTreeMap<RunKey, Run>,
    /// About how much memory they take.
    bytes: usize,
    outs: BTreeMap<StepKey, Out>,
    ready: VecDeque<StepKey>,
    parked: Parked,
    reckonings: Reckonings,
    /// Actions whose last task was over before it was worth writing down where it is.
    quick: BTreeSet<ActionName>,
    clockwork: Clockwork,
    pending: Batch,
    /// Of its outcomes, as texts.
    pending_bytes: usize,
    pending_marks: Vec<u64>,
    writing: Option<Writing>,
    ill: bool,
    effects: VecDeque<Effect>,
}

impl Foreman {
    /// With what the store has of its shard's runs that have not ended, or whose answer may not have left.
    pub fn new(generation: u64, rules: Rules, stored: Vec<Stored>, now: Now) -> Self {
        let mut foreman = Self {
            rules,
            generation,
            runs: BTreeMap::new(),
            bytes: 0,
            outs: BTreeMap::new(),
            ready: VecDeque::new(),
            parked: Parked::default(),
            reckonings: Reckonings::default(),
            quick: BTreeSet::new(),
            clockwork: Clockwork::default(),
            pending: Batch { number: 1, ..Batch::default() },
            pending_bytes: 0,
            pending_marks: Vec::new(),
            writing: None,
            ill: false,
            effects: VecDeque::new(),
        };
        stored.into_iter().for_each(|stored| foreman.take_back(stored, now));
        foreman
    }

    /// Whether a run may be handed in.
    pub fn takes_runs(&self) -> bool {
        self.runs.len() < self.rules.runs_max && !self.is_heavy() && self.takes_reports()
    }

    fn is_heavy(&self) -> bool {
        self.bytes >= self.rules.bytes_max
    }

    /// About how much memory its runs take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a report may be. It may where no run may: runs end by reports.
    pub fn takes_reports(&self) -> bool {
        self.pending.outcomes.len() < self.rules.pending_max && self.pending_bytes < self.rules.pending_bytes_max
    }

    pub fn knows(&self, run: RunKey) -> bool {
        self.runs.contains_key(&run)
    }

    pub fn known(&self) -> impl Iterator<Item = RunKey> + '_ {
        self.runs.keys().copied()
    }

    /// Runs that have not ended, or whose answer has not left.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    pub fn wake_at(&self) -> Option<Mono> {
        let again = self.writing.as_ref().and_then(|writing| writing.again_at);
        self.clockwork.next().into_iter().chain(again).min()
    }

    pub fn handle(&mut self, input: Input, now: Now) {
        match input {
            Input::Admit(admitted) => {
                if !self.runs.contains_key(&admitted.key) {
                    self.take(Run::new(admitted, Vec::new(), Vec::new()), None, now);
                }
            }
            Input::Found(stored) => {
                if !self.runs.contains_key(&stored.admitted.key) {
                    self.take_back(*stored, now);
                }
            }
            Input::Report(report) => self.hear(report, now),
            Input::Sent { key, attempt, node, over, why } => {
                let noted_after = self.noted_after(key);
                if let Some(out) = self.outs.get_mut(&key).filter(|out| out.attempt == attempt) {
                    // What this process has at hand itself goes with it.
                    let note = (over != Protocol::Here).then(|| now.mono.plus(noted_after));
                    out.note = note.map(|at| self.clockwork.set(at, Due::Noted(key, attempt)));
                    (out.node, out.why) = (Some(node), Some(why));
                    let given = (attempt, out.began_at);
                    if let Some(item) = self.runs.get_mut(&key.run).and_then(|run| run.item_mut(key)) {
                        (item.waits, item.waits_for, item.resume) = (0, None, None);
                        item.given = Some(given);
                    }
                }
            }
            Input::NoRoom { key, attempt, why } => self.park(key, attempt, why, now),
            Input::Room(action) => self.unpark(&action),
            Input::Impossible { key, attempt, why } => self.give_up(key, attempt, why, now),
            Input::Lost { key, attempt } => self.lose(key, attempt, now),
            Input::NodeLost(node) => {
                let there = self.outs.iter().filter(|(_, out)| out.node.as_ref() == Some(&node));
                let there: Vec<(StepKey, Attempt)> = there.map(|(key, out)| (*key, out.attempt)).collect();
                there.into_iter().for_each(|(key, attempt)| self.lose(key, attempt, now));
            }
            Input::Cancel(run) => self.finish(run, RunEnd::Cancelled, now),
            Input::Written(number) => self.written(number, now),
            Input::Unwritten(number) => self.unwritten(number, now),
            Input::Announced(run) => {
                if self.runs.get(&run).is_some_and(|run| run.phase == Phase::Ended) {
                    self.pending.announced.push(run);
                }
            }
            Input::Reckoned(reckoned) => self.reckoned(*reckoned, now),
            Input::Tick => {
                while let Some(due) = self.clockwork.due(now.mono) {
                    match due {
                        Due::Ready(key) => self.ready.push_back(key),
                        Due::Parked(action, place) => self.ready.extend(self.parked.leave(&action, place)),
                        Due::Noted(key, attempt) => self.note(key, attempt),
                        Due::Overdue(key, attempt) => self.overdue(key, attempt, now),
                        Due::Run(run) => self.finish(run, RunEnd::TimedOut, now),
                    }
                }
            }
        }
    }

    /// What is to be done next, in this order: what was decided, then the store, then what is new.
    pub fn poll(&mut self, now: Now) -> Option<Effect> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            if let Some(batch) = self.due_write(now) {
                return Some(Effect::Write(batch));
            }
            if let Some(reckoning) = self.next_reckoning() {
                return Some(Effect::Reckon(Box::new(reckoning)));
            }
            let out_max = if self.is_heavy() { FEW.min(self.rules.out_max) } else { self.rules.out_max };
            if self.ill || self.outs.len() >= out_max {
                return None;
            }
            let (key, given) = match self.next_given() {
                Some((key, given)) => (key, Some(given)),
                None => (self.next_ready()?, None),
            };
            if let Some(dispatch) = self.dispatch(key, given, now) {
                return Some(Effect::Dispatch(dispatch));
            }
        }
    }

    /// Counts what a run has grown by.
    fn count(&mut self, key: RunKey) {
        if let Some(run) = self.runs.get_mut(&key) {
            self.bytes = self.bytes.saturating_sub(run.counted) + run.held;
            run.counted = run.held;
        }
    }

    fn forget(&mut self, key: RunKey) {
        self.forget_reckonings(key);
        if let Some(run) = self.runs.remove(&key) {
            self.bytes = self.bytes.saturating_sub(run.counted);
        }
    }

    fn take(&mut self, mut run: Run, end: Option<(RunEnd, Timestamp)>, now: Now) {
        let key = run.admitted.key;
        if end.is_some() {
            run.phase = Phase::Ended;
        }
        if let Some(timeout) = run.admitted.plan.timeout.filter(|_| end.is_none()) {
            // A clock that was set back since gives it no more than it has.
            let left = run.admitted.started_at.plus(timeout).since(now.wall).min(timeout);
            run.overdue = Some(self.clockwork.set(now.mono.plus(left), Due::Run(key)));
        }
        self.runs.insert(key, run);
        match end {
            Some((end, at)) => {
                self.count(key);
                self.announce(key, &end, at);
            }
            None => self.advance(key, now),
        }
    }

    fn advance(&mut self, key: RunKey, now: Now) {
        let Some(run) = self.runs.get_mut(&key).filter(|run| run.phase == Phase::Going) else { return };
        let Advance { opened, asks, end } = run.advance(self.rules.pace);
        let released: Vec<StepKey> = opened.into_iter().flat_map(|step| run.release(step)).collect();
        self.ready.extend(released);
        asks.into_iter().for_each(|what| self.reckonings.want(key, what));
        self.count(key);
        if let Some(end) = end {
            self.finish(key, end, now);
        }
    }

    /// The first end counts.
    fn finish(&mut self, key: RunKey, end: RunEnd, now: Now) {
        let Some(run) = self.runs.get_mut(&key).filter(|run| run.phase == Phase::Going) else { return };
        run.phase = Phase::Ending;
        self.pending.ends.push((key, end, now.wall));
        // Who reads it in the store need not be told: one write is all that it takes.
        if run.admitted.asker == Asker::Reader {
            self.pending.announced.push(key);
        }
    }

    /// Its end is durable: nobody need go on with it, and whoever waits is told.
    fn announce(&mut self, key: RunKey, end: &RunEnd, at: Timestamp) {
        let first = StepKey { run: key, step: 0, item: 0 };
        let last = StepKey { run: key, step: u32::MAX, item: u32::MAX };
        let out: Vec<StepKey> = self.outs.range(first..=last).map(|(key, _)| *key).collect();
        for key in out {
            let recalled = self.take_out(key);
            self.effects.extend(recalled.map(|Out { attempt, .. }| Effect::Recall {
                key,
                attempt,
                because: Because::Unwanted,
            }));
        }
        let Some(run) = self.runs.get_mut(&key) else { return };
        run.phase = Phase::Ended;
        if let Some(overdue) = run.overdue.take() {
            self.clockwork.unset(overdue);
        }
        self.effects.extend(run.early.drain(..).map(|early| Effect::Acknowledge(early.mark)));
        let told = Told { run: run.leave(), end: end.clone(), at };
        self.effects.push_back(Effect::Announce(Box::new(told)));
    }

    pub fn action_of(&self, key: StepKey) -> Option<ActionName> {
        self.runs.get(&key.run)?.admitted.plan.steps.get(key.step as usize).map(|step| step.action.clone())
    }

    pub fn is_waited_for(&self, key: StepKey, attempt: Attempt) -> bool {
        self.outs.get(&key).is_some_and(|out| out.attempt == attempt)
    }

    /// Tasks that are out.
    pub fn outs(&self) -> impl Iterator<Item = (StepKey, Attempt)> + '_ {
        self.outs.iter().map(|(key, out)| (*key, out.attempt))
    }

    /// Whether this node may answer for an attempt: nobody answers for another.
    pub fn may_answer(&self, key: StepKey, attempt: Attempt, node: Option<&NodeId>) -> bool {
        let other =
            |out: &Out| out.attempt == attempt && out.node.is_some() && node.is_some() && out.node.as_ref() != node;
        !self.outs.get(&key).is_some_and(other)
    }

    /// It is out no more.
    fn take_out(&mut self, key: StepKey) -> Option<Out> {
        let out = self.outs.remove(&key)?;
        self.clockwork.unset(out.overdue);
        if let Some(note) = out.note {
            self.clockwork.unset(note);
        }
        Some(out)
    }
}
