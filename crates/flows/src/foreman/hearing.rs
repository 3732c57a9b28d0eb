//! What a report, a loss or a silence means for a task.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::id::Attempt;
use mutirao_nodes::{ActionName, NodeId};

use super::clockwork::Due;
use super::run::{Phase, State, Then};
use super::weight::size;
use super::words::{Because, Effect, End, Report, StepKey, Try};
use super::writing::Writing;
use super::{Foreman, Now, Out};

/// Of a reason, this much is kept.
const REASON_CHARS_MAX: usize = 500;
/// Between two looks for a node that has room.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Of all that want the same, at most.
const LOOKS_A_SECOND: u64 = 500;

impl Foreman {
    pub(super) fn hear(&mut self, report: Report, now: Now) {
        let Report { key, attempt, end, node, mark } = report;
        let Some(run) = self.runs.get(&key.run).filter(|run| run.phase != Phase::Ended) else {
            return self.effects.push_back(Effect::Acknowledge(mark));
        };
        if run.phase == Phase::Ending {
            // It means nothing once the end is durable; until then it might.
            let ends_there = |writing: &&mut Writing| writing.batch.ends.iter().any(|(run, ..)| *run == key.run);
            return match self.writing.as_mut().filter(ends_there) {
                Some(writing) => writing.marks.push(mark),
                None => self.pending_marks.push(mark),
            };
        }
        let Some(item) = run.item(key) else {
            return match self.runs.get_mut(&key.run).filter(|run| run.is_unfolding()) {
                Some(run) => run.early.push(Report { key, attempt, end, node, mark }),
                None => self.effects.push_back(Effect::Acknowledge(mark)),
            };
        };
        let out = self.outs.get(&key).cloned();
        if !self.may_answer(key, attempt, node.as_ref()) {
            return self.effects.push_back(Effect::Acknowledge(mark));
        }
        match (&item.state, end) {
            // What has ended stays as it is.
            (State::Done, _) => self.effects.push_back(Effect::Acknowledge(mark)),
            (State::Decided { batch, then: Then::Done | Then::Failed }, _) => {
                // Whoever said it first may have been cut off: it is kept for as long as the first would be.
                match self.writing.as_mut().filter(|writing| writing.batch.number == *batch) {
                    Some(writing) => writing.marks.push(mark),
                    None => self.pending_marks.push(mark),
                }
            }
            (_, End::Ok(value)) => {
                let given = item.given.filter(|(given, _)| *given == attempt).map(|(_, at)| at);
                let began_at = given.or(out.as_ref().map(|out| out.began_at)).unwrap_or(now.wall);
                if out.as_ref().is_some_and(|out| out.attempt == attempt) {
                    self.took(key, now.wall.since(began_at));
                }
                if let Some(out) = out.filter(|out| out.attempt != attempt) {
                    self.effects.push_back(Effect::Recall { key, attempt: out.attempt, because: Because::Unwanted });
                }
                self.settle(key, End::Ok(value), node, began_at, now);
                self.pending_marks.push(mark);
            }
            (State::Out(current), End::Failed(why)) if *current == attempt => {
                self.failed_try(key, why, node, now);
                self.pending_marks.push(mark);
            }
            (_, End::Failed(_)) => self.effects.push_back(Effect::Acknowledge(mark)),
        }
    }

    /// For good; to be written, and the next of its list may go.
    pub(super) fn settle(&mut self, key: StepKey, end: End, node: Option<NodeId>, began_at: Timestamp, now: Now) {
        // What an expression says of its failure holds what came from outside, and not every store takes all of that.
        let end = match end {
            End::Failed(why) => End::Failed(reason(&why)),
            done => done,
        };
        let why = self.take_out(key).filter(|out| out.node == node).and_then(|out| out.why);
        let batch = self.pending.number;
        let Some(run) = self.runs.get_mut(&key.run) else { return };
        let outcome = run.settle(key, end, (node, why), (began_at, now.wall), batch);
        self.pending_bytes += outcome.as_ref().map_or(0, |outcome| size(&outcome.end));
        self.pending.outcomes.extend(outcome);
        self.ready.extend(run.release(key.step));
        self.count(key.run);
    }

