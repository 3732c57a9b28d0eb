//! How a run goes on: which steps open and close, and whether it has come to its end. What takes longer than whoever asks has
//! time for is asked for ([`reckoning`](super::super::reckoning)), and learnt later.

use mutirao_expression::Stop;

use super::{Advance, Run, State, Then};
use crate::foreman::reckoning::{Opened, What, ends, opened};
use crate::foreman::words::{RunEnd, StepKey};
use crate::given::Given;
use crate::plan::{Ended, Opening, Pace};

impl Run {
    /// Whether all of it is no more than may be looked at in one go.
    pub fn is_light(&self, pace: Pace) -> bool {
        self.input.bytes().saturating_add(self.bytes) <= pace.bytes && self.stored.is_empty()
    }

    /// Opens every step whose time has come, and says whether the run has come to its end. What takes longer than this pace is
    /// asked for, once.
    pub fn advance(&mut self, pace: Pace) -> Advance {
        let mut advance = Advance::default();
        let plan = self.admitted.plan.clone();
        let named = |step: usize, reason: String| RunEnd::Failed { step: Some(plan.steps[step].name.clone()), reason };
        self.open_all(pace, &mut advance, |advance, step, why| {
            // The others are still looked at: where a run stands must not depend on the order.
            advance.end.get_or_insert_with(|| named(step, why));
        });
        if let Some((step, why)) = self.failed.clone() {
            advance.end.get_or_insert_with(|| named(step, why));
        } else if advance.end.is_none() && self.ended.iter().all(Option::is_some) {
            let known = self.ends.take().map(|ends| ends.map_err(Stop::Failed));
            advance.end = match known.unwrap_or_else(|| ends(&plan, self.seen(), pace)) {
                Ok(()) => Some(RunEnd::Done),
                Err(Stop::Failed(reason)) => Some(RunEnd::Failed { step: None, reason }),
                Err(Stop::Costly) => self.ask(What::Output, &mut advance),
            };
        }
        advance
    }

    /// As far as it has come, whatever that takes: for whoever reads it.
    pub fn unfold(&mut self) {
        self.open_all(Pace::WHOLE, &mut Advance::default(), |_, _, _| {});
    }

    fn open_all(&mut self, pace: Pace, advance: &mut Advance, mut fail: impl FnMut(&mut Advance, usize, String)) {
        let plan = self.admitted.plan.clone();
        loop {
            let mut any = false;
            for step in 0..plan.steps.len() {
                let mut moved = false;
                if self.ended[step].is_none() && self.open[step].is_none() && self.may_begin(step) {
                    moved = true;
                    let known = self.opened.remove(&(step as u32)).map(|known| known.map_err(Stop::Failed));
                    match known.unwrap_or_else(|| opened(&plan, step, self.seen(), pace)) {
                        Err(Stop::Failed(why)) => {
                            fail(advance, step, why);
                            moved = false;
                        }
                        Err(Stop::Costly) => {
                            self.ask(What::Opening(step as u32), advance);
                            moved = false;
                        }
                        Ok((Opening::Skipped, _)) => self.ended[step] = Some(Ended::Skipped),
                        Ok((Opening::Each(list), _)) if list.is_empty() => {
                            self.ended[step] = Some(Ended::Output(Given::outputs(Vec::new(), 2)));
                        }
                        Ok((Opening::Each(list), held)) => {
                            self.held += held;
                            self.begin(step, list.len(), Some(list), advance);
                        }
                        Ok((Opening::Once, _)) => self.begin(step, 1, None, advance),
                    }
                }
                any |= moved | self.close(step);
            }
            if !any {
                return;
            }
        }
    }

    /// Whether steps may yet open that had begun with an owner before.
    pub(in crate::foreman) fn is_unfolding(&self) -> bool {
        self.asked.iter().any(|what| matches!(what, What::Opening(_)))
    }

    fn ask(&mut self, what: What, advance: &mut Advance) -> Option<RunEnd> {
        if self.asked.insert(what) {
            advance.asks.push(what);
        }
        None
    }

    /// What a step turned out to be.
    pub(in crate::foreman) fn learn(&mut self, step: u32, opened: Opened) {
        self.asked.remove(&What::Opening(step));
        self.opened.insert(step, opened);
    }

    /// Whether its output can be had.
    pub(in crate::foreman) fn learn_end(&mut self, ends: Result<(), String>) {
        self.asked.remove(&What::Output);
        self.ends = Some(ends);
    }

    /// How it ends, if these tasks, which ended well and are on their way to the store in that batch, are all that it waited
    /// for. Nothing can change what they gave any more, so it counts from now on; whoever asks has to make it durable together
    /// with the end. None, and nothing has changed, if they are not, or if that takes a while to be known.
    pub fn end_with(&mut self, last: &[StepKey], batch: u64, pace: Pace) -> Option<RunEnd> {
        let open = |step: usize| self.open[step].as_ref().filter(|_| self.ended[step].is_none());
        let begun = |step: usize| self.ended[step].is_some() || self.open[step].is_some();
        let steps = 0..self.ended.len();
        let left: usize = steps.clone().filter_map(open).map(|open| open.left).sum();
        if self.failed.is_some() || left != last.len() || !steps.clone().all(begun) {
            return None;
        }
        last.iter().for_each(|key| self.seal(*key));
        let end = self.advance(pace).end;
        if end.is_none() {
            self.asked.remove(&What::Output);
            last.iter().for_each(|key| self.unseal(*key, batch));
        }
        end
    }

    fn unseal(&mut self, key: StepKey, batch: u64) {
        let step = key.step as usize;
        let Some(open) = self.open.get_mut(step).and_then(Option::as_mut) else { return };
        if self.ended[step].take().is_some() {
            self.held = self.held.saturating_sub(open.items.iter().map(|item| item.held).sum());
        }
        if let Some(item) = open.items.get_mut(key.item as usize) {
            item.state = State::Decided { batch, then: Then::Done };
            open.left += 1;
        }
    }
}