    fn failed_try(&mut self, key: StepKey, why: String, node: Option<NodeId>, now: Now) {
        let Some(Out { node: sent_to, began_at, .. }) = self.outs.get(&key).cloned() else { return };
        let reason = reason(&why);
        let batch = self.pending.number;
        let Some(run) = self.runs.get_mut(&key.run) else { return };
        let retries = run.admitted.plan.steps[key.step as usize].retries;
        let Some(item) = run.item_mut(key) else { return };
        item.tries += 1;
        let tries = item.tries;
        if tries > retries {
            return self.settle(key, End::Failed(reason), node.or(sent_to), began_at, now);
        }
        (item.failed_on, item.resume) = (node.or(sent_to), None);
        item.last_reason = Some(reason.clone());
        let pause = self.rules.pause.saturating_mul(1 << (tries - 1).min(16)).min(self.rules.pause_max);
        item.state = State::Decided { batch, then: Then::Retry { not_before: now.mono.plus(pause) } };
        self.pending.noted.retain(|noted| noted.key != key);
        self.pending.tries.push(Try { key, tries, reason });
        self.take_out(key);
    }

    /// Nobody's fault, and not the task's: it is sent again, and only a habit of it counts.
    pub(super) fn lose(&mut self, key: StepKey, attempt: Attempt, now: Now) {
        if !self.is_out(key, attempt) {
            return;
        }
        let (pause, losses_max) = (self.rules.pause, self.rules.losses_max);
        let Some(item) = self.runs.get_mut(&key.run).and_then(|run| run.item_mut(key)) else { return };
        item.losses += 1;
        if item.losses > losses_max {
            item.losses = 0;
            return self.failed_try(key, format!("its node went away {} times", losses_max + 1), None, now);
        }
        let pause = pause.saturating_mul(1 << (item.losses - 1).min(16)).min(self.rules.pause_max);
        item.state = State::Ready;
        let failed_on = self.take_out(key).and_then(|out| out.node);
        let Some(item) = self.runs.get_mut(&key.run).and_then(|run| run.item_mut(key)) else { return };
        (item.failed_on, item.resume) = (failed_on, None);
        self.clockwork.set(now.mono.plus(pause), Due::Ready(key));
    }

    /// Nobody has room for it, or is there: it costs nothing, however long it takes. It is tried again when there may be
    /// room, and now and then; the more wait, the more seldom each.
    pub(super) fn park(&mut self, key: StepKey, attempt: Attempt, why: String, now: Now) {
        if !self.is_out(key, attempt) {
            return;
        }
        self.take_out(key);
        let pause = self.rules.pause;
        let Some(run) = self.runs.get_mut(&key.run) else { return };
        let action = run.admitted.plan.steps[key.step as usize].action.clone();
        let Some(item) = run.item_mut(key) else { return };
        let crowd = Duration::from_secs((self.parked.waiting(&action) as u64 + 1) / LOOKS_A_SECOND);
        let pause = pause.saturating_mul(1 << item.waits.min(16)).min(WAIT_MAX).max(crowd);
        item.waits += 1;
        item.waits_for = Some(why);
        item.state = State::Ready;
        self.parked.join(action, key, now.mono.plus(pause), &mut self.clockwork);
    }

    /// Somebody may have room for one that waits.
    pub(super) fn unpark(&mut self, action: &ActionName) {
        while let Some(key) = self.parked.next(action, &mut self.clockwork) {
            // What has ended meanwhile, or whose run has, wants nothing any more.
            let run = self.runs.get(&key.run).filter(|run| run.phase == Phase::Going);
            if run.and_then(|run| run.item(key)).is_some_and(|item| matches!(item.state, State::Ready)) {
                return self.ready.push_back(key);
            }
        }
    }

    /// No node could ever take it.
    pub(super) fn give_up(&mut self, key: StepKey, attempt: Attempt, why: String, now: Now) {
        if let Some(began_at) = self.is_out(key, attempt).then(|| self.outs[&key].began_at) {
            self.settle(key, End::Failed(reason(&why)), None, began_at, now);
        }
    }

    pub(super) fn overdue(&mut self, key: StepKey, attempt: Attempt, now: Now) {
        if self.is_out(key, attempt) {
            self.effects.push_back(Effect::Recall { key, attempt, because: Because::Overdue });
            self.failed_try(key, "it was not heard of within its timeout".into(), None, now);
        }
    }

    fn is_out(&self, key: StepKey, attempt: Attempt) -> bool {
        self.outs.get(&key).is_some_and(|out| out.attempt == attempt)
            && self.runs.get(&key.run).is_some_and(|run| run.phase == Phase::Going)
    }
}

/// In bounds, and without what not every store can keep.
fn reason(why: &str) -> String {
    why.chars().take(REASON_CHARS_MAX).map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
